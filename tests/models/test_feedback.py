import keras
import numpy as np
import pytest
from backend import EAGER, JIT, array
from sweep import capsnet

from tf_capsules.losses import MarginLoss, PairedKLDivergence, SinkhornDivergence, SpreadLoss, SpreadMargin
from tf_capsules.models import CapsuleClassifier, FeedbackAgreement, FeedbackClassifier, FeedbackModel, with_feedback

RANDOM = np.random.default_rng(0)
SAMPLES, CLASSES = 16, 3
IMAGES = RANDOM.uniform(size=(SAMPLES, 9, 8, 2)).astype("float32")
LABELS = RANDOM.integers(0, CLASSES, SAMPLES)
WEIGHTS = RANDOM.uniform(0.5, 2, SAMPLES).astype("float32")
LINKS = [("low", "capsules"), ("high", "top")]


def network():
    """A network with a map of 9x8, maps of half that size (5x4), and capsules (5, 4, types, dim)."""
    images = keras.Input((9, 8, 2), name="images")
    x = keras.layers.Conv2D(4, 3, padding="same", activation="relu", name="low", kernel_regularizer="l2")(images)
    x = keras.layers.Conv2D(8, 3, 2, padding="same", name="high")(x)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.Conv2D(6, 1, activation="relu", name="top")(x)
    x = keras.layers.Reshape((*x.shape[1:3], 2, 3), name="capsules")(x)
    x = keras.layers.Dense(CLASSES, "sigmoid", name="scores")(keras.layers.Flatten()(x))
    return keras.Model(images, x, name="network")


def tiny(links=LINKS[:1], optimizer=None, eager=False, **options):
    units = {} if len(links[0]) == 3 else {"groups": 2}
    model = with_feedback(network(), links, **units, **options)
    optimizer = optimizer or keras.optimizers.Adam(0.01)
    accuracy = keras.metrics.SparseCategoricalAccuracy("accuracy")
    model.compile(optimizer, MarginLoss(), weighted_metrics=[accuracy], jit_compile=JIT, run_eagerly=eager)
    model.optimizer.build(model.trainable_variables)  # otherwise TensorFlow traces a step twice
    return model


def test_initial_weights():
    unit = FeedbackAgreement()
    unit.build((None, 8, 8, 256), (None, 4, 4, 512))
    first, second = unit.critic.layers[1], unit.critic.layers[5]
    for layer, fans in ((unit, 9 * (8 + 512)), (first, 9 * (256 + 64)), (second, 9 * (64 + 1))):
        np.testing.assert_allclose(array(layer.kernel).std(), np.sqrt(2 / fans), rtol=0.1)
    np.testing.assert_allclose(array(unit.bias).std(), 1, rtol=0.2)
    other = FeedbackAgreement()
    other.build((None, 8, 8, 256), (None, 4, 4, 512))
    assert np.abs(array(other.bias) - array(unit.bias)).min() > 0


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision(policy):
    keras.config.set_dtype_policy(policy)
    unit = FeedbackAgreement(groups=2)
    value = unit(IMAGES, IMAGES[..., None], training=True)
    assert keras.backend.standardize_dtype(value.dtype) == "float32" and np.isfinite(array(value))
    assert keras.backend.standardize_dtype(unit.generate(IMAGES).dtype) == policy[6:]


def test_config_round_trip():
    unit = FeedbackAgreement(4, False, False, (2, 1), PairedKLDivergence(symmetric=True), name="mine")
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(unit))
    assert again.get_config() == unit.get_config() and again.divergence.symmetric


def test_a_configuration_makes_several_models():
    config = tiny(LINKS, eager=EAGER).get_config()
    one, other = (FeedbackModel.from_config(config) for _ in range(2))
    assert len(one.weights) == len(other.weights) > 0


def divergences(model, sample_weight):
    """The sum of the units' divergences in a step; restores the weights of the model."""
    before = model.get_weights()
    maps = model(IMAGES, training=True).maps
    total = sum(array(unit(*pair, sample_weight, training=True)) for unit, pair in zip(model.units, maps, strict=True))
    model.set_weights(before)
    return total


