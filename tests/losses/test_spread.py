import copy

import keras
import numpy as np
import pytest
from backend import EAGER, array, way
from oracle import read
from sweep import MODELS

from tf_capsules.losses import SpreadLoss, SpreadMargin

ORACLE = read("em_routing")
CASE = ORACLE["D_spread_loss"]
ACTIVATIONS, LABELS = np.array(CASE["activations"], "float32"), np.array(CASE["labels"])


@pytest.mark.parametrize("margin, expected", [(float(key), value) for key, value in CASE["per_sample"].items()])
def test_oracle(margin, expected):
    for labels in (LABELS, LABELS[:, None], np.eye(3, dtype="float32")[LABELS]):
        np.testing.assert_allclose(array(SpreadLoss(margin, reduction=None)(labels, ACTIVATIONS)), expected, atol=1e-6)
    np.testing.assert_allclose(array(SpreadLoss(margin)(LABELS, ACTIVATIONS)), np.mean(expected), atol=1e-6)


def by_hand(labels, activations, margin):
    result = np.zeros(len(labels))
    for sample, (label, row) in enumerate(zip(labels, activations.astype("float64"), strict=True)):
        for other, activation in enumerate(row):
            if other != label:
                result[sample] += max(0, margin - (row[label] - activation)) ** 2
    return result


RANDOM = np.random.default_rng(0)
INPUTS = RANDOM.uniform(size=(12, 5)).astype("float32")
CLASSES = RANDOM.integers(0, 5, 12)


def test_equals_the_formula():
    for margin in (0.2, 0.9):
        losses = array(SpreadLoss(margin, reduction=None)(CLASSES, INPUTS))
        np.testing.assert_allclose(losses, by_hand(CLASSES, INPUTS, margin), atol=1e-6)
    weights = np.arange(12, dtype="float32")
    expected = (weights * by_hand(CLASSES, INPUTS, 0.9)).mean()
    np.testing.assert_allclose(array(SpreadLoss()(CLASSES, INPUTS, sample_weight=weights)), expected, rtol=1e-5)


def test_steps_are_counted_in_the_type_of_keras_s_own_counts():
    """TensorFlow keeps variables of int32 on the host, where a step compiled for a GPU can't reach them."""
    margin = SpreadMargin()
    margin.build((None, 4))
    assert margin.steps.dtype == keras.optimizers.SGD().iterations.dtype


