import keras
import numpy as np
import pytest
from backend import array

from tf_capsules.optimizers import CoupledAdam, CoupledRMSprop, CoupledSGD


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_decay_is_a_part_of_the_gradient(momentum):
    random = np.random.default_rng(0)
    start, gradients = random.normal(size=5).astype("float32"), random.normal(size=(4, 5)).astype("float32")
    weight = keras.Variable(start)
    optimizer = CoupledSGD(0.1, momentum=momentum, decay=0.2)
    expected, velocity = start.astype("float64"), 0
    for gradient in gradients:
        optimizer.apply([keras.ops.convert_to_tensor(gradient)], [weight])
        velocity = momentum * velocity + gradient + 0.2 * expected
        expected = expected - 0.1 * velocity
    np.testing.assert_allclose(array(weight.value), expected, rtol=1e-5)


def test_the_moments_of_adam_see_the_decay():
    random = np.random.default_rng(1)
    start, gradients = random.normal(size=5).astype("float32"), random.normal(size=(4, 5)).astype("float32")
    weight = keras.Variable(start)
    optimizer = CoupledAdam(0.1, decay=0.2)
    expected, mean, square = start.astype("float64"), 0, 0
    for step, gradient in enumerate(gradients, start=1):
        optimizer.apply([keras.ops.convert_to_tensor(gradient)], [weight])
        gradient = gradient + 0.2 * expected
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
        expected = expected - 0.1 * (mean / (1 - 0.9**step)) / np.sqrt(square / (1 - 0.999**step))
    np.testing.assert_allclose(array(weight.value), expected, atol=1e-5)


def test_the_moments_of_rmsprop_see_the_decay():
    random = np.random.default_rng(2)
    start, gradients = random.normal(size=5).astype("float32"), random.normal(size=(4, 5)).astype("float32")
    weight = keras.Variable(start)
    optimizer = CoupledRMSprop(0.1, decay=0.2)
    expected, mean, square, velocity = start.astype("float64"), 0, 0, 0
    for gradient in gradients:
        optimizer.apply([keras.ops.convert_to_tensor(gradient)], [weight])
        gradient = gradient + 0.2 * expected
        mean, square = 0.9 * mean + 0.1 * gradient, 0.9 * square + 0.1 * gradient**2
        velocity = 0.9 * velocity + 0.1 * gradient / np.sqrt(square - mean**2 + 1e-7)
        expected = expected - velocity
    np.testing.assert_allclose(array(weight.value), expected, atol=1e-4)


@pytest.mark.parametrize(
    "optimizer",
    [
        CoupledSGD(0.3, momentum=0.5, decay=0.01, nesterov=True),
        CoupledAdam(0.3, beta_1=0.5, decay=0.01),
        CoupledRMSprop(0.3, rho=0.5, decay=0.01),
    ],
)
def test_they_survive_a_config_round_trip(optimizer):
    other = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(optimizer))
    assert type(other) is type(optimizer) and other.get_config() == optimizer.get_config()


@pytest.mark.parametrize("of", [CoupledAdam, CoupledRMSprop, CoupledSGD])
def test_a_negative_decay_is_named(of):
    with pytest.raises(ValueError, match="`decay`.*Received: -1"):
        of(decay=-1)