def test_the_loss_of_a_step_by_hand():
    model = tiny(LINKS, weight=3.0, optimizer=keras.optimizers.SGD(0.0), eager=EAGER)
    plain = model.model
    plain.compile(keras.optimizers.SGD(0.0), MarginLoss(), jit_compile=JIT, run_eagerly=EAGER)
    weights = model.get_weights()
    expected = divergences(model, WEIGHTS)
    options = dict(batch_size=SAMPLES, verbose=0, sample_weight=WEIGHTS)
    logs = {name: value[0] for name, value in model.fit(IMAGES, LABELS, shuffle=False, **options).history.items()}
    model.set_weights(weights)
    alone = plain.fit(IMAGES, LABELS, shuffle=False, **options).history["loss"][0]
    model.set_weights(weights)
    assert set(logs) == {"loss", "accuracy", "feedback"} and expected > 0
    np.testing.assert_allclose(logs["feedback"], 3 * expected, rtol=1e-4)
    np.testing.assert_allclose(logs["loss"], alone + 3 * expected, rtol=1e-4)
    evaluated = model.evaluate(IMAGES, LABELS, return_dict=True, **options)
    assert set(evaluated) == {"loss", "accuracy"}
    np.testing.assert_allclose(evaluated["loss"], plain.evaluate(IMAGES, LABELS, **options), rtol=1e-5)


@pytest.mark.long
def test_fit_reduces_the_loss_and_trains_every_weight():
    model = tiny(divergence=PairedKLDivergence())  # faster to trace than Sinkhorn's, which trains in other tests
    before = model.get_weights()
    options = dict(batch_size=8, epochs=15, verbose=0, validation_data=(IMAGES, LABELS))
    history = model.fit(IMAGES, LABELS, **options).history
    assert set(history) == {"loss", "accuracy", "feedback", "val_loss", "val_accuracy"}
    assert history["loss"][-1] < 0.6 * history["loss"][0] and history["feedback"][-1] < history["feedback"][0]
    for weight, old in zip(model.weights, before, strict=True):
        assert np.isfinite(array(weight)).all() and np.abs(array(weight) - old).max() > 0, weight.path
    assert len(model.evaluate(IMAGES, LABELS, verbose=0)) == 2 == len(model.test_on_batch(IMAGES, LABELS))
    # The wrapped model is trained and gets no further weights.
    predictions = model.predict(IMAGES, verbose=0)
    np.testing.assert_array_equal(model.model.predict(IMAGES, verbose=0), predictions)
    assert len(model.model.weights) == len(network().weights) == len(model.weights) - 3 * 6
    np.testing.assert_allclose(array(model(IMAGES)), predictions, atol=1e-6)


@pytest.mark.long
def test_a_step_compiled_by_xla_is_finite_also_for_images_of_zeros():
    model = with_feedback(network(), LINKS[:1], groups=2)
    model.compile(keras.optimizers.SGD(0.01), MarginLoss(), jit_compile=True)
    for images in (IMAGES, np.zeros_like(IMAGES)):
        assert np.isfinite(model.train_on_batch(images, LABELS)).all()
        assert all(np.isfinite(array(weight)).all() for weight in model.weights)


def test_evaluate_and_predict_never_touch_the_units(monkeypatch):
    monkeypatch.setattr(FeedbackAgreement, "call", lambda *_, **__: 1 / 0)
    model = tiny(eager=EAGER)
    model.evaluate(IMAGES, LABELS, verbose=0)
    assert model.predict(IMAGES, verbose=0).shape == (SAMPLES, CLASSES)
    with pytest.raises(ZeroDivisionError):
        model.train_on_batch(IMAGES, LABELS)


@pytest.mark.long
def test_saved_training_goes_on(tmp_path):
    unit = FeedbackAgreement(2, divergence=PairedKLDivergence(), name="mine")
    model = tiny([(*LINKS[0], unit)], weight=2.5, eager=EAGER)
    options = dict(batch_size=8, epochs=1, shuffle=False, verbose=0)
    model.fit(IMAGES, LABELS, **options)
    model.save(tmp_path / "training.keras")
    model.model.save(tmp_path / "network.keras")
    loaded = keras.models.load_model(tmp_path / "training.keras")
    assert type(loaded) is FeedbackModel and loaded.weight == 2.5 and loaded.units[0].name == "mine"
    expected = model.predict(IMAGES, verbose=0)
    alone = keras.models.load_model(tmp_path / "network.keras")
    assert not any("critic" in weight.path or "generator" in weight.path for weight in alone.weights)
    for other in (loaded, loaded.model, alone):
        np.testing.assert_allclose(other.predict(IMAGES, verbose=0), expected, atol=1e-6)
    histories = [one.fit(IMAGES, LABELS, **options).history for one in (model, loaded)]
    assert set(histories[0]) == set(histories[1])
    for name, values in histories[0].items():
        np.testing.assert_allclose(histories[1][name], values, rtol=1e-4)
    for a, b in zip(model.weights, loaded.weights, strict=True):
        np.testing.assert_allclose(array(b), array(a), atol=1e-5, err_msg=a.path)


