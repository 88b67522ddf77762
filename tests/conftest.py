import functools
import gc
import os
import sys

import pytest

# Tests run their programs once, so optimizing a program takes longer than running it. AS_USERS_COMPILE=1 optimizes it
# nevertheless. XLA reads its flags when it first compiles, under TensorFlow and JAX alike.
QUICK = not os.environ.get("AS_USERS_COMPILE")
if QUICK:
    flags = "backend_optimization_level=0", "llvm_disable_expensive_passes=true", "cpu_use_fusion_emitters=false"
    os.environ.setdefault("XLA_FLAGS", " ".join(f"--xla_{flag}" for flag in flags))

# Imports and tracing make many objects, but little garbage: less frequent collection saves a fifth of the time.
gc.set_threshold(100_000, 20, 20)


def pytest_collection_finish():
    """Runs after all imports. Only processes that run tests import Keras, not the one that distributes the tests."""
    gc.freeze()
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow:
        # To seed TensorFlow's own random operations throws away all kernels: it is done where the seed changes. Of
        # them only `fit` uses one, which shuffles in a graph that starts from the seed.
        tensorflow.random.set_seed = functools.lru_cache(maxsize=1)(tensorflow.random.set_seed)
    if QUICK and tensorflow:
        tensorflow.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})


@pytest.fixture(autouse=True)
def no_convolution_to_a_column(monkeypatch):
    """No test makes a bfloat16 convolution that TensorFlow can get wrong: see test_tensorflow_faults.py."""
    import keras

    if keras.backend.backend() != "tensorflow":
        return
    import tensorflow as tf

    convolution = tf.nn.convolution

    def checked(*args, **kwargs):
        result = convolution(*args, **kwargs)
        if result.dtype == tf.bfloat16 and result.shape.rank == 4:
            _, height, width, _ = result.shape
            assert height == 1 or width != 1, f"a bfloat16 convolution to the shape {result.shape}"
        return result

    monkeypatch.setattr(tf.nn, "convolution", checked)


@pytest.fixture(autouse=True)
def fixed_seed():
    """Every test starts from the same random state of Python, NumPy and Keras and leaves the dtype policy as it was."""
    import keras

    policy = keras.config.dtype_policy()
    keras.utils.set_random_seed(0)
    yield
    keras.config.set_dtype_policy(policy)
