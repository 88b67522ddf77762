"""Checks of numbers, with errors that name what was received."""

import math
import numbers
import operator

import numpy as np

FLOAT32 = np.finfo(np.float32)


def is_whole(value, low=-math.inf, high=math.inf):
    """Whether the value is a whole number from `low` to `high`, of Python or of NumPy; not True or False."""
    try:
        return not isinstance(value, bool) and low <= operator.index(value) <= high
    except TypeError:
        return False


def positive_int(name, value):
    """The value as an int, if it is a whole number of at least 1."""
    if not is_whole(value, 1):
        raise ValueError(f"`{name}` must be a whole number of at least 1. Received: {value!r}")
    return operator.index(value)


def is_number(value, low=-math.inf, high=math.inf):
    """Whether the value is a finite real number from `low` to `high`."""
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return real and abs(value) < math.inf and low <= value <= high


def is_positive(value):
    """Whether the value is a finite real number above 0."""
    return is_number(value, 0) and value > 0


def positive_number(name, value, form="above 0"):
    """The value, if it is a finite real number above 0, and not too small or large for float32. `form`: in words."""
    if not is_positive(value):
        raise ValueError(f"`{name}` must be {form}. Received: {value!r}")
    if not float(FLOAT32.tiny) <= value <= float(FLOAT32.max):
        raise ValueError(f"`{name}` must be from {FLOAT32.tiny:.1e} to {FLOAT32.max:.1e}. Received: {value!r}")
    return value


def decay_rate(name, value):
    """The value, if it can be the decay of a moving average: a number in [0, 1)."""
    if not is_number(value, 0) or value >= 1:
        raise ValueError(f"`{name}` must be a number in [0, 1). Received: {value!r}")
    return value


def one_of(name, value, choices):
    """The value, if it is one of the choices."""
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {', '.join(repr(c) for c in choices)}. Received: {value!r}")
    return value