@pytest.mark.long
def test_a_capsule_classifier(tmp_path):
    case = capsnet(padding="same")
    images, labels = case.arrays()["images"], np.array([0, 2, 1, 1, 2])
    plain = case.make()
    options = dict(weight=0.5, groups=2, divergence=PairedKLDivergence())  # faster to trace than Sinkhorn's
    model = with_feedback(plain, [("convolution", "primary_capsules")], **options)
    options = dict(batch_size=3, epochs=2, shuffle=False, verbose=0)  # batches of 3 and 2
    histories = []
    for each in (plain, model):
        loss = SpreadLoss(SpreadMargin("linear", scale=10))
        each.compile(keras.optimizers.SGD(0.0), loss, metrics=["accuracy"], jit_compile=JIT, run_eagerly=EAGER)
        histories.append(each.fit(images, labels, validation_data=(images, labels), **options).history)
    assert histories[1].keys() == {*histories[0], "feedback"}
    for name, values in histories[0].items():
        extra = np.array(histories[1]["feedback"]) if name == "loss" else 0
        np.testing.assert_allclose(histories[1][name], np.add(values, extra), rtol=1e-4)
    outputs = model.predict(images, verbose=0)
    assert set(outputs) == {"activations", "poses"} and isinstance(model, CapsuleClassifier)
    np.testing.assert_array_equal(plain.predict(images, verbose=0)["poses"], outputs["poses"])
    np.testing.assert_allclose(array(model.reconstruct(outputs["poses"])), array(plain.reconstruct(outputs["poses"])))
    model.reconstruction_weight = 0.25
    model.save(tmp_path / "training.keras")
    loaded = keras.models.load_model(tmp_path / "training.keras")
    assert loaded.reconstruction_weight == 0.25
    assert type(loaded) is FeedbackClassifier and int(array(loaded.growing_margins[0].steps)) == 4
    for other in (loaded, loaded.model):
        np.testing.assert_allclose(other.predict(images, verbose=0)["poses"], outputs["poses"], atol=1e-6)
    again = loaded.fit(images, labels, **{**options, "epochs": 1}).history
    np.testing.assert_allclose(again["feedback"], histories[1]["feedback"][-1:], rtol=1e-3)
    assert again["loss"][0] > histories[1]["loss"][1]  # since the margin has grown


class Subclassed(keras.Model):
    def call(self, images):
        return images


class WithLossOfItsOwn(keras.Model):
    """A functional model of a class of its own."""


@pytest.mark.parametrize(
    "links, message",
    [
        ([("low", "middle")], "between layers of the model, low, high, .*scores. Received: 'middle'"),
        ([("low", "scores")], r"the layer 'scores' with outputs of shape \(None, 3\)"),
        ([("high", "low")], r"from 'high' to 'low'.*lower one of shape \(None, 5, 4, 8\) .* \(None, 9, 8, 4\)"),
        ([("low",)], r"A link must be .*Received: \('low',"),
        ([("low", "high", "top")], r"A link must be .*Received: \('low', 'high', 'top'\)"),
        ([("low", "low")], "between two layers. Received 'low' with itself"),
        ([], r"at least one pair.*Received: \[\]"),
        (None, "at least one pair.*Received: None"),
        (("low", "high"), r"at least one pair.*Received: \('low', 'high'\)"),
        ([("low", "capsules"), ("low", "capsules")], r"Links must differ. Received \('low', 'capsules'\) twice"),
        ([("low", "high", FeedbackAgreement(3))], r"multiples of `groups`, which is 3 .*\(None, 9, 8, 4\)"),
    ],
)
def test_links_that_do_not_fit_are_named(links, message):
    with pytest.raises(ValueError, match=message):
        with_feedback(network(), links)


