"""The numbers behind the figures, as NumPy arrays, on every Keras backend."""

import keras
import numpy as np
from keras import ops

from tf_capsules.datasets.augment import shifted
from tf_capsules.layers import ConcurrentRouting, DynamicRouting, EMRouting
from tf_capsules.layers.arguments import positive_int
from tf_capsules.layers.connections import rows_of
from tf_capsules.models import class_scores
from tf_capsules.routing import dynamic_routing

OFFSETS = np.round(np.arange(-5, 6) * 0.05, 2)


def predict(model, images, batch_size=100):
    """The model's outputs for any number of images, in batches: a dict of arrays, or the scores of a plain network."""
    outputs = [model(batch, training=False) for batch in in_batches(model, images, batch_size)]
    return keras.tree.map_structure(lambda *parts: np.concatenate([to_numpy(part) for part in parts]), *outputs)


def perturb_dimensions(model, image, label, offsets=OFFSETS):
    """Reconstructions from a class capsule of which one dimension at a time is changed.

    Source: Sabour et al. 2017, section 5.1 and figure 4. The changed capsule is not squashed again.

    Args:
        model: a `CapsuleClassifier` with a decoder.
        image: (height, width, channels).
        label: the class whose capsule is changed and decoded.
        offsets: what is added to a dimension, from -0.25 to 0.25 in steps of 0.05.

    Returns:
        (dimensions, offsets, height, width, channels), the dimensions of a matrix pose row by row.

    Raises:
        ValueError: no decoder, a label that is no class, or an image of another shape.

    Example:
        >>> perturb_dimensions(model, images[0], labels[0]).shape
        (16, 11, 28, 28, 1)
    """
    _need_decoder(model)
    poses = predict(model, image[None])["poses"][0]
    check_labels(label, len(poses))
    offsets = np.asarray(offsets, "float32")
    size = poses[0].size
    changes = np.eye(size, dtype="float32")[:, None] * offsets[:, None]
    changed = np.tile(poses, (size * len(offsets), *[1] * poses.ndim))
    changed[:, label] += changes.reshape(-1, *poses.shape[1:])
    images = _reconstruct(model, changed, np.full(len(changed), label))
    return images.reshape(size, len(offsets), *images.shape[1:])


def reconstruct_parts(model, images, labels):
    """Reconstructs each image once from each of several class capsules.

    Source: Sabour et al. 2017, section 6 (two digits an image).

    Args:
        model: a `CapsuleClassifier` with a decoder.
        images: (batch, height, width, channels).
        labels: (batch, parts), the classes whose capsules are decoded.

    Returns:
        (batch, parts, height, width, channels).

    Raises:
        ValueError: no decoder, labels that are no classes, or images of another shape.

    Example:
        >>> reconstruct_parts(model, images, part_labels).shape
        (6, 2, 36, 36, 1)
    """
    _need_decoder(model)
    poses, labels = predict(model, images)["poses"], np.asarray(labels)
    check_labels(labels, poses.shape[1])
    if labels.ndim != 2 or len(labels) != len(poses):
        raise ValueError(f"`labels` must be (batch, parts) for {len(poses)} images. Received shape {labels.shape}.")
    decoded = _reconstruct(model, np.repeat(poses, labels.shape[1], axis=0), labels.reshape(-1))
    return decoded.reshape(*labels.shape, *decoded.shape[1:])


