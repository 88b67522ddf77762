"""Overlapping digits made on the fly: MultiMNIST (Sabour et al. 2017) and DiverseMultiMNIST (Tsai et al. 2020)."""

import dataclasses

import numpy as np

from tf_capsules.arguments import is_whole
from tf_capsules.datasets.pipeline import Dataset, Split
from tf_capsules.lazy import tf


def multimnist(data_dir=None, download=False, pairs_per_digit=1000, max_shift=4, pad=4, source="mnist"):
    """MultiMNIST: two digits of different classes, laid over each other.

    Source: Sabour et al. 2017, section 6. Each digit of a split is the base of `pairs_per_digit` images; its partner
    is a digit of another class from the same split. Both are padded with `pad` zeros on every side, each is shifted
    by integers in [-max_shift, max_shift] per axis, and the sum is clipped at 255. Example i has base digit i mod n, so
    the first n show each digit once. Each training epoch draws new partners and shifts; in evaluation they are fixed.

    Differs from the authors' code: partners are drawn with replacement; shifts are drawn for each image, not once for
    the thousand images of a base digit.

    Args:
        data_dir, download: of the single digits, as in `load`.
        pairs_per_digit: images an epoch for each digit; 1000 as published (60 and 10 million images).
        max_shift, pad: in pixels, max_shift at most pad.
        source: the data set of the single digits.

    Returns:
        A Dataset whose targets are dicts: `label` has two ones; `parts` are the base digit and its partner, the
        targets of a reconstruction, and `part_labels` their classes.
    """
    return _overlaid("multimnist", data_dir, download, pairs_per_digit, max_shift, pad, source, single=0.0)


def diverse_multimnist(data_dir=None, download=False, pairs_per_digit=1, max_shift=4, pad=4, source="mnist"):
    """DiverseMultiMNIST: with probability 1/6 one digit, else two digits of different classes.

    Source: Tsai et al. 2020, section 6. Arguments and digits are as in `multimnist`. In an image with one digit, the
    second part is black and its label is -1.

    Differs from the paper, which makes new test images for every evaluation. Here test images stay the same, so that
    networks and epochs are compared on the same images.
    """
    return _overlaid("diverse_multimnist", data_dir, download, pairs_per_digit, max_shift, pad, source, single=1 / 6)


def _overlaid(name, data_dir, download, pairs_per_digit, max_shift, pad, source, single):
    for option, value, low in (("pairs_per_digit", pairs_per_digit, 1), ("max_shift", max_shift, 0), ("pad", pad, 0)):
        if not is_whole(value, low):
            raise ValueError(f"{option} must be a whole number, {low} or more, not {value!r}")
    if max_shift > pad:
        raise ValueError(f"max_shift {max_shift} would push digits over the edge that pad {pad} gives")
    digits = single_digits(source, data_dir, download)
    options = len(digits.class_names), pairs_per_digit, max_shift, pad, single
    train, test = (overlay_split(split.arrays, *options) for split in (digits.train, digits.test))
    return Dataset(name, train, test, digits.class_names, digits.note, multi_label=True)


def single_digits(source, data_dir, download):
    """The data set of that name, if its images are stored and have one label each. A note says if it is not MNIST."""
    from tf_capsules import datasets

    digits = None if datasets.of_texts(source) else datasets.load(source, data_dir, download)
    if digits is None or digits.multi_label or digits.train.example is not None:
        raise ValueError(f"source must have stored images with one label each, not {source!r}")
    if source == "mnist":
        return digits
    return dataclasses.replace(digits, note="; ".join(filter(None, [f"made of {source}", digits.note])))


def overlay_split(arrays, classes, pairs_per_digit, max_shift, pad, single=0.0):
    """A split of overlaid pairs of the digits in `arrays`; with probability `single` an image has one digit."""
    labels = np.asarray(arrays["label"])
    digits, height, width, channels = arrays["image"].shape
    counts = np.bincount(labels, minlength=classes)
    if (counts > 0).sum() < 2:
        raise ValueError("overlaid digits need at least two classes in a split")
    # Sorted by class and read in a circle, the digits of other classes than c are those that follow class c.
    by_class, ends = np.argsort(labels, kind="stable"), np.cumsum(counts)

    def example(tensors, index, draw):
        base = tf.cast(index % digits, tf.int32)
        label = tensors["label"][base]
        others = draw.integers(0, digits - tf.constant(counts, tf.int32)[label] - 1)
        partner = tf.constant(by_class, tf.int32)[(tf.constant(ends, tf.int32)[label] + others) % digits]
        pair = [base, partner]
        shifts = [(draw.integers(-max_shift, max_shift), draw.integers(-max_shift, max_shift)) for _ in pair]
        both = draw.uniform(0.0, 1.0) >= single
        second = tensors["image"][partner] * tf.cast(both, tf.uint8)
        image, parts = overlay((tensors["image"][base], second), shifts, pad)
        part_labels = tf.stack([label, tf.where(both, tensors["label"][partner], -1)])
        hot = tf.reduce_sum(tf.one_hot(part_labels, classes), axis=0)
        return image, {"label": hot, "parts": parts, "part_labels": part_labels}

    shape = (height + 2 * pad, width + 2 * pad, channels)
    return Split(arrays, digits * pairs_per_digit, shape, example)


def overlay(images, shifts, pad):
    """Lays images (H, W, C), uint8, over each other, each padded with `pad` zeros on every side and shifted.

    A shift is (rows down, columns right), each in [-pad, pad]. Returns the sum clipped at 255 (H + 2 pad, W + 2 pad, C)
    and the single images (K, H + 2 pad, W + 2 pad, C), uint8.
    """
    height, width, channels = images[0].shape
    parts = [
        tf.pad(image, [(pad + down, pad - down), (pad + right, pad - right), (0, 0)])
        for image, (down, right) in zip(images, shifts, strict=True)
    ]
    parts = tf.ensure_shape(tf.stack(parts), (len(images), height + 2 * pad, width + 2 * pad, channels))
    total = tf.reduce_sum(tf.cast(parts, tf.int32), axis=0)
    return tf.cast(tf.minimum(total, 255), tf.uint8), parts
