"""Preprocessing of one image, written once for NumPy and for tf.data.

A recipe names its steps as plain values, so that they can stand in a configuration file::

    (("crop", 24), ("flip",), ("brightness", 63), ("contrast", 0.2, 1.8), ("standardize",))

================  =========================  ===========================================================================
step              values                       in training; in evaluation nothing, unless the row says so
================  =========================  ===========================================================================
shift             pixels                     moved by integers in [-pixels, pixels] per axis, zeros move in
crop              size                       a random size x size window; in evaluation the central one
pad               pixels                     zeros on every side; the same
pad_crop          pixels, "edge" or "zero"   a random window of the padded image, as large as the image
shift_within                                 moved by whole pixels; all nonzero pixels stay in the image
rotate            degrees                    half of the images turned by a normal random angle, at most that much
narrow            share, below 1             made narrower by up to that share
erase             size                       a random square of size x size set to zero
flip                                         mirrored left to right, probability 1/2
brightness        delta, in units of 1/255   a number in [-delta, delta] added
contrast          lowest, highest factor     distance from the channel's mean multiplied
jitter            amplitude, at most 0.5     brightness, contrast, saturation, hue: by up to that share, see `_jitter`
standardize                                  mean 0 and deviation 1 over the whole image; the same
standardize_each                             mean 0 and deviation 1 in each channel; the same
normalize         means, deviations          minus mean, divided by deviation, one of each for each channel; the same
downscale         factor                     mean over factor x factor blocks; the same
resize            size                       brought to size x size, bilinearly; the same
================  =========================  ===========================================================================

Only the parts of jitter clip their results: brightness and contrast may leave [0, 1].
"""

import functools
import math

import numpy

from tf_capsules.arguments import is_number, is_positive, is_whole
from tf_capsules.datasets import warp


def _shift(image, draw, xp, pixels):
    down, right = draw.integers(-pixels, pixels), draw.integers(-pixels, pixels)
    return shifted(image, down, right, pixels, xp)


def shifted(image, down, right, most, xp=numpy):
    """Moves an image (H, W, C) by whole pixels, at most `most` of them per axis; zeros move in, nothing wraps."""
    height, width, _ = image.shape
    return _window(_pad(image, None, xp, most), most - down, most - right, height, width, xp)


class FixedCrop:
    """Replaces the random numbers: the step "crop" takes the window of this name, one of `FIXED_CROPS`."""

    def __init__(self, name):
        place, _, self.mirrored = name.partition(", ")
        self.place = _PLACES[place]


# Shares of the free rows above and of the free columns to the left.
_PLACES = {"top left": (0, 0), "top right": (0, 1), "bottom left": (1, 0), "bottom right": (1, 1), "centre": (0.5, 0.5)}
FIXED_CROPS = tuple(f"{place}{mirrored}" for mirrored in ("", ", mirrored") for place in _PLACES)


def _crop(image, draw, xp, size):
    free = [side - size for side in image.shape[:2]]
    if not isinstance(draw, FixedCrop):
        return _window(image, *(draw.integers(0, pixels) for pixels in free), size, size, xp)
    corner = (int(share * pixels) for share, pixels in zip(draw.place, free, strict=True))
    image = _window(image, *corner, size, size, xp)
    return image[:, ::-1] if draw.mirrored else image


def _window(image, top, left, height, width, xp):
    # tf.data forgets the size of a window whose corner is a tensor; the reshape states it again.
    return xp.reshape(image[top : top + height, left : left + width], (height, width, image.shape[-1]))


def _pad(image, draw, xp, pixels):
    return xp.pad(image, ((pixels, pixels), (pixels, pixels), (0, 0)), "constant")


def _pad_crop(image, draw, xp, pixels, fill):
    if fill == "zero":
        return _shift(image, draw, xp, pixels)
    for axis, size in enumerate(image.shape[:2]):
        # Indices beyond the edge become those of the edge, as if the edge were repeated.
        index = xp.clip(xp.arange(size, dtype=numpy.int32) + draw.integers(-pixels, pixels), 0, size - 1)
        image = xp.take(image, index, axis=axis)
    return image


def _flip(image, draw, xp):
    return xp.where(draw.uniform(0.0, 1.0) < 0.5, image[:, ::-1], image)


def _brightness(image, draw, xp, delta):
    return image + draw.uniform(-delta, delta) / 255


def _contrast(image, draw, xp, lowest, highest):
    mean = xp.mean(image, axis=(0, 1), keepdims=True)
    return (image - mean) * draw.uniform(lowest, highest) + mean


