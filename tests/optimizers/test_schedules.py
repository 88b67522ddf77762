import keras
import numpy as np
from backend import array
from oracle import CASES

from tf_capsules.optimizers import FlooredExponentialDecay


def test_oracle():
    schedule = FlooredExponentialDecay()
    for step, rate in CASES["F_learning_rate"]["rows"]:
        np.testing.assert_allclose(array(schedule(int(step))), rate, rtol=2e-5, atol=0)


def test_arguments_and_config_round_trip():
    schedule = FlooredExponentialDecay(0.5, decay_steps=10, decay_rate=0.1, floor=0.01)
    other = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(schedule))
    assert other.get_config() == schedule.get_config()
    for step, rate in [(0, 0.5), (5, 0.5 * 0.1**0.5), (10, 0.05), (1000, 0.01)]:
        np.testing.assert_allclose(array(other(step)), rate, rtol=1e-5)


def test_an_optimizer_follows_it():
    weight = keras.Variable([1.0])
    optimizer = keras.optimizers.SGD(FlooredExponentialDecay(0.5, decay_steps=1, decay_rate=0.5, floor=0.1))
    for _ in range(4):
        optimizer.apply([keras.ops.ones(1)], [weight])
    np.testing.assert_allclose(array(weight.value), [1 - 0.5 - 0.25 - 0.125 - 0.1], rtol=1e-6)
