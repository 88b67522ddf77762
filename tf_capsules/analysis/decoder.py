"""Reconstructions from class capsules."""

import dataclasses

import numpy as np

from tf_capsules.analysis import inference
from tf_capsules.analysis.inference import check_label, check_labels, classes_of, predict, to_numpy

OFFSETS = np.round(np.arange(-5, 6) * 0.05, 2)


def perturb_dimensions(model, image, label, offsets=OFFSETS):
    """Reconstructs an image from a class capsule while it changes one dimension of the capsule at a time.

    Source: Sabour et al. 2017, section 5.1 and figure 4. The changed capsule is not squashed again.

    Args:
        model: see `reconstruct_parts`, also for the errors.
        image: (height, width, channels).
        label: the class whose capsule is changed and decoded.
        offsets: the numbers to add to a dimension; by default -0.25 to 0.25 in steps of 0.05.

    Returns:
        (dimensions, offsets, height, width, channels). The dimensions of a matrix pose are counted row by row.
    """
    _need_decoder(model)
    poses = predict(model, np.asarray(image)[None])["poses"][0]
    check_label(label, len(poses))
    changes = np.kron(np.eye(poses[0].size), np.reshape(offsets, (-1, 1))).astype("float32")
    changed = np.repeat(poses[None], len(changes), axis=0)
    changed[:, label] += changes.reshape(-1, *poses.shape[1:])
    images = to_numpy(model.reconstruct(changed, np.full(len(changed), label)))
    return images.reshape(-1, len(offsets), *images.shape[1:])


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
    """
    _need_decoder(model)
    labels = np.asarray(labels)
    check_labels(labels, classes_of(model))
    if labels.ndim != 2 or len(labels) != len(images):
        raise ValueError(f"`labels` must be (batch, parts) for {len(images)} images. Received shape {labels.shape}.")
    poses = predict(model, images)["poses"]
    decoded = to_numpy(model.reconstruct(np.repeat(poses, labels.shape[1], axis=0), labels.reshape(-1)))
    return decoded.reshape(*labels.shape, *decoded.shape[1:])


@dataclasses.dataclass(frozen=True, eq=False)
class Reconstructions:
    """Images, and what the decoder draws from one of their class capsules.

    Attributes:
        images, decoded: (examples, height, width, channels).
        labels, predictions, sources: (examples,): the true class, the most active one, the one that is decoded.
        classes: number of the model's classes.
    """

    images: np.ndarray
    decoded: np.ndarray
    labels: np.ndarray
    predictions: np.ndarray
    sources: np.ndarray
    classes: int


def measure_reconstructions(model, images, labels, right=6, wrong=2):
    """Reconstructs some images from a class capsule, correctly classified ones first. Returns `Reconstructions`.

    Source: Sabour et al. 2017, figure 3.

    Args:
        model, images: see `reconstruct_parts`, also for the errors.
        labels: (batch,).
        right: how many correctly classified images to show at most: the first ones. A ValueError if no image is shown.
        wrong: how many wrongly classified images to show at most, each twice: decoded from prediction and from label.
    """
    _need_decoder(model)
    inference.check_counts(right, wrong)
    predictions, labels = inference.predict_classes(model, images, labels)
    hits = np.flatnonzero(predictions == labels)[:right]
    misses = np.flatnonzero(predictions != labels)[:wrong]
    columns = [(i, labels[i]) for i in hits] + [(i, source) for i in misses for source in (predictions[i], labels[i])]
    inference.check_counts(right, wrong, columns)
    index, sources = (np.array(values) for values in zip(*columns, strict=True))
    shown = np.asarray(images)[index]
    decoded = reconstruct_parts(model, shown, sources[:, None])[:, 0]
    return Reconstructions(shown, decoded, labels[index], predictions[index], sources, classes_of(model))


@dataclasses.dataclass(frozen=True, eq=False)
class OverlappingReconstructions:
    """Images of two objects, and each object as the decoder makes it.

    Attributes:
        images, parts: as given to `measure_overlapping_reconstructions`.
        labels, predictions, wrong: (examples, 2): the true classes; the two most active classes; the first label with
            the least active class. A class in both labels and predictions has the same place in both.
        decoded: (3, examples, 2, height, width, channels), from labels, predictions and wrong.
        classes: number of the model's classes.
    """

    images: np.ndarray
    parts: np.ndarray
    labels: np.ndarray
    predictions: np.ndarray
    wrong: np.ndarray
    decoded: np.ndarray
    classes: int


def measure_overlapping_reconstructions(model, images, parts, part_labels):
    """Reconstructs two overlapping objects one by one, as `OverlappingReconstructions`.

    Source: Sabour et al. 2017, figure 5.

    Args:
        model, images: see `reconstruct_parts`; the images hold both objects.
        parts: (batch, 2, height, width, channels), the single objects.
        part_labels: (batch, 2), their classes.

    Raises:
        ValueError: arrays that do not fit; for the other errors see `reconstruct_parts`.
    """
    images, parts, labels = np.asarray(images), np.asarray(parts), np.asarray(part_labels)
    if parts.shape != (len(images), 2, *images.shape[1:]) or labels.shape != (len(images), 2):
        received = f"shapes {parts.shape} and {labels.shape} for images {images.shape}"
        raise ValueError(f"`parts` are two objects of each image, `part_labels` their classes. Received {received}.")
    _need_decoder(model)
    check_labels(labels, classes_of(model))
    if classes_of(model) < 2:
        raise ValueError(f"Two objects need a model of two classes or more. {model.name!r} has one.")
    activations = predict(model, images)["activations"]
    predictions = activations.argsort(-1)[:, :-3:-1]
    # A predicted class that is a label takes the label's place, and so its colour.
    swapped = (predictions == labels[:, ::-1]).any(-1, keepdims=True)
    predictions = np.where(swapped, predictions[:, ::-1], predictions)
    wrong = np.stack([labels[:, 0], activations.argmin(-1)], axis=-1)
    choices = reconstruct_parts(model, images, np.concatenate([labels, predictions, wrong], axis=1))
    decoded = choices.reshape(len(images), 3, 2, *choices.shape[2:]).swapaxes(0, 1)
    return OverlappingReconstructions(images, parts, labels, predictions, wrong, decoded, activations.shape[-1])


def _need_decoder(model):
    if getattr(model, "decoder", None) is None:
        raise ValueError(f"Reconstructions need a model with a decoder; {model.name!r} has none.")
