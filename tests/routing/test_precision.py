import keras
import numpy as np
import pytest
from backend import BACKEND, float64

from tf_capsules.layers import DynamicRouting
from tf_capsules.routing.precision import at_least_float32, precise


@pytest.mark.parametrize("dtype", ["bool", "int32", "float16", "bfloat16", "float32"])
def test_what_is_less_precise_becomes_float32(dtype):
    assert precise(dtype) == "float32"
    assert keras.backend.standardize_dtype(at_least_float32(keras.ops.ones(3, dtype)).dtype) == "float32"


def test_float64_stays_where_it_is_enabled():
    with float64():
        assert precise("float64") == "float64"
        layer = DynamicRouting(3, 2, dtype="float64")
        layer.build((2, 4, 5))
        assert layer.kernel.dtype == "float64"
        third = at_least_float32(np.float64(1 / 3))
        assert float(third) == 1 / 3
    assert precise("float64") == ("float32" if BACKEND == "jax" else "float64")
