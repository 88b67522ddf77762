"""Preprocessing steps that move, turn or cover parts of an image, for NumPy and for tf.data (see `augment`)."""

import math

import numpy


def rotate(image, draw, xp, degrees):
    """Turns half of all images by a normal random angle: deviation `degrees / 3`, clipped to [-degrees, degrees]."""
    # Box-Muller transform. 0.33 is the released code's number for a third.
    normal = xp.sqrt(-2 * xp.log(draw.uniform(1e-7, 1.0))) * xp.cos(2 * math.pi * draw.uniform(0.0, 1.0))
    angle = xp.clip(0.33 * normal, -1.0, 1.0) * (degrees * math.pi / 180)
    angle = xp.where(draw.uniform(0.0, 1.0) < 0.5, angle, xp.zeros_like(angle))
    return turned(image, angle, xp)


def turned(image, angle, xp=numpy):
    """An image (H, W, C) turned about its middle by an angle in radians, counter-clockwise; zeros move in."""
    rows, columns = _from_the_middle(image, xp)
    cos, sin = xp.cos(angle), xp.sin(angle)
    return _sampled(image, cos * rows + sin * columns, cos * columns - sin * rows, xp)


def narrow(image, draw, xp, share):
    """Makes an image narrower by up to `share` of its width, about its middle; zeros move in at the sides."""
    rows, columns = _from_the_middle(image, xp)
    return _sampled(image, rows, columns / draw.uniform(1 - share, 1.0), xp)


def shift_within(image, draw, xp):
    """Shifts an image by whole pixels so that all nonzero pixels stay in it."""
    moves = []
    for others in ((1, 2), (0, 2)):
        filled = xp.any(image != 0, axis=others)
        moves.append(draw.integers(-_first(filled, xp), _first(filled[::-1], xp)))
    return xp.roll(image, tuple(moves), (0, 1))


def erase(image, draw, xp, size):
    """Sets a square of size x size at a random place to zero."""
    height, width, _ = image.shape
    top, left = draw.integers(0, height - size), draw.integers(0, width - size)
    rows, columns = numpy.arange(height)[:, None, None], numpy.arange(width)[None, :, None]
    covered = (rows >= top) & (rows < top + size) & (columns >= left) & (columns < left + size)
    return xp.where(covered, xp.zeros_like(image), image)


def _first(filled, xp):
    """The place of the first true value; 0 where there is none."""
    return xp.asarray(xp.argmax(xp.asarray(filled, dtype=numpy.int32)), dtype=numpy.int32)


def _from_the_middle(image, xp):
    """Rows (H, 1) and columns (1, W) of the pixels, from the middle of the image."""
    rows, columns = (numpy.float32(numpy.arange(size) - (size - 1) / 2) for size in image.shape[:2])
    return xp.asarray(rows[:, None]), xp.asarray(columns[None])


def _sampled(image, rows, columns, xp):
    """Samples an image bilinearly at rows and columns from its middle, which are broadcast; beyond its rim it is 0."""
    height, width, channels = image.shape
    above, row_shares = _neighbours(rows, height, xp)
    left, column_shares = _neighbours(columns, width, xp)
    places = above[:, None] * width + left  # (2, 2, H, W)
    pixels = xp.take(xp.reshape(image, (height * width, channels)), xp.asarray(places, dtype=numpy.int32), axis=0)
    shares = row_shares[:, None] * column_shares
    return xp.asarray(xp.sum(shares[..., None] * pixels, axis=(0, 1)), dtype=numpy.float32)


def _neighbours(places, size, xp):
    """The two pixels about each place along an axis of `size` pixels, and their shares: arrays (2, ...)."""
    places = places + (size - 1) / 2
    pixels = xp.floor(places) + numpy.float32([[[0]], [[1]]])
    inside = (pixels >= 0) & (pixels < size)
    return xp.clip(pixels, 0, size - 1), xp.where(inside, 1 - xp.abs(places - pixels), xp.zeros_like(pixels))
