"""Type hints of the arguments that many layers and networks share."""

import os
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