def _jitter(image, draw, xp, amplitude):
    """Multiplies brightness, contrast, saturation by 1 + r and turns hue by r; each r is in [-amplitude, amplitude]."""
    grey = numpy.array([0.299, 0.587, 0.114], numpy.float32)  # how bright red, green and blue look

    def multiplied(image, about):
        factor = draw.uniform(1 - amplitude, 1 + amplitude)
        return xp.clip(about + factor * (image - about), 0, 1)

    image = multiplied(image, 0.0)
    image = multiplied(image, xp.mean(xp.sum(image * grey, axis=-1)))
    image = multiplied(image, xp.sum(image * grey, axis=-1, keepdims=True))
    return turned_hue(image, draw.uniform(-amplitude, amplitude), xp)


def turned_hue(image, turn, xp=numpy):
    """Turns the hue of an image (H, W, 3) in [0, 1] by a share of the colour circle; 1/3 turns red into green."""
    highest = xp.max(image, axis=-1, keepdims=True)
    chroma = highest - xp.min(image, axis=-1, keepdims=True)
    red, green, blue = xp.split(image, 3, axis=-1)
    # The place on the circle in sixths: red at 0, green at 2, blue at 4. The place of a grey does not matter.
    safe = xp.where(chroma > 0, chroma, xp.ones_like(chroma))
    place = xp.where(highest == green, (blue - red) / safe + 2, (red - green) / safe + 4)
    place = xp.where(highest == red, (green - blue) / safe, place)
    sixths = xp.mod(xp.asarray([5.0, 3.0, 1.0], dtype=image.dtype) + place + 6 * turn, 6)
    return highest - chroma * xp.clip(xp.minimum(sixths, 4 - sixths), 0, 1)


def _standardize(image, draw, xp):
    # The floor under the deviation is TensorFlow's 1 / sqrt(number of values), which is meant for values 0 .. 255.
    floor = xp.asarray(1 / (255 * math.sqrt(math.prod(image.shape))), dtype=image.dtype)
    return (image - xp.mean(image)) / xp.maximum(xp.std(image), floor)


def _standardize_each(image, draw, xp):
    # The channels of a stereo pair are two images.
    return xp.concatenate([_standardize(part, draw, xp) for part in xp.split(image, image.shape[-1], axis=-1)], axis=-1)


def _normalize(image, draw, xp, means, deviations):
    return (image - xp.asarray(means, dtype=image.dtype)) / xp.asarray(deviations, dtype=image.dtype)


