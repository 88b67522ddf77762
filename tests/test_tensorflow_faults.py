"""Faults of TensorFlow that users can meet. A test here is skipped where TensorFlow is right: then it can go."""

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("they are TensorFlow's", allow_module_level=True)

import tensorflow as tf


def relative_error(size, filters=256, strides=2):
    """Of a bfloat16 convolution, against float32, the larger of two calls."""
    random = np.random.default_rng(0)
    images = random.normal(size=(5, *size, 128)).astype("float32")
    kernel = (random.normal(size=(3, 3, 128, filters)) / np.sqrt(9 * 128)).astype("float32")
    expected = tf.nn.conv2d(images, kernel, strides, "VALID").numpy()
    errors = []
    for _ in range(2):
        actual = tf.nn.conv2d(tf.cast(images, "bfloat16"), tf.cast(kernel, "bfloat16"), strides, "VALID")
        errors.append(np.abs(np.float64(actual) - expected).max() / np.abs(expected).max())
    return np.max(errors)  # NaN where one is


def test_a_strided_bfloat16_convolution_to_a_column_is_wrong():
    """On processors with AMX, with many filters: docs/guide.md warns of it, conftest.py keeps tests clear of it."""
    neighbours = {"width 2": ((5, 6),), "row": ((4, 5),), "filters": ((5, 4), 64), "stride 1": ((5, 3), 256, 1)}
    errors = {name: relative_error(*arguments) for name, arguments in neighbours.items()}
    assert np.max(list(errors.values())) < 0.02, errors
    if relative_error((5, 4)) < 0.02:
        pytest.skip("TensorFlow is right here: no AMX, or mended")
