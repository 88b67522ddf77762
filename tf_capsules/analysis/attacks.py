"""Adversarial images: the fast gradient sign method and the basic iterative method.

Epsilon is the largest change of any value of an image, in units of the network's input: shares of the pixel range if a
recipe feeds images in [0, 1]; standard deviations of an image or of channels if it standardizes or normalizes them.
"""

import dataclasses

import keras
import numpy as np

from tf_capsules.analysis.inference import labels_of
from tf_capsules.analysis.input_gradient import InputGradient
from tf_capsules.arguments import is_number, one_of, positive_int, positive_number
from tf_capsules.datasets import augment

EPSILONS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4)
ATTACKS = {"fgsm": "fast gradient sign method", "bim": "basic iterative method"}


def fgsm(gradient, images, labels, epsilon, targeted=False, bounds=None):
    """Adversarial images of the fast gradient sign method: each value moves by epsilon, in one step.

    Source: Goodfellow et al. 2015, section 4; Hinton et al. 2018, section 5.2.

    Args:
        gradient: the attacked model, or its `InputGradient`, which is compiled once for many calls.
        images: (batch, height, width, channels); the result has this shape, float32.
        labels: (batch,), the right classes: their loss grows. With `targeted` the wanted classes: their loss shrinks.
        epsilon: the largest change of a value, 0 or more, in the units of the images (see this module).
        targeted: whether labels are targets.
        bounds: None, or the (lowest, highest) value that a pixel may take, for instance (0, 1).

    Raises:
        ValueError: an epsilon or bounds out of range, images outside the bounds; see also `InputGradient`.

    Example:
        >>> model = keras.Sequential([keras.Input((2, 3, 1)), keras.layers.Flatten(), keras.layers.Dense(4, "softmax")])
        >>> images = np.full((5, 2, 3, 1), 0.5, "float32")
        >>> attacked = fgsm(model, images, np.array([0, 1, 2, 3, 0]), 0.25)
        >>> np.unique(np.abs(attacked - images))
        array([0.25], dtype=float32)
    """
    return basic_iterative(gradient, images, labels, epsilon, 1, None, targeted, bounds)


def basic_iterative(gradient, images, labels, epsilon, steps=10, step_size=None, targeted=False, bounds=None):
    """Adversarial images of the basic iterative method: several small steps of `fgsm`, together at most epsilon.

    Source: Kurakin et al. 2017, section 2.2; Hinton et al. 2018, section 5.2.

    Args:
        steps: number of steps, 1 or more. Each step computes a new gradient.
        step_size: change of each value in a step, above 0; None for epsilon / steps.
        gradient, images, labels, epsilon, targeted, bounds: see `fgsm`, also for the result and the errors.
    """
    gradient = InputGradient(gradient) if isinstance(gradient, keras.Model) else gradient
    images = checked_images(images, bounds)
    (epsilon,), steps = checked_epsilons([epsilon]), positive_int("steps", steps)
    step_size = epsilon / steps if step_size is None else positive_number("step_size", step_size, "a number above 0")
    attacked = images
    for _ in range(steps):
        attacked = _moved(attacked, _direction(gradient, attacked, labels, targeted), step_size, bounds)
        attacked = np.clip(attacked, images - epsilon, images + epsilon)
    return attacked


def _direction(gradient, images, labels, targeted):
    """The sign of the change. It is int8, to save memory, because it is kept for all epsilons."""
    return np.sign(gradient(images, labels)).astype("int8") * (-1 if targeted else 1)


def _moved(images, direction, size, bounds):
    moved = images + direction * np.float32(size)
    return moved if bounds is None else np.clip(moved, *map(np.float32, bounds))


def craft(gradient, attack, images, labels, epsilons, steps, targeted, bounds):
    """Yields the attacked images for each epsilon."""
    direction = _direction(gradient, images, labels, targeted) if attack == "fgsm" else None
    for epsilon in epsilons:
        if attack == "fgsm":  # its direction is the same for all epsilons
            yield _moved(images, direction, epsilon, bounds)
        else:
            yield basic_iterative(gradient, images, labels, epsilon, steps, None, targeted, bounds)


@dataclasses.dataclass(frozen=True, eq=False)
class AttackedImages:
    """Images under a growing attack, and the classes that the attacked model predicts.

    Attributes:
        attack, labels, bounds: as given to `measure_attacked_images`.
        epsilons: (steps,), 0 first.
        images: (steps, images, height, width, channels).
        predictions: (steps, images).
        classes: number of the model's classes.
    """

    attack: str
    epsilons: tuple
    images: np.ndarray
    predictions: np.ndarray
    labels: np.ndarray
    classes: int
    bounds: tuple | None


def measure_attacked_images(gradient, images, labels, epsilons=EPSILONS, attack="bim", steps=10, bounds=None):
    """Attacks images without a target, with growing strength, and classifies them. Returns `AttackedImages`.

    Args:
        gradient: the `InputGradient` of the attacked model.
        images, labels, steps, bounds: see `fgsm` and `basic_iterative`, also for the errors.
        epsilons, attack: the strengths of the attack, and its kind, "fgsm" or "bim".
    """
    one_of("attack", attack, ATTACKS)
    epsilons = checked_epsilons(epsilons)
    images = checked_images(images, bounds)
    labels = labels_of(images, labels, gradient.classes)
    each = [images, *craft(gradient, attack, images, labels, epsilons, steps, False, bounds)]
    predictions = np.stack([gradient.classify(one) for one in each])
    return AttackedImages(attack, (0.0, *epsilons), np.stack(each), predictions, labels, gradient.classes, bounds)


def input_units(preprocess):
    """The units of epsilon for images after a recipe's steps, and the bounds of their values, (0, 1) or None.

    >>> input_units((("crop", 24), ("standardize",)))
    ('standard deviations of an image', None)
    """
    names = {name for name, *_ in augment.check(preprocess)}
    if "standardize_each" in names:
        return "standard deviations of a channel", None
    if "standardize" in names:
        return "standard deviations of an image", None
    if "normalize" in names:
        return "standard deviations of the data set's channels", None
    return "shares of the pixel range", (0.0, 1.0)


def checked_images(images, bounds):
    images = np.asarray(images, "float32")
    if not images.size or not np.isfinite(images).all():
        raise ValueError(f"Give one or more images of finite numbers. Received an array of shape {images.shape}.")
    if bounds is None:
        return images
    if np.ndim(bounds) != 1 or len(bounds) != 2 or not all(map(is_number, bounds)) or not bounds[0] < bounds[1]:
        raise ValueError(f"`bounds` must be None or two numbers, the lower one first. Received: {bounds!r}")
    if images.min() < bounds[0] or images.max() > bounds[1]:
        raise ValueError(f"The images go from {images.min():g} to {images.max():g}, beyond the bounds {tuple(bounds)}.")
    return images


def checked_epsilons(epsilons):
    if np.ndim(epsilons) != 1:
        raise ValueError(f"`epsilons` must be a list of numbers. Received: {epsilons!r}")
    for epsilon in epsilons:
        if not is_number(epsilon, 0):
            raise ValueError(f"Epsilon must be a number, 0 or more. Received: {epsilon!r}")
    return [float(epsilon) for epsilon in epsilons]