def measure_routing_changes(model, images, iterations=5, layer="class_capsules", batch_size=100):
    """Mean absolute change of a routing logit in each routing iteration.

    Source: Sabour et al. 2017, appendix A. The change in iteration t is the agreement of the votes with the parents
    after t iterations, that of the last iteration included, which procedure 1 computes without using it. It
    vanishes only where votes and parents do not agree: settled routing goes on adding the same agreement.

    Args:
        model: a `CapsuleClassifier` with a `DynamicRouting` layer.
        images: (batch, height, width, channels).
        iterations: how many are measured; it may exceed those that the model was trained with.
        layer: name of the routing layer in the model's encoder.
        batch_size: images that are routed at a time.

    Returns:
        (iterations,) means over images, children and parents.

    Raises:
        ValueError: iterations below 1, a layer of another kind, or images of another shape.

    Example:
        >>> measure_routing_changes(model, images, iterations=5).shape
        (5,)
    """
    iterations = positive_int("iterations", iterations)
    routing = model.encoder.get_layer(layer)
    if not isinstance(routing, DynamicRouting):
        raise ValueError(f"The layer {layer!r} is a {type(routing).__name__}, not a DynamicRouting.")
    children = keras.Model(model.encoder.input, routing.input)
    total = np.zeros(iterations)
    for batch in in_batches(model, images, batch_size):
        votes = routing.make_votes(children(batch, training=False))
        for t in range(iterations):
            parents = dynamic_routing(
                votes, t + 1, bias=routing.bias, leaky=routing.leaky, competition=routing.competition
            )
            total[t] += len(batch) * to_numpy(ops.mean(ops.abs(votes.agreement(parents))))
    return total / len(images)


def measure_pose_changes(model, images, iterations=50, schedule=None, layer="routing", batch_size=20):
    """How far the poses of each layer move in each iteration of concurrent routing.

    Source: the question that Tsai et al. 2020, section 4.1, leaves open: whether poses converge where all layers are
    routed together with the same weights in all iterations, as in a deep equilibrium model.

    Args:
        model: a `CapsuleClassifier`, or a functional model, with a `ConcurrentRouting` layer.
        images: (batch, height, width, channels).
        iterations: at least 2; it may exceed those that the model was trained with.
        schedule: "concurrent" or "sequential"; None: the model's own.
        layer: name of the `ConcurrentRouting`.
        batch_size: images that are routed at a time.

    Returns:
        (layers, iterations - 1): the mean, over images and capsules, of the Euclidean norm of `p(t) - p(t - 1)`, t from
        2 on.

    Raises:
        ValueError: fewer than two iterations, an unknown schedule, a layer of another kind, or images of another shape.

    Example:
        >>> measure_pose_changes(model, images, iterations=50).shape
        (3, 49)
    """
    if isinstance(iterations, bool) or not isinstance(iterations, int) or iterations < 2:
        raise ValueError(f"`iterations` must be a whole number of at least 2. Received: {iterations!r}")
    total = 0.0
    for batch in in_batches(model, images, batch_size):
        _, _, found = _route_again(model, batch, layer, iterations, schedule)
        moved = []
        for results in found:
            poses = np.stack([to_numpy(_poses_of(one)) for one in results])  # (iterations, batch, *capsules, *pose)
            entries = (-2, -1) if rows_of(poses.shape[1:]) else (-1,)
            distances = np.sqrt(np.square(np.diff(poses, axis=0)).sum(entries))
            moved.append(distances.reshape(iterations - 1, len(batch), -1).mean(-1).sum(-1))
        total += np.stack(moved)
    return total / len(images)


def measure_routing_maps(model, images, layer="routing", batch_size=20):
    """Where in the image the votes come from that each class capsule took.

    Source: the routing of Tsai et al. 2020. A primary capsule's votes go up through the layers in the shares that the
    couplings say, those of the iterations that the class capsules were made in: of the last one in the last layer, and
    where layers are routed concurrently of the one before in each layer below.

    Args:
        model: a `CapsuleClassifier`, or a functional model, with a `ConcurrentRouting` layer, whose lowest layer takes
            capsules on a grid.
        images: (batch, height, width, channels).
        layer: name of the `ConcurrentRouting`.
        batch_size: images that are routed at a time.

    Returns:
        (batch, rows, columns, classes): of what the primary capsules at a place sent up, the share that reached each
        class; over the classes it sums to 1, and is zero where no window of a convolution looks.

    Raises:
        ValueError: a layer of another kind, capsules that are not on a grid, or images of another shape.

    Example:
        >>> measure_routing_maps(model, images).shape
        (20, 16, 16, 10)
    """
    return np.concatenate([_routing_maps(model, batch, layer) for batch in in_batches(model, images, batch_size)])


