"""Where the votes for a class lie relative to the pose of its capsule."""

import dataclasses

import numpy as np

from tf_capsules.analysis.inference import check_counts, in_batches, inputs_at, labels_of, predict_classes, to_numpy
from tf_capsules.analysis.routing_layers import check_shares, find_layer, stopped_layers
from tf_capsules.arguments import is_whole


def measure_vote_distances(model, images, layer="class_capsules", batch_size=20):
    """The distance of each vote from the pose of its class capsule, after each routing iteration.

    Source: Hinton et al. 2018, figure 2 (a histogram of these distances, weighted by the assignments).

    Args:
        model: a `CapsuleClassifier` with a fully connected routing layer.
        images: (batch, height, width, channels).
        layer: name of the routing layer in the model's encoder.
        batch_size: images routed at a time.

    Returns:
        A pair of arrays (iterations, batch, children, classes): Euclidean distances of the votes from the pose that an
        iteration finds, and the couplings that weight the votes in it. In EM routing and `HeinsenRouting` a pose is the
        mean of its votes; elsewhere it is squashed or normalized, and votes that agree need not be near it.

    Raises:
        ValueError: a layer of another kind or with a learned prior, or images of another shape.
    """
    routing = find_layer(model, layer)
    check_shares(routing)
    layers, inputs, distances, couplings = stopped_layers(routing), inputs_at(routing, model), [], []
    for batch in in_batches(model, images, batch_size):
        children = inputs(batch)
        found = [one.routed(*children, return_couplings=True) for one in layers]
        votes = to_numpy(routing.votes(children[0]))
        axes = tuple(range(3, votes.ndim))
        distances.append([np.sqrt(np.square(votes - to_numpy(one.poses)[:, None]).sum(axes)) for one in found])
        couplings.append([to_numpy(one.couplings) for one in found])
    return np.concatenate(distances, axis=1), np.concatenate(couplings, axis=1)


def measure_vote_similarities(model, images, labels, layer="class_capsules", bins=21, batch_size=20):
    """How similar the votes for the right class are to its capsule, and how long they are.

    Source: Li et al. 2018, figure 2. The similarity is the cosine of a vote and the capsule's pose. Votes are counted
    in bins `floor(h cosine + h)`, where h is half of the bins; the last bin is for a cosine of exactly 1.

    Args:
        model: a `CapsuleClassifier` with a fully connected routing layer whose parents are the classes.
        images, layer, batch_size: see `measure_vote_distances`.
        labels: (batch,).
        bins: an odd number, at least 3.

    Returns:
        A pair of arrays (bins,): the share of the votes in each bin, and their mean length, NaN in an empty bin.

    Raises:
        ValueError: a layer of another kind, bins that are even or below 3, or images and labels that do not fit.
    """
    routing = find_layer(model, layer)
    if not is_whole(bins, 3) or not bins % 2:
        raise ValueError(f"`bins` must be odd and at least 3. Received: {bins!r}")
    labels = labels_of(images, labels, routing.capsules)
    counts, lengths, inputs = np.zeros(bins), np.zeros(bins), inputs_at(routing, model)
    for number, batch in enumerate(in_batches(model, images, batch_size)):
        children = inputs(batch)
        parents = to_numpy(routing.routed(*children).poses)
        rows, right = np.arange(len(batch)), labels[number * batch_size :][: len(batch)]
        votes = to_numpy(routing.votes(children[0]))[rows, :, right].reshape(len(batch), -1, parents[0, 0].size)
        parents = parents[rows, right].reshape(len(batch), 1, -1)
        norms = np.linalg.norm(votes, axis=-1)
        cosines = (votes * parents).sum(-1) / np.maximum(norms * np.linalg.norm(parents, axis=-1), 1e-12)
        half = bins // 2
        places = np.clip(np.floor(half * cosines + half), 0, bins - 1).astype(int)
        counts += np.bincount(places.ravel(), minlength=bins)
        lengths += np.bincount(places.ravel(), norms.ravel(), minlength=bins)
    with np.errstate(invalid="ignore"):
        return counts / counts.sum(), lengths / counts


@dataclasses.dataclass(frozen=True, eq=False)
class ExampleVotes:
    """Some images, and the distances of the votes from each class capsule.

    Attributes:
        images: (examples, height, width, channels).
        labels, predictions: (examples,).
        distances, couplings: (iterations, examples, children, classes), see `measure_vote_distances`.
    """

    images: np.ndarray
    labels: np.ndarray
    predictions: np.ndarray
    distances: np.ndarray
    couplings: np.ndarray


def measure_example_votes(model, images, labels, right=2, wrong=1):
    """The `ExampleVotes` of some images that the model gets right and of some that it gets wrong.

    Source: Hinton et al. 2018, figure 2.

    Args:
        model, images: see `measure_vote_distances`; the layer is "class_capsules".
        labels: (batch,).
        right: how many correctly classified images to show at most: the first ones, each of another class.
        wrong: how many wrongly classified images to show at most, of further classes.

    Raises:
        ValueError: no image to show, a layer of another kind, or images and labels that do not fit.
    """
    find_layer(model, "class_capsules")
    check_counts(right, wrong)
    predictions, labels = predict_classes(model, images, labels)
    hits = _first_of_each_class(labels, np.flatnonzero(predictions == labels), right)
    others = np.flatnonzero((predictions != labels) & ~np.isin(labels, labels[hits]))
    index = hits + _first_of_each_class(labels, others, wrong)
    check_counts(right, wrong, index)
    shown = np.asarray(images)[index]
    return ExampleVotes(shown, labels[index], predictions[index], *measure_vote_distances(model, shown))


def _first_of_each_class(labels, index, count):
    """The first example of each class among the examples `index`, at most `count`, as a list."""
    _, first = np.unique(labels[index], return_index=True)
    return [int(i) for i in index[np.sort(first)][:count]]
