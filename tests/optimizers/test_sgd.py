import keras
import numpy as np
import pytest
from backend import array

from tf_capsules.optimizers import CoupledSGD


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


def test_it_survives_a_config_round_trip():
    optimizer = CoupledSGD(0.3, momentum=0.5, decay=0.01, nesterov=True)
    other = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(optimizer))
    assert type(other) is CoupledSGD and other.get_config() == optimizer.get_config()


def test_a_negative_decay_is_named():
    with pytest.raises(ValueError, match="`decay`.*Received: -1"):
        CoupledSGD(decay=-1)