def _routing_maps(model, images, layer):
    routing, lowest, found = _route_again(model, images, layer)
    if len(lowest[0].shape) < 5:
        raise ValueError(f"The capsules below {layer!r} are not on a grid. Received shape {tuple(lowest[0].shape)}.")
    shares = None  # of what a capsule holds, that which reaches each class: (batch, capsules, classes)
    at = routing.iterations - 1
    for number in reversed(range(len(routing.chain))):
        own = routing.chain[number]
        children, couplings = _couplings_at(routing, lowest, found, number, at)
        if routing.schedule == "concurrent":
            at = max(at - 1, 0)
        grid = tuple(children[0].shape[1:4]) if len(children[0].shape) > 4 else None
        if couplings.ndim == 3:
            shares = couplings if shares is None else couplings @ shares
        else:
            # (batch * positions, children of a window, parents) by what parents at that position hold.
            flat = couplings.reshape(-1, *couplings.shape[3:])
            upward = flat if shares is None else flat @ shares.reshape(len(flat), couplings.shape[4], -1)
            classes = [
                to_numpy(own.windows.scatter(ops.convert_to_tensor(upward[..., c]))) for c in range(upward.shape[-1])
            ]
            shares = np.stack(classes, axis=-1).reshape(len(images), -1, len(classes))
    maps = shares.reshape(len(images), *grid, -1).sum(axis=3)
    total = maps.sum(axis=-1, keepdims=True)
    return np.divide(maps, total, out=np.zeros_like(maps), where=total > 0)


def _couplings_at(routing, lowest, found, number, at):
    """What a layer of a `ConcurrentRouting` took in iteration `at`, from 0, as a tuple, and its couplings."""
    below = None if number == 0 else found[number - 1]
    if routing.schedule == "sequential":
        children = lowest if below is None else below[-1]
    else:
        # In the first iteration from what the layer below has just found, later from what it was.
        children = lowest if below is None else below[max(at - 1, 0)]
    children = tuple(children) if isinstance(children, (tuple, list)) else (children,)
    parents = found[number][at - 1] if at > 0 else None
    return children, to_numpy(routing.chain[number](*children, parents=parents, return_couplings=True)[-1])


def chain_couplings(routing, lowest):
    """What each layer of a `ConcurrentRouting` takes, and its couplings, in the iteration that the last parents have.

    Args:
        routing: the layer.
        lowest: what it takes, a tuple.

    Returns:
        A list of (layer, what it takes as a tuple, couplings), the lowest layer first.
    """
    found, at, results = routing(*lowest, return_iterations=True), routing.iterations - 1, []
    for number in reversed(range(len(routing.chain))):
        results.insert(0, (routing.chain[number], *_couplings_at(routing, lowest, found, number, at)))
        if routing.schedule == "concurrent":
            at = max(at - 1, 0)
    return results


def couplings_of_chain(routing, lowest):
    """The couplings of each layer of a `ConcurrentRouting` in each iteration, as a dict from names to lists.

    Args:
        routing: the layer.
        lowest: what it takes, a tuple.
    """
    found = routing(*lowest, return_iterations=True)
    return {
        layer.name: [_couplings_at(routing, lowest, found, number, at)[1] for at in range(routing.iterations)]
        for number, layer in enumerate(routing.chain)
    }


def _route_again(model, images, layer, iterations=None, schedule=None):
    """A network's `ConcurrentRouting`, what its lowest layer takes (a tuple), and all results of all iterations."""
    encoder = getattr(model, "encoder", model)
    routing = encoder.get_layer(layer)
    if not isinstance(routing, ConcurrentRouting):
        raise ValueError(f"The layer {layer!r} is a {type(routing).__name__}, not a ConcurrentRouting.")
    options = dict(schedule=schedule or routing.schedule, dtype=routing.dtype_policy)
    again = ConcurrentRouting(routing.chain, iterations or routing.iterations, **options)
    lowest = keras.Model(encoder.input, keras.tree.flatten(routing.input))(images, training=False)
    lowest = tuple(lowest) if isinstance(lowest, (tuple, list)) else (lowest,)
    return again, lowest, again(*lowest, return_iterations=True)


