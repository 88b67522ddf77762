import warnings

import keras
import numpy as np
import pytest
from backend import array
from models.test_feedback import WEIGHTS

from tf_capsules.losses import PairedKLDivergence, SinkhornDivergence
from tf_capsules.models import FeedbackAgreement

RANDOM = np.random.default_rng(0)


# Links of the paper's networks: size of the higher and lower map, dim of both, parameters of generator and critic.
UNITS = [
    ((32, 32), (32, 32), 2, 2, 1_344, 9_411),
    ((32, 32), (32, 32), 2, 1, 672, 2_403),
    ((16, 16), (16, 16), 4, 4, 4_992, 37_251),
    ((16, 16), (32, 32), 4, 2, 2_496, 9_411),
    ((8, 8), (8, 8), 8, 8, 19_200, 148_227),
    ((8, 8), (16, 16), 8, 4, 9_600, 37_251),
    ((4, 4), (4, 4), 16, 16, 75_264, 591_363),
    ((4, 4), (8, 8), 16, 8, 37_632, 148_227),
]


@pytest.mark.parametrize("smaller, size, higher, lower, generator, critic", UNITS)
def test_sizes_of_the_units(smaller, size, higher, lower, generator, critic):
    unit = FeedbackAgreement()
    unit.build((None, *size, 32, lower), (None, *smaller, 32 * higher))
    assert parameters(unit.critic) == critic and parameters(unit) == generator + critic
    released, side = FeedbackAgreement(critic_strides=(2, 2)), size[0] // 4
    with warnings.catch_warnings() if side > 1 else pytest.warns(UserWarning, match="leave a single number"):
        released.build((None, *size, 32 * lower), (None, *smaller, 32, higher))
    assert released.critic.output_shape == (None, side, side, 1) and parameters(released) == parameters(unit)
    assert unit.critic.output_shape == (None, *(2 * [max(2, side)]), 1)


@pytest.mark.parametrize(
    "size, channels, higher, expected",
    [(32, 32, 64, 20_931), (32, 64, 128, 83_331), (16, 128, 256, 332_547), (8, 256, 512, 1_328_643)],
)
def test_sizes_of_the_units_of_a_residual_network(size, channels, higher, expected):
    unit = FeedbackAgreement(groups=1, squash=False)
    smaller = size if channels == 32 else size // 2
    unit.build((None, size, size, channels), (None, smaller, smaller, higher))
    assert parameters(unit) == expected


@pytest.mark.parametrize("smaller, size", [((7, 5), (7, 5)), ((4, 3), (7, 6)), ((4, 3), (8, 5)), ((2, 5), (4, 5))])
@pytest.mark.parametrize("groups", [1, 2])
def test_the_generator_is_a_transposed_convolution(smaller, size, groups):
    unit = FeedbackAgreement(groups=groups, squash=False)
    unit.build((None, *size, 6), (None, *smaller, 4))
    x = RANDOM.normal(size=(3, *smaller, 4)).astype("float32")
    kernel, bias = array(unit.kernel), RANDOM.normal(size=6).astype("float32")
    unit.bias.assign(bias)
    expected = np.zeros((3, *size, 6)) + bias
    for row, column, p, q in np.ndindex(*smaller, 3, 3):
        stride = [1 if few == many else 2 for few, many in zip(smaller, size, strict=True)]
        to = stride[0] * row + p - 1, stride[1] * column + q - 1
        if 0 <= to[0] < size[0] and 0 <= to[1] < size[1]:
            for group in range(groups):
                ins, outs = (slice(n // groups * group, n // groups * (group + 1)) for n in (4, 6))
                expected[:, *to, outs] += x[:, row, column, ins] @ kernel[p, q, group]
    gamma, beta, mean, variance = RANDOM.uniform(0.5, 1.5, (4, 6)).astype("float32")
    unit.normalization.set_weights([gamma, beta, mean, variance])
    expected = np.maximum(gamma * (expected - mean) / np.sqrt(variance + 1e-5) + beta, 0)
    np.testing.assert_allclose(array(unit.generate(x)), expected, atol=1e-5)
    unit.squash = True
    capsules = expected.reshape(*expected.shape[:3], groups, -1)
    norms = np.sqrt(np.square(capsules).sum(-1, keepdims=True) + 1e-12)
    squashed = (capsules * norms / (1 + norms**2)).reshape(expected.shape)
    np.testing.assert_allclose(array(unit.generate(x)), squashed, atol=1e-5)


@pytest.mark.parametrize("side", [1, 2, 3, 4, 5])
def test_maps_of_any_small_size_are_compared(side):
    lower, higher = (RANDOM.normal(size=(6, side, side, channels)).astype("float32") for channels in (4, 6))
    unit = FeedbackAgreement(groups=2, critic=side > 1)
    assert float(unit(lower, higher, training=True)) > 1e-4


@pytest.mark.parametrize("size, smaller", [((7, 5), (4, 3)), ((4, 3), (4, 3))])
def test_divergence_of_what_the_critic_sees(size, smaller):
    lower, higher = (RANDOM.normal(size=(5, *s, 2, 4)).astype("float32") for s in (size, smaller))
    for divergence in (SinkhornDivergence("l2"), PairedKLDivergence()):
        unit = FeedbackAgreement(groups=2, divergence=divergence)
        value = unit(lower, higher, training=True)
        generated = array(unit.generate(higher, training=True))
        features = [critic_by_hand(unit.critic.layers, x) for x in (lower.reshape(5, *size, 8), generated)]
        np.testing.assert_allclose(array(value), array(divergence(*features)), rtol=2e-4, atol=1e-5)
        assert features[0].shape == (5, 4)
        bare = FeedbackAgreement(groups=2, critic=False, divergence=divergence)
        value = bare(lower, higher, WEIGHTS[:5], training=True)
        generated = array(bare.generate(higher, training=True)).reshape(5, -1)
        expected = array(divergence(lower.reshape(5, -1), generated, WEIGHTS[:5]))
        np.testing.assert_allclose(array(value), expected, rtol=1e-4)
        assert parameters(bare) == parameters(unit) - parameters(unit.critic)


def critic_by_hand(layers, x):
    """The critic's features in NumPy; batch normalization uses the batch's statistics."""
    for layer in layers:
        if isinstance(layer, keras.layers.Conv2D):
            kernel, bias = map(array, layer.weights)
            rows, columns = ((n - 1) // s + 1 for n, s in zip(x.shape[1:3], layer.strides, strict=True))
            padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
            x = np.zeros((len(x), rows, columns, len(bias))) + bias
            for row, column in np.ndindex(rows, columns):
                top, left = layer.strides[0] * row, layer.strides[1] * column
                window = padded[:, top : top + 3, left : left + 3]
                x[:, row, column] += np.einsum("bpqi,pqio->bo", window, kernel)
        if isinstance(layer, keras.layers.BatchNormalization):
            x = np.maximum((x - x.mean((0, 1, 2))) / np.sqrt(x.var((0, 1, 2)) + 1e-5), 0)
    return x.reshape(len(x), -1).astype("float32")


def parameters(layer):
    return sum(int(np.prod(weight.shape)) for weight in layer.trainable_weights)


def test_a_frozen_unit_is_frozen_whole():
    unit = FeedbackAgreement(groups=1, trainable=False)
    unit.build((None, 4, 4, 3), (None, 4, 4, 2))
    assert not unit.trainable_weights and not unit.critic.trainable and not unit.normalization.trainable
