"""Routing computes in at least float32, whatever the dtype policy."""

import keras
from keras import ops

from tf_capsules.argument_types import Tensor


def at_least_float32(x: Tensor):
    """The tensor, cast to float32 unless it is float32 or float64."""
    x = ops.convert_to_tensor(x)
    return x if keras.backend.standardize_dtype(x.dtype) in ("float32", "float64") else ops.cast(x, "float32")