def _downscale(image, draw, xp, factor):
    height, width, channels = image.shape
    blocks = xp.reshape(image, (height // factor, factor, width // factor, factor, channels))
    return xp.mean(blocks, axis=(1, 3))


def _resize(image, draw, xp, size):
    rows, columns = (xp.asarray(_bilinear(count, size), dtype=image.dtype) for count in image.shape[:2])
    return xp.einsum("bj,ajc->abc", columns, xp.einsum("ai,ijc->ajc", rows, image))


def _bilinear(count, size):
    """The weights (size, count) that resize a row of `count` pixels to `size`; pixel i has its centre at i + 0.5."""
    at = numpy.clip((numpy.arange(size) + 0.5) * count / size - 0.5, 0, count - 1)
    return numpy.maximum(1 - numpy.abs(at[:, None] - numpy.arange(count)), 0)


def _all(test, values):
    return isinstance(values, (list, tuple)) and all(map(test, values))


_count = functools.partial(is_whole, low=0)
_size = functools.partial(is_whole, low=1)
_amount = functools.partial(is_number, low=0)
_fill = ("edge", "zero").__contains__
_means, _deviations = functools.partial(_all, is_number), functools.partial(_all, is_positive)

# name: (function, what each value must satisfy, the same in words)
_STEPS = {
    "shift": (_shift, [_count], "a whole number of pixels, 0 or more"),
    "crop": (_crop, [_size], "a whole number of pixels, 1 or more"),
    "pad": (_pad, [_count], "a whole number of pixels, 0 or more"),
    "pad_crop": (_pad_crop, [_count, _fill], 'a whole number of pixels, 0 or more, and "edge" or "zero"'),
    "shift_within": (warp.shift_within, [], "no value"),
    "rotate": (warp.rotate, [_amount], "a number of degrees, 0 or more"),
    "narrow": (warp.narrow, [lambda share: _amount(share) and share < 1], "a number from 0 to below 1"),
    "erase": (warp.erase, [_size], "a whole number of pixels, 1 or more"),
    "flip": (_flip, [], "no value"),
    "brightness": (_brightness, [_amount], "a number, 0 or more"),
    "contrast": (_contrast, [_amount, _amount], "two numbers, 0 <= lowest <= highest"),
    "jitter": (_jitter, [functools.partial(is_number, low=0, high=0.5)], "a number from 0 to 0.5"),
    "standardize": (_standardize, [], "no value"),
    "standardize_each": (_standardize_each, [], "no value"),
    "normalize": (_normalize, [_means, _deviations], "a mean and a deviation above 0 for each channel, as two lists"),
    "downscale": (_downscale, [_size], "a whole number, 1 or more"),
    "resize": (_resize, [_size], "a whole number of pixels, 1 or more"),
}

# In evaluation these do nothing.
_RANDOM = set("shift pad_crop shift_within rotate narrow erase flip brightness contrast jitter".split())


def in_evaluation(steps):
    """The steps that do something in evaluation.

    >>> in_evaluation((("shift", 2), ("crop", 24)))
    (('crop', 24),)
    """
    return tuple(step for step in check(steps) if step[0] not in _RANDOM)


def check(steps):
    """Returns `steps` as a tuple of tuples, or raises a ValueError that names the step that is wrong."""
    if not isinstance(steps, (list, tuple)):
        raise ValueError(f'preprocess steps are a sequence such as (("shift", 2), ("flip",)), not {steps!r}')
    for step in steps:
        if not isinstance(step, (list, tuple)) or not step or not isinstance(step[0], str):
            raise ValueError(f'a preprocess step is a name and its values, such as ("shift", 2), not {step!r}')
        name, *values = step
        if name not in _STEPS:
            raise ValueError(f"unknown preprocess step {name!r}; there are {', '.join(_STEPS)}")
        _, tests, wanted = _STEPS[name]
        good = len(values) == len(tests) and all(test(value) for test, value in zip(tests, values, strict=True))
        if not good or (name == "contrast" and values[0] > values[1]):
            raise ValueError(f"preprocess step {name!r} takes {wanted}, not {tuple(values)!r}")
    return tuple(tuple(step) for step in steps)


def output_shape(steps, image_shape):
    """The shape (H, W, C) that images of `image_shape` have after `steps`; a ValueError where a step cannot be done.

    >>> output_shape((("downscale", 2), ("crop", 32)), (96, 96, 2))
    (32, 32, 2)
    """
    height, width, channels = image_shape
    for name, *values in check(steps):
        if name in ("crop", "erase") and values[0] > min(height, width):
            has = f"the image of {height}x{width} pixels; for a folder of images give a larger --image-size"
            raise ValueError(f"preprocess step {name!r} {values[0]} is larger than {has}")
        if name == "pad":
            height, width = height + 2 * values[0], width + 2 * values[0]
        elif name in ("crop", "resize"):
            height = width = values[0]
        elif name == "normalize" and not len(values[0]) == len(values[1]) == channels:
            raise ValueError(f"preprocess step 'normalize' {values}: the image has {channels} channels")
        elif name == "jitter" and channels != 3:
            raise ValueError(f"preprocess step 'jitter' {values[0]} is for colours: the image has {channels} channels")
        elif name == "downscale":
            if height % values[0] or width % values[0]:
                raise ValueError(f"preprocess step 'downscale' {values[0]} does not divide {height}x{width} pixels")
            height, width = height // values[0], width // values[0]
    return height, width, channels


def apply(steps, image, draw=None, xp=numpy):
    """Applies `steps` in their order to one image.

    Args:
        steps: as in the table above, for instance `(("shift", 2),)`.
        image: (H, W, C) float32 in [0, 1], of static shape.
        draw: has `integers(low, high)` with both ends and `uniform(low, high)`; in evaluation None, or a `FixedCrop`.
        xp: numpy, or tensorflow.experimental.numpy for tensors.

    Returns:
        The image (H', W', C) as float32; `output_shape` tells H' and W'.

    Raises:
        ValueError: an unknown step, wrong values, or an image too small for them.

    >>> apply((("pad", 1),), numpy.ones((2, 3, 1), "float32")).shape
    (4, 5, 1)
    """
    output_shape(steps, image.shape)
    draw = FixedCrop("centre") if draw is None else draw
    for name, *values in steps:
        if name not in _RANDOM or not isinstance(draw, FixedCrop):
            image = _STEPS[name][0](image, draw, xp, *values)
    return image