def test_schedules():
    margin = SpreadMargin()
    for step, expected in ORACLE["E_schedules"]["margin"]:
        np.testing.assert_allclose(array(margin.at(step)), expected, atol=1e-6)
        np.testing.assert_allclose(array(SpreadMargin(scale=500).at(step // 100)), expected, atol=1e-6)
    linear = SpreadMargin("linear", scale=1000)
    ramp = SpreadMargin.over(600, "ramp")
    for step, expected in [(0, 0.2), (20, 0.2), (300, 0.55), (580, 0.9), (599, 0.9)]:
        np.testing.assert_allclose(float(ramp.at(step)), expected, atol=1e-6)
    for steps, schedule, end in [(4003, "sigmoid", 0.9757), (7, "linear", 0.9), (1, "sigmoid", 0.9757)]:
        through = SpreadMargin.over(steps, schedule)
        np.testing.assert_allclose(array(through.at(8 * through.scale)), end, atol=1e-4)
        assert steps <= through.scale * (8 if schedule == "sigmoid" else 1) < steps + 8
    for step, expected in [(0, 0.2), (500, 0.55), (1000, 0.9), (5000, 0.9)]:
        np.testing.assert_allclose(array(linear.at(step)), expected, atol=1e-6)


def make_network(jit=False):
    """A network whose weights never change, so only the margin changes its losses."""
    margin = SpreadMargin("linear", scale=10, name="margin")
    inputs = keras.Input((5,))
    activations = keras.layers.Dense(5, use_bias=False, kernel_initializer="identity")(inputs)
    network = keras.Model(inputs, margin(activations))
    network.compile(keras.optimizers.SGD(0.0), SpreadLoss(margin), jit_compile=jit)
    return network


def fit(network, epochs):
    """Three steps an epoch, with an evaluation after each."""
    history = network.fit(
        INPUTS, CLASSES, batch_size=4, epochs=epochs, shuffle=False, verbose=0, validation_data=(INPUTS, CLASSES)
    )
    return history.history


def expected_loss(steps):
    """The mean loss of these steps; each step has its own four examples."""
    losses = []
    for step in steps:
        part = slice(4 * ((step - 1) % 3), 4 * ((step - 1) % 3) + 4)
        losses.append(by_hand(CLASSES[part], INPUTS[part], 0.2 + 0.07 * min(step, 10)).mean())
    return np.mean(losses)


@pytest.mark.parametrize("jit", [False, True], ids=way)
def test_the_margin_grows_with_each_training_step_and_no_other(jit):
    network = make_network(jit)
    history = fit(network, 4)
    for epoch in range(4):
        steps = range(3 * epoch + 1, 3 * epoch + 4)
        np.testing.assert_allclose(history["loss"][epoch], expected_loss(steps), rtol=1e-5)
        now = by_hand(CLASSES, INPUTS, 0.2 + 0.07 * min(steps[-1], 10)).mean()
        np.testing.assert_allclose(history["val_loss"][epoch], now, rtol=1e-5)
    network.predict(INPUTS, verbose=0)
    assert int(array(network.get_layer("margin").steps)) == 12


def test_a_resumed_training_goes_on_with_the_margin(tmp_path):
    network = make_network()
    fit(network, 2)
    network.save(tmp_path / "network.keras")
    network.save_weights(tmp_path / "network.weights.h5")
    loaded = keras.models.load_model(tmp_path / "network.keras")
    np.testing.assert_allclose(loaded.predict(INPUTS, verbose=0), INPUTS, atol=1e-6)
    with pytest.raises(ValueError, match="margin 'margin' of SpreadLoss is not a layer of.*also after `load_model`"):
        fit(loaded, 1)
    loaded.compile(loaded.optimizer, SpreadLoss(loaded.get_layer("margin")))
    other = make_network()
    other.load_weights(tmp_path / "network.weights.h5")
    for again in (loaded, other):
        assert int(array(again.get_layer("margin").steps)) == 6
        np.testing.assert_allclose(fit(again, 1)["loss"][0], expected_loss([7, 8, 9]), rtol=1e-5)


def test_config_round_trip():
    margin = SpreadMargin("linear", scale=7)
    assert SpreadMargin.from_config(margin.get_config()).get_config() == margin.get_config()
    fixed = SpreadLoss(0.4, reduction="sum", name="other")
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(fixed))
    assert again.get_config() == fixed.get_config()
    scheduled = SpreadLoss.from_config(SpreadLoss(margin).get_config())
    assert (scheduled.margin.schedule, scheduled.margin.scale) == ("linear", 7)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_passes_through_and_is_compared_in_float32(dtype):
    margin = SpreadMargin(dtype=f"mixed_{dtype}")
    half = margin(keras.ops.cast(ACTIVATIONS, dtype), training=True)
    assert keras.backend.standardize_dtype(half.dtype) == dtype and int(array(margin.steps)) == 1
    loss = SpreadLoss(margin)(LABELS, half)
    assert keras.backend.standardize_dtype(loss.dtype) == "float32"


def test_a_loss_is_copied_without_the_steps_of_its_network():
    model = MODELS["CapsNet without decoder"].make()
    model.compile("sgd", SpreadLoss(SpreadMargin.over(100)), run_eagerly=EAGER)
    images, labels = np.ones((2, 11, 10, 2), "float32"), np.array([0, 1])
    model.train_on_batch(images, labels)
    loss = copy.deepcopy(model.loss)
    assert loss.get_config() == model.loss.get_config()
    other = MODELS["CapsNet without decoder"].make()
    other.compile("sgd", loss, run_eagerly=EAGER)
    other.train_on_batch(images, labels)
    assert [array(one.loss.margin.steps) for one in (model, other)] == [1, 1]


def test_a_row_must_name_one_class():
    for row in ([1, 1, 0], [0, 0, 0], [0.7, 0.3, 0], [2, 0, 0]):
        assert np.isnan(float(SpreadLoss()(np.array([row], "float32"), ACTIVATIONS[:1]))), row


def test_what_does_not_fit_is_named():
    for margin in (0, -0.2, True, "0.9", None, float("nan")):
        with pytest.raises(ValueError, match=f"`margin`.*Received: {margin!r}"):
            SpreadLoss(margin)
    with pytest.raises(ValueError, match="`schedule`.*Received: 'cosine'"):
        SpreadMargin("cosine")
    with pytest.raises(ValueError, match="`scale`.*Received: 0"):
        SpreadMargin(scale=0)
    with pytest.raises(ValueError, match="margin 'alone' of SpreadLoss is not a layer of the network"):
        SpreadLoss(SpreadMargin(name="alone"))(LABELS, ACTIVATIONS)
    with pytest.raises(ValueError, match=r"(?s)\(batch, 3\).*Received labels of shape \(2, 2\)"):
        SpreadLoss()(np.zeros((2, 2)), ACTIVATIONS)
    with pytest.raises(ValueError, match=r"labels of shape \(1,\) for predictions of shape \(2, 3\)"):
        SpreadLoss()(LABELS[:1], ACTIVATIONS)
    with pytest.raises(ValueError, match=r"\(batch, classes\). Received predictions of shape \(2, 3, 1\)"):
        SpreadLoss()(LABELS, ACTIVATIONS[..., None])


def test_no_examples_have_no_loss():
    losses = SpreadLoss(reduction="none")(np.zeros(0, "int32"), np.zeros((0, 3), "float32"))
    assert losses.shape == (0,)
