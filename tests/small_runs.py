"""Recipes and data that are small enough to train in a test."""

import pathlib

import keras
import numpy as np
import pytest

from tf_capsules import recipes
from tf_capsules.losses import SpreadLoss
from tf_capsules.optimizers import RAdam
from tf_capsules.runs import Settings

DIGITS = recipes.get("sabour2017-digits")
TINY = DIGITS.replace(
    model_options=dict(filters=6, types=2, pose=3, dim=4, decoder_units=(7,), iterations=1),
    epochs=2,
    batch_size=50,
    decays=None,
    decay_steps=40,
    figures=(),
)
RECTIFIED = TINY.replace(optimizer=RAdam, decay_steps=None, warmup=0.25, momentum_cycle=True)
SPREAD = TINY.replace(loss=SpreadLoss, margin_schedule="sigmoid")
SHORT = Settings(train_limit=120, test_limit=70)
REPOSITORY = pathlib.Path(__file__).parents[1]
needs_tensorflow = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="exports through TensorFlow")


def plain_network(image_shape, classes):
    layers = [keras.Input(image_shape), keras.layers.Flatten(), keras.layers.Dense(classes, "softmax")]
    return keras.Sequential(layers)


def write_arrays(path, classes=4, shape=(10, 12, 2)):
    """Images of one bright row, in the row of its class."""
    y = np.random.default_rng(0).permutation(90) % classes
    x = np.zeros((90, *shape), np.uint8)
    x[np.arange(90), y % shape[0], 3] = 255
    np.savez(path, x_train=x[:60], y_train=y[:60], x_test=x[60:], y_test=y[60:])
    return x, y