def _poses_of(results):
    """The poses of a layer's results, which activations may follow."""
    return results[0] if isinstance(results, (tuple, list)) else results


def measure_vote_distances(model, images, layer="class_capsules", batch_size=20):
    """How far the votes for each class lie from its capsule's pose after each routing iteration, and what they weigh.

    Source: Hinton et al. 2018, figure 2 (a histogram of these distances, weighted by the assignments).

    Args:
        model: a `CapsuleClassifier` with an `EMRouting` layer.
        images: (batch, height, width, channels).
        layer: name of the routing layer in the model's encoder.
        batch_size: images that are routed at a time.

    Returns:
        A pair of (iterations, batch, children, classes): Euclidean distances between a vote and the pose that the
        iteration arrives at; and the couplings by which it weighs the votes, which sum to 1 over the classes.

    Raises:
        ValueError: a layer of another kind, or images of another shape.

    Example:
        >>> distances, couplings = measure_vote_distances(model, images)
    """
    routing = model.encoder.get_layer(layer)
    if not isinstance(routing, EMRouting):
        raise ValueError(f"The layer {layer!r} is a {type(routing).__name__}, not an EMRouting.")
    inputs = keras.tree.flatten(routing.input)
    each = [
        stopped(routing, iteration)(*inputs, return_couplings=True) for iteration in range(1, routing.iterations + 1)
    ]
    routed = keras.Model(model.encoder.input, [inputs[0], *((means, weights) for means, _, _, weights in each)])
    distances, couplings = [], []
    for batch in in_batches(model, images, batch_size):
        poses, *results = routed.predict_on_batch(batch)
        votes = to_numpy(routing.votes(poses))
        axes = tuple(range(3, votes.ndim))
        distances.append([np.sqrt(np.square(votes - means[:, None]).sum(axes)) for means, _ in results])
        couplings.append([weights for _, weights in results])
    return np.concatenate(distances, axis=1), np.concatenate(couplings, axis=1)


def stopped(routing, iterations):
    """A routing layer of the same kind and weights that stops after so many iterations."""
    config = {**routing.get_config(), "iterations": iterations, "name": f"{routing.name}_{iterations}"}
    if isinstance(config.get("inverse_temperature"), (tuple, list)):
        config["inverse_temperature"] = config["inverse_temperature"][:iterations]
    layer = type(routing).from_config(config)
    layer.build(keras.tree.flatten(routing.input)[0].shape)
    layer.set_weights(routing.get_weights())
    return layer


