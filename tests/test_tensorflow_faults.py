"""Faults of TensorFlow that users can meet. Tests skip where TensorFlow is right; then they can go."""

import subprocess
import sys

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("they are TensorFlow's", allow_module_level=True)

import tensorflow as tf


def relative_error(size, filters=256, strides=2):
    """The error of a bfloat16 convolution relative to float32, the larger one of two calls."""
    random = np.random.default_rng(0)
    images = random.normal(size=(5, *size, 128)).astype("float32")
    kernel = (random.normal(size=(3, 3, 128, filters)) / np.sqrt(9 * 128)).astype("float32")
    expected = tf.nn.conv2d(images, kernel, strides, "VALID").numpy()
    errors = []
    for _ in range(2):
        actual = tf.nn.conv2d(tf.cast(images, "bfloat16"), tf.cast(kernel, "bfloat16"), strides, "VALID")
        errors.append(np.abs(np.float64(actual) - expected).max() / np.abs(expected).max())
    return np.max(errors)  # NaN if one is NaN


def test_a_strided_bfloat16_convolution_to_a_column_is_wrong():
    """On processors with AMX, with many filters: docs/guide.md warns of it, conftest.py keeps tests clear of it."""
    neighbours = {"width 2": ((5, 6),), "row": ((4, 5),), "filters": ((5, 4), 64), "stride 1": ((5, 3), 256, 1)}
    errors = {name: relative_error(*arguments) for name, arguments in neighbours.items()}
    assert np.max(list(errors.values())) < 0.02, errors
    if relative_error((5, 4)) < 0.02:
        pytest.skip("TensorFlow is right here: no AMX, or mended")


PRODUCTS = """
import sys, numpy as np, tensorflow as tf
random = np.random.default_rng(0)
for name in sys.argv[1:]:
    dtype, *shape = name.split("x")
    shape = tuple(map(int, shape))
    values, kernel = (random.normal(size=size).astype("float32") for size in (shape, (shape[-1], 6)))
    expected = values @ kernel
    for _ in range(8):
        actual = np.float64(tf.matmul(tf.cast(values, dtype), tf.cast(kernel, dtype)))
        np.testing.assert_allclose(actual, expected, atol=0.02 * np.abs(expected).max())
    print(name, flush=True)
"""


@pytest.mark.long
def test_a_product_of_four_axes_of_which_the_second_is_1_is_wrong():
    """bfloat16 on processors with AMX: docs/guide.md warns of it, and SequenceCapsules multiplies three axes.

    float32 everywhere: it crashes, or gives noise. `SharedVotes` spreads its factors over the batch first.
    """
    near = ["bfloat16x2x3x8", "float32x2x15x6", "float32x2x3x15x6"]
    faulty = ["float32x2x1x15x6", "bfloat16x2x1x3x8"]
    # A separate process ends at the first wrong product, which overwrites foreign memory: bfloat16 is tried once
    # float32 is right.
    done = subprocess.run([sys.executable, "-c", PRODUCTS, *near, *faulty], capture_output=True, text=True)
    right = done.stdout.split()
    assert right[:3] == near
    if right == near + faulty:
        pytest.skip("TensorFlow is right here")