def test_what_else_does_not_fit_is_named():
    plain = network()
    subclassed = Subclassed(name="mine")
    subclassed(IMAGES)
    unbuilt = keras.Sequential([keras.layers.Conv2D(2, 1, name="low")], name="mine")
    for model in (subclassed, WithLossOfItsOwn(plain.input, plain.output, name="mine"), unbuilt, capsnet, tiny()):
        with pytest.raises(ValueError, match="functional or sequential.*Received: <"):
            with_feedback(model, [("low", "high")])
    for weight in (-1, None, "1", float("nan")):
        with pytest.raises(ValueError, match=f"`weight`.*Received: {weight!r}"):
            with_feedback(plain, LINKS, weight)
    for divergence in ("mse", SinkhornDivergence(reduction=None)):
        with pytest.raises(ValueError, match="`divergence` must be a Keras loss that gives one number. Received: "):
            FeedbackAgreement(divergence=divergence)
    with pytest.raises(ValueError, match="Options are for links without a unit, .* Received: {'groups': 2}"):
        with_feedback(plain, [("low", "capsules", FeedbackAgreement(2))], groups=2)
    shared = FeedbackAgreement(2)
    with pytest.raises(ValueError, match=r"from 'high' to 'top'.*for maps .*\(None, 9, 8, 4\).*\(None, 5, 4, 8\)"):
        with_feedback(plain, [("low", "capsules", shared), ("high", "top", shared)])
    with pytest.raises(ValueError, match=r"is for maps of shapes .*Received maps of shapes \(1, 8, 8, 4\)"):
        shared(np.ones((1, 8, 8, 4)), np.ones((1, 5, 4, 6)))
    with pytest.raises(ValueError, match=r"single number of a lower map of 1x1.*Received .*\(None, 1, 1, 4\)"):
        FeedbackAgreement(1).build((None, 1, 1, 4), (None, 1, 1, 4))
    for argument in ({"groups": 0}, {"critic_strides": (1, 2, 3)}, {"critic": "no"}, {"squash": None}):
        with pytest.raises(ValueError, match=f"`{next(iter(argument))}`.*Received: "):
            FeedbackAgreement(**argument)
    for shapes in (((None, 4, 4, 4), (None, 4, 4)), ((None, None, 4, 4), (None, 4, 4, 4))):
        with pytest.raises(ValueError, match="is between maps .* of known size. Received a lower one of shape"):
            FeedbackAgreement(1).build(*shapes)


def test_a_sequential_model_and_a_nested_one():
    inner = keras.Sequential([keras.Input((9, 8, 4)), keras.layers.Conv2D(6, 3, padding="same")], name="inner")
    layers = [keras.layers.Conv2D(4, 1, name="low"), inner, keras.layers.Flatten(), keras.layers.Dense(CLASSES)]
    model = with_feedback(keras.Sequential([keras.Input((9, 8, 2)), *layers]), [("low", "inner")], groups=2)
    model.compile("sgd", MarginLoss(), jit_compile=JIT, run_eagerly=EAGER)
    assert np.isfinite(model.train_on_batch(IMAGES, LABELS)).all()
    np.testing.assert_allclose(array(model(IMAGES)), array(model.model(IMAGES)), atol=1e-6)


def test_losses_by_the_names_of_outputs_and_an_export_of_the_network_alone(tmp_path):
    tf = pytest.importorskip("tensorflow")
    images = keras.Input((8, 8, 3))
    x = keras.layers.Conv2D(8, 3, padding="same", name="low")(images)
    x = keras.layers.GlobalAveragePooling2D()(keras.layers.Conv2D(16, 3, 2, padding="same", name="high")(x))
    network = keras.Model(images, [keras.layers.Dense(5, name="kind")(x), keras.layers.Dense(1, name="size")(x)])
    model = with_feedback(network, [("low", "high")], groups=1)
    losses, metrics = {"kind": "mse", "size": "mae"}, {"size": ["mse"]}
    model.compile("adam", losses, metrics=metrics, jit_compile=JIT, run_eagerly=EAGER)
    examples = np.random.default_rng(0).random((6, 8, 8, 3)).astype("float32")
    history = model.fit(examples, {"kind": np.zeros((6, 5)), "size": np.zeros((6, 1))}, verbose=0).history
    assert set(history) == {"loss", "feedback", "kind_loss", "size_loss", "size_mse"}
    model.export(tmp_path / "exported", verbose=False)
    served = tf.saved_model.load(str(tmp_path / "exported"))
    for found, wanted in zip(served.serve(examples), network(examples), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