def measure_vote_similarities(model, images, labels, layer="class_capsules", bins=21, batch_size=20):
    """How like the right class's capsule the votes for it are: what share of them, and how long they are.

    Source: Li et al. 2018, figure 2: the cosine of each vote with the capsule's pose, counted in bins `floor(10 cosine
    + 10)`, of which the last is for a cosine of 1 alone.

    Args:
        model: a `CapsuleClassifier` with a `DynamicRouting` or `EMRouting` layer.
        images: (batch, height, width, channels).
        labels: (batch,).
        layer: name of the routing layer in the model's encoder, whose parents are the classes.
        bins: an odd number.
        batch_size: images that are routed at a time.

    Returns:
        A pair of (bins,): shares of the votes, which sum to 1, and their mean lengths, NaN where there are none.

    Raises:
        ValueError: a layer of another kind, an even number of bins, or images and labels that do not fit.

    Example:
        >>> shares, lengths = measure_vote_similarities(model, images, labels)
    """
    routing = model.encoder.get_layer(layer)
    if not isinstance(routing, (DynamicRouting, EMRouting)):
        raise ValueError(f"The layer {layer!r} is a {type(routing).__name__}, no DynamicRouting and no EMRouting.")
    if bins < 3 or not bins % 2:
        raise ValueError(f"`bins` must be odd and at least 3. Received: {bins!r}")
    labels = np.asarray(labels).reshape(-1)
    check_labels(labels, routing.capsules)
    if len(labels) != len(images):
        raise ValueError(f"Received {len(images)} images and {len(labels)} labels.")
    inputs = keras.tree.flatten(routing.input)[0]
    routed = keras.Model(model.encoder.input, [inputs, keras.tree.flatten(routing.output)[0]])
    counts, lengths, start = np.zeros(bins), np.zeros(bins), 0
    for batch in in_batches(model, images, batch_size):
        poses, parents = routed.predict_on_batch(batch)
        right = np.arange(len(poses)), labels[start : start + len(poses)]
        start += len(poses)
        votes = to_numpy(routing.votes(poses))[right[0], :, right[1]].reshape(len(poses), -1, parents[0, 0].size)
        parents = parents[right].reshape(len(poses), 1, -1)
        norms = np.linalg.norm(votes, axis=-1)
        cosines = (votes * parents).sum(-1) / np.maximum(norms * np.linalg.norm(parents, axis=-1), 1e-12)
        half = bins // 2
        places = np.clip(np.floor(half * cosines + half), 0, bins - 1).astype(int)
        counts += np.bincount(places.ravel(), minlength=bins)
        lengths += np.bincount(places.ravel(), norms.ravel(), minlength=bins)
    with np.errstate(invalid="ignore"):
        return counts / counts.sum(), lengths / counts


def measure_equivariance(model, image, label, shifts):
    """The capsule of a class while the image is shifted: its activation should stay, its pose should move.

    Source: Sabour et al. 2017, section 1 (the aim of equivariance). Zeros move in, as in the shifts of training.

    Args:
        model: a `CapsuleClassifier`.
        image: (height, width, channels).
        label: the class.
        shifts: (down, right) in whole pixels, for each measurement.

    Returns:
        A pair: the activations of the class (shifts,), and its poses (shifts, *pose).

    Raises:
        ValueError: shifts of another form, a label that is no class, or an image of another shape.

    Example:
        >>> lengths, poses = measure_equivariance(model, image, 3, shifts=[(0, -1), (0, 0), (0, 1)])
    """
    moves = np.asarray(shifts)
    if moves.ndim != 2 or moves.shape[1] != 2 or not np.issubdtype(moves.dtype, np.integer):
        raise ValueError(f"`shifts` must be pairs (down, right) of whole pixels. Received: {shifts!r}")
    most = int(np.abs(moves).max())
    outputs = predict(model, np.stack([shifted(np.asarray(image), down, right, most) for down, right in moves]))
    check_labels(label, outputs["poses"].shape[1])
    return class_scores(outputs)[:, label], outputs["poses"][:, label]


def to_numpy(tensor):
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))


def in_batches(model, images, batch_size):
    shape = tuple(model.image_shape if hasattr(model, "image_shape") else model.input_shape[1:])
    images = np.asarray(images, "float32")
    fits = images.ndim == 4 and all(size in (None, given) for size, given in zip(shape, images.shape[1:], strict=True))
    if not fits or not len(images):
        raise ValueError(f"The model takes one or more images {shape}. Received an array of shape {images.shape}.")
    return [images[start : start + batch_size] for start in range(0, len(images), batch_size)]


def _reconstruct(model, poses, labels):
    return to_numpy(model.reconstruct(poses, labels))


def _need_decoder(model):
    if getattr(model, "decoder", None) is None:
        raise ValueError(f"Reconstructions need a model with a decoder; {model.name!r} has none.")


def check_labels(labels, classes):
    labels = np.asarray(labels)
    if not np.issubdtype(labels.dtype, np.integer) or labels.min() < 0 or labels.max() >= classes:
        raise ValueError(f"Labels must be whole numbers from 0 to {classes - 1}. Received: {labels.tolist()}")
