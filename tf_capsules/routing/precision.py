"""Routing computes in at least float32, whatever the dtype policy."""

import keras
from keras import ops

from tf_capsules.argument_types import Tensor
from tf_capsules.lazy import jax


def precise(dtype):
    """float32, or float64 for float64 where it is enabled. Keras's `result_type` knows float64 on TensorFlow alone."""
    if keras.backend.standardize_dtype(dtype) != "float64":
        return "float32"
    return str(jax.dtypes.canonicalize_dtype("float64")) if keras.backend.backend() == "jax" else "float64"


def at_least_float32(x: Tensor):
    """The tensor, cast to float32 unless it is float32 or float64."""
    x = ops.convert_to_tensor(x)
    dtype = precise(x.dtype)
    return x if keras.backend.standardize_dtype(x.dtype) == dtype else ops.cast(x, dtype)
