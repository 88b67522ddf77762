"""Routing computes in at least float32, whatever the dtype policy."""

import keras
from keras import ops

from tf_capsules.argument_types import Tensor


def precise(dtype):
    """float64 for float64, else float32. (Keras's `result_type` knows no float64 on JAX.)"""
    return "float64" if keras.backend.standardize_dtype(dtype) == "float64" else "float32"


def at_least_float32(x: Tensor):
    """The tensor, cast to float32 unless it is float32 or float64."""
    x = ops.convert_to_tensor(x)
    dtype = precise(x.dtype)
    return x if keras.backend.standardize_dtype(x.dtype) == dtype else ops.cast(x, dtype)
