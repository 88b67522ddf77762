"""How the capsule of a class follows a shifted image."""

import numpy as np

from tf_capsules.analysis.inference import check_label, predict
from tf_capsules.datasets.augment import shifted
from tf_capsules.models import class_outputs


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
        ValueError: shifts of another form, a label that is no class, an image of another shape, a model without poses.
    """
    moves = np.asarray(shifts)
    if moves.ndim != 2 or moves.shape[1] != 2 or not len(moves) or not np.issubdtype(moves.dtype, np.integer):
        raise ValueError(f"`shifts` must be pairs (down, right) of whole pixels. Received: {shifts!r}")
    image, most = np.asarray(image), int(np.abs(moves).max())
    if image.ndim != 3:
        raise ValueError(f"`image` must be (height, width, channels). Received shape {image.shape}.")
    outputs = predict(model, np.stack([shifted(image, down, right, most) for down, right in moves]))
    if not isinstance(outputs, dict) or "poses" not in outputs:
        raise ValueError(f"Equivariance needs a CapsuleClassifier with poses. Received: {model!r}")
    check_label(label, outputs["poses"].shape[1])
    return class_outputs(outputs)[:, label], outputs["poses"][:, label]
