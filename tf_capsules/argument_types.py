"""Type hints of the arguments that many layers and networks share, and whether a value fits a hint."""

import os
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any

import keras

Tensor = Any  # of any backend, symbolic ones and NumPy arrays too
Size = int | tuple[int, int] | list[int]  # a number for both axes, or (rows, columns)
Shape = Sequence[int]  # (height, width, channels)
# What Keras's getters of these take.
Initializer = str | dict | Callable | None
Regularizer = str | dict | Callable | None
Constraint = str | dict | Callable | None
Dtype = str | keras.DTypePolicy | None
Rate = float | keras.optimizers.schedules.LearningRateSchedule
Weights = str | os.PathLike | None  # of a network: a file, or the name of a shipped set


def is_of(value, hint):
    """Whether a value fits a type hint. A whole number counts as a float; True and False count as no number.

    >>> is_of(3, float | None), is_of(True, int), is_of((8, 8, 1), tuple[int, int, int]), is_of("8", tuple[str, ...])
    (True, False, True, False)
    """
    if hint is Any:
        return True
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return any(is_of(value, part) for part in parts)
    if origin is tuple and isinstance(value, tuple):
        parts = parts[:1] * len(value) if parts[-1] is ... else parts
        return len(parts) == len(value) and all(map(is_of, value, parts))
    if origin in (list, Sequence):
        return isinstance(value, (list, tuple)) and all(is_of(part, parts[0]) for part in value)
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, (int, float) if hint is float else origin or hint)
