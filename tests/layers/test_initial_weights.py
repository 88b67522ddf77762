"""The initial weights that docstrings promise, where no other test tells their size."""

import numpy as np
import pytest
from backend import array

from tf_capsules.layers import CapConv, CapFC, DynamicRouting, SequenceCapsules


def built(layer, *shape):
    layer.build((None, *shape))
    return layer


NORMAL = {
    "dynamic routing's kernel": (lambda: built(DynamicRouting(10, 16), 50, 8).kernel, 0.088),  # 0.1, cut off at 0.2
    "bias of a CapConv": (lambda: built(CapConv(64), 6, 6, 32, 8).master.bias, 1.0),
    "projection of a token": (lambda: built(SequenceCapsules(64), None, 3, 200).dense.kernel, 0.1),  # sqrt(2 / 200)
}
UNIFORM = {
    "kernel of a CapFC": (lambda: built(CapFC(10), 25, 8).kernel, -0.2, 0.2),
    "random initial logits": (lambda: random_logits(DynamicRouting(10, 16, initial_logits="random")), 0, 1),
}


def random_logits(layer):
    return next(weight for weight in built(layer, 50, 8).weights if "logits" in weight.name)


@pytest.mark.parametrize("name", NORMAL)
def test_spread_of_normal_weights(name):
    make, deviation = NORMAL[name]
    values = array(make())
    np.testing.assert_allclose([values.mean() / deviation, values.std() / deviation], [0, 1], atol=0.1)


@pytest.mark.parametrize("name", UNIFORM)
def test_bounds_of_uniform_weights(name):
    make, low, high = UNIFORM[name]
    values = array(make())
    assert low <= values.min() < low + 0.02 and high - 0.02 < values.max() <= high


def test_moving_means_of_a_cap_conv_take_a_tenth_of_each_batch():
    layer = built(CapConv(2), 3, 4, 5, 2)
    poses = np.random.default_rng(0).normal(3, 1, size=(2, 3, 4, 5, 2)).astype("float32")
    means = next(weight for weight in layer.weights if "moving_mean" in weight.path)
    layer(poses, training=True)
    once = array(means).copy()
    layer(poses, training=True)
    assert np.abs(once).min() > 0
    np.testing.assert_allclose(array(means), once * 1.9, rtol=1e-4)
