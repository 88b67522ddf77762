import keras
import numpy as np
import pytest
from backend import array
from keras import ops
from oracle import CASES, HEINSEN

from tf_capsules.optimizers import FlooredExponentialDecay, RAdam, one_cycle


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


def test_no_steps_are_refused():
    with pytest.raises(ValueError, match="`decay_steps` must be above 0. Received: 0"):
        FlooredExponentialDecay(decay_steps=0)


def test_an_optimizer_follows_it():
    weight = keras.Variable([1.0])
    optimizer = keras.optimizers.SGD(FlooredExponentialDecay(0.5, decay_steps=1, decay_rate=0.5, floor=0.1))
    for _ in range(4):
        optimizer.apply([keras.ops.ones(1)], [weight])
    np.testing.assert_allclose(array(weight.value), [1 - 0.5 - 0.25 - 0.125 - 0.1], rtol=1e-6)


def test_warmup_and_momentum_follow_the_author_s_numbers():
    rate, beta_1 = one_cycle(1e-5, 0.0005, 1000), one_cycle(0.81, 0.9, 1000, inverted=True)
    for step, wanted_rate, wanted_beta in HEINSEN["D_schedule"]["rows"]:
        np.testing.assert_allclose(array(rate(step)), wanted_rate, rtol=2e-5)
        np.testing.assert_allclose(array(beta_1(ops.cast(step, "int32"))), wanted_beta, atol=1e-6)


def test_one_cycle_turns_between_two_steps_and_stays_at_its_final_value():
    schedule = one_cycle(1.0, 2.0, 9, warmup=0.25)  # the turn is at 2.25
    wanted = [1, 1 + 1 / 2.25, 1 + 2 / 2.25, 1 + (1 + np.cos(np.pi * 0.75 / 6.75)) / 2]
    np.testing.assert_allclose([array(schedule(step)) for step in range(4)], wanted, rtol=1e-6)
    np.testing.assert_allclose([array(schedule(step)) for step in (9, 10, 14, 1000)], 1.0, rtol=1e-6)
    inverted = one_cycle(0.2, 0.7, 9, 0.25, inverted=True)
    np.testing.assert_allclose([array(inverted(step)) for step in (9, 14)], 0.7, rtol=1e-6)
    assert array(one_cycle(1e-5, 2.0, 1)(0)) == np.float32(1e-5)
    assert array(one_cycle(0, 2, 9)(0)) == 0


@pytest.mark.parametrize("schedule", [one_cycle(0.01, 0.3, 40, 0.2), one_cycle(0.85, 0.95, 40, 0.2, inverted=True)])
def test_schedules_with_a_turn_round_trip(schedule):
    other = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(schedule))
    assert type(other) is type(schedule) and other.get_config() == schedule.get_config()
    for step in (0, 5, 8, 21, 40):
        assert array(other(step)) == array(schedule(step))


@pytest.mark.parametrize(
    ("name", "config", "schedule"),
    [
        (
            "WarmupCosine",
            {"peak": 0.3, "total_steps": 9, "warmup": 0.25, "floor": 0.01},
            one_cycle(0.01, 0.3, 9, 0.25),
        ),
        (
            "MomentumCycle",
            {"total_steps": 9, "warmup": 0.25, "high": 0.95, "low": 0.85},
            one_cycle(0.85, 0.95, 9, 0.25, inverted=True),
        ),
    ],
)
def test_a_file_with_an_older_class_name_loads(name, config, schedule):
    saved = {
        "module": "tf_capsules.optimizers.schedules",
        "class_name": name,
        "config": config,
        "registered_name": f"tf_capsules>{name}",
    }
    optimizer = {**RAdam().get_config(), "learning_rate": saved, "beta_1": saved if name == "MomentumCycle" else 0.9}
    loaded = RAdam.from_config(optimizer)
    assert type(loaded._learning_rate) is keras.optimizers.schedules.CosineDecay
    assert loaded._learning_rate.get_config() == schedule.get_config()
    if name == "MomentumCycle":
        assert loaded.beta_1.get_config() == schedule.get_config()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 0, 10), "`high` must be above 0. Received: 0"),
        ((0.2, 0.1, 10), "must satisfy 0 <= low <= high. Received: low=0.2, high=0.1"),
        (("a", 0.1, 10), "must satisfy 0 <= low <= high. Received: low='a', high=0.1"),
        ((0.01, 0.1, 10, "a"), "`warmup` must be between 0 and 1. Received: 'a'"),
        ((-0.1, 0.1, 10), "must satisfy 0 <= low <= high. Received: low=-0.1, high=0.1"),
        ((0.01, 0.1, 0), "`total_steps` must be a whole number of at least 1. Received: 0"),
        ((0.01, 0.1, 10, 1), "`warmup` must be between 0 and 1. Received: 1"),
        ((0.01, 0.1, 10, 0.0), "`warmup` must be between 0 and 1. Received: 0.0"),
        ((0, 0.9, 10, 0.1, True), "`low` must be above 0. Received: 0"),
    ],
)
def test_values_out_of_range_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        one_cycle(*arguments)
