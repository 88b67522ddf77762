import pathlib

import keras
import numpy as np
import pytest
from backend import BACKEND, EAGER, JIT, array
from keras import ops
from processes import run_script
from small_runs import needs_tensorflow
from sweep import MODELS

from tf_capsules.losses import MarginLoss, SpreadLoss, SpreadMargin
from tf_capsules.metrics import ExactMatch
from tf_capsules.models import CapsuleClassifier, class_outputs, class_probabilities
from tf_capsules.models.sabour2017 import CapsNet
from tf_capsules.models.weights.keras_file import fill

RANDOM = np.random.default_rng(0)
SAMPLES, CLASSES, PARTS = 6, 3, 2
IMAGES = RANDOM.uniform(size=(SAMPLES, 11, 10, 2)).astype("float32")
LABELS = np.array([2, 0, 1, 1, 2, 0], "int32")
ONE_HOT = np.eye(CLASSES, dtype="float32")[LABELS]
PART_LABELS = np.stack([LABELS, (LABELS + 1) % CLASSES], axis=1)
WHOLE_AND_PARTS = {
    "label": ONE_HOT + np.eye(CLASSES, dtype="float32")[PART_LABELS[:, 1]],
    "parts": RANDOM.uniform(size=(SAMPLES, PARTS, 11, 10, 2)).astype("float32"),
    "part_labels": PART_LABELS,
}
WEIGHTS = np.array([1.0, 0.0, 2.0, 0.5, 0.25, 1.0], "float32")


def tiny(**compile_options):
    model = MODELS["CapsNet"].make()
    options = {"loss": MarginLoss(), "optimizer": keras.optimizers.Adam(0.01), "jit_compile": JIT}
    model.compile(**{**options, **compile_options})
    return model


def margin(targets, lengths):
    terms = targets * np.maximum(0, 0.9 - lengths) ** 2 + 0.5 * (1 - targets) * np.maximum(0, lengths - 0.1) ** 2
    return terms.sum(-1)


def squared_errors(model, images, poses, labels):
    masked = np.zeros_like(poses)
    for sample, label in enumerate(labels):
        masked[sample, label] = poses[sample, label]
    return np.square(images - array(model.decoder(masked))).sum((1, 2, 3))


def losses_by_hand(model, y):
    outputs = {name: array(x) for name, x in model(IMAGES).items()}
    if not isinstance(y, dict):
        errors = squared_errors(model, IMAGES, outputs["poses"], LABELS)
        return margin(ONE_HOT, outputs["activations"]) + 0.0005 * errors
    errors = [squared_errors(model, y["parts"][:, k], outputs["poses"], y["part_labels"][:, k]) for k in range(PARTS)]
    return margin(y["label"], outputs["activations"]) + 0.0005 * sum(errors)


@pytest.mark.parametrize(
    "y", [LABELS, LABELS[:, None], ONE_HOT, WHOLE_AND_PARTS], ids=["sparse", "column", "rows", "parts"]
)
def test_loss_by_hand(y):
    model = tiny(run_eagerly=EAGER)
    by_hand = losses_by_hand(model, y)
    loss = model.compute_loss(IMAGES, y, model(IMAGES))
    np.testing.assert_allclose(array(loss), by_hand.mean(), rtol=1e-5)
    np.testing.assert_allclose(model.evaluate(IMAGES, y, verbose=0), by_hand.mean(), rtol=1e-5)
    weighted = model.evaluate(IMAGES, y, sample_weight=WEIGHTS, verbose=0)
    np.testing.assert_allclose(weighted, (WEIGHTS * by_hand).sum() / SAMPLES, rtol=1e-5)


def test_a_part_that_is_not_there_is_not_reconstructed():
    model, lacking = tiny(run_eagerly=EAGER), {**WHOLE_AND_PARTS, "part_labels": PART_LABELS.copy()}
    lacking["part_labels"][:, 1] = -1
    poses = array(model(IMAGES)["poses"])
    first = squared_errors(model, WHOLE_AND_PARTS["parts"][:, 0], poses, LABELS)
    by_hand = margin(lacking["label"], array(model(IMAGES)["activations"])) + 0.0005 * first
    np.testing.assert_allclose(model.train_on_batch(IMAGES, lacking), by_hand.mean(), rtol=1e-5)
    assert all(np.isfinite(array(weight)).all() for weight in model.weights)


def test_reconstruction_weight_and_absence_of_a_decoder():
    model = tiny()
    only_margin = margin(ONE_HOT, array(model(IMAGES)["activations"])).mean()
    model.reconstruction_weight = 0
    np.testing.assert_allclose(array(model.compute_loss(IMAGES, LABELS, model(IMAGES))), only_margin, rtol=1e-5)
    model.reconstruction_weight = 0.5
    model.compile(loss=MarginLoss())
    before = model.evaluate(IMAGES, LABELS, verbose=0)
    decoded = array(model.reconstruct(model(IMAGES)["poses"], LABELS))
    error = 0.5 * np.square(decoded - IMAGES).sum((1, 2, 3)).mean()
    np.testing.assert_allclose(before, only_margin + error, rtol=1e-5)
    assert CapsuleClassifier.from_config(model.get_config()).reconstruction_weight == 0.5
    bare = MODELS["CapsNet without decoder"].make()
    bare.compile(loss=MarginLoss())
    only_margin = margin(ONE_HOT, array(bare(IMAGES)["activations"])).mean()
    np.testing.assert_allclose(bare.evaluate(IMAGES, LABELS, verbose=0), only_margin, rtol=1e-5)
    with pytest.raises(ValueError, match="'capsnet' has no decoder"):
        bare.reconstruct(np.zeros((1, 3, 5)))


def test_reconstruct_keeps_the_longest_or_the_label():
    model = tiny()
    poses = array(model(IMAGES)["poses"])
    longest = np.linalg.norm(poses, axis=-1).argmax(-1)
    images = array(model.reconstruct(poses))
    assert images.shape == IMAGES.shape
    np.testing.assert_allclose(images, array(model.reconstruct(poses, longest)), atol=1e-6)
    np.testing.assert_allclose(images, array(model.reconstruct(poses, longest.tolist())), atol=1e-6)
    other = array(model.reconstruct(poses, (longest + 1) % CLASSES))
    assert np.abs(other - images).max() > 1e-4


@pytest.mark.long
def test_fit_reduces_the_loss_and_trains_every_weight(monkeypatch):
    model, steps = tiny(metrics=[keras.metrics.SparseCategoricalAccuracy("accuracy")]), []
    compute_loss = model.compute_loss
    monkeypatch.setattr(model, "compute_loss", lambda *x, **options: steps.append(1) or compute_loss(*x, **options))
    before = model.get_weights()
    history = model.fit(IMAGES, LABELS, batch_size=4, epochs=25, verbose=0).history
    assert history["loss"][-1] < 0.6 * history["loss"][0]
    assert set(history) == {"loss", "accuracy"} and history["accuracy"][-1] == 1.0
    assert len(steps) == 1 or BACKEND != "tensorflow"  # a step is traced once
    for weight, old in zip(model.weights, before, strict=True):
        assert np.isfinite(array(weight)).all() and np.abs(array(weight) - old).max() > 0, weight.path
    result = model.evaluate(IMAGES, LABELS, batch_size=4, verbose=0, return_dict=True)
    np.testing.assert_allclose(result["loss"], losses_by_hand(model, LABELS).mean(), rtol=1e-4)
    assert result["accuracy"] == 1.0
    predictions = model.predict(IMAGES, batch_size=4, verbose=0)
    np.testing.assert_allclose(predictions["activations"], array(model(IMAGES)["activations"]), atol=1e-5)
    assert predictions["poses"].shape == (SAMPLES, CLASSES, 5)
    np.testing.assert_array_equal(class_outputs(predictions).argmax(-1), LABELS)


@pytest.mark.long
def test_fit_with_parts_and_exact_match():
    model = tiny(metrics=[ExactMatch()])
    history = model.fit(IMAGES, WHOLE_AND_PARTS, batch_size=4, epochs=12, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]
    found = model.predict(IMAGES, verbose=0)["activations"]
    right = [set(np.argsort(row)[-2:]) == set(labels) for row, labels in zip(found, PART_LABELS, strict=True)]
    result = model.evaluate(IMAGES, WHOLE_AND_PARTS, verbose=0, return_dict=True)
    np.testing.assert_allclose(result["exact_match"], np.mean(right), rtol=1e-6)


def test_a_training_step_compiled_by_xla_is_the_same():
    models = [tiny(optimizer=keras.optimizers.SGD(0.1), jit_compile=jit) for jit in (False, True)]
    models[1].set_weights(models[0].get_weights())
    losses = [model.train_on_batch(IMAGES, LABELS) for model in models]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    for a, b in zip(*(model.weights for model in models), strict=True):
        np.testing.assert_allclose(array(b), array(a), atol=1e-6, err_msg=a.path)


def growing(run_eagerly=False):
    """A model compiled with a growing margin. Its weights never change, so its losses reveal the margin."""
    model = MODELS["CapsNet without decoder"].make()
    loss = SpreadLoss(SpreadMargin.over(10, "linear"))
    model.compile(keras.optimizers.SGD(0.0), loss, jit_compile=False, run_eagerly=run_eagerly)
    return model


def next_loss(model):
    """The loss of one more training step, and a function that gives the expected loss of a step."""
    activations = array(model(IMAGES)["activations"])
    model.reset_metrics()  # earlier Keras averages the loss over the steps
    return model.train_on_batch(IMAGES, LABELS), lambda step: float(SpreadLoss(0.2 + 0.07 * step)(LABELS, activations))


def count(model):
    (margin,) = model.growing_margins
    return int(array(margin.steps))


@pytest.mark.long
def test_a_growing_margin_is_counted_saved_and_goes_on(tmp_path):
    model = growing()
    assert model.count_params() == MODELS["CapsNet without decoder"].make().count_params()
    for step in (1, 2):
        loss, expected = next_loss(model)
        np.testing.assert_allclose(loss, expected(step), rtol=1e-5)
    # Evaluation and prediction are not training steps.
    np.testing.assert_allclose(model.evaluate(IMAGES, LABELS, verbose=0), expected(2), rtol=1e-5)
    model.predict(IMAGES, verbose=0)
    assert count(model) == 2
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "set.weights.h5")
    loaded, other = keras.models.load_model(tmp_path / "model.keras"), growing(EAGER)
    other.load_weights(tmp_path / "set.weights.h5")
    for again in (loaded, other):
        loss, expected = next_loss(again)
        np.testing.assert_allclose(loss, expected(3), rtol=1e-5)
        assert count(again) == 3


def test_a_growing_margin_belongs_to_one_training(tmp_path):
    model, bare = growing(EAGER), MODELS["CapsNet without decoder"].make()
    bare.save_weights(tmp_path / "bare.weights.h5")
    next_loss(model)
    model.save_weights(tmp_path / "counted.weights.h5")
    bare.load_weights(tmp_path / "counted.weights.h5")
    for a, b in zip(bare.get_weights(), model.get_weights(), strict=False):
        np.testing.assert_array_equal(a, b)
    with pytest.warns(UserWarning, match="optimizer"):  # the file has no optimizer, either
        model.load_weights(tmp_path / "bare.weights.h5")
    assert count(model) == 0
    next_loss(model)
    loss = SpreadLoss(SpreadMargin.over(5, "linear"))
    model.compile(keras.optimizers.SGD(0.0), loss, jit_compile=False, run_eagerly=EAGER)
    assert count(model) == 0 and len(model.weights) == len(bare.weights) + 1
    loss, expected = next_loss(model)
    np.testing.assert_allclose(loss, expected(2), rtol=1e-5)
    model.compile("sgd", MarginLoss())
    assert not model.growing_margins and len(model.weights) == len(bare.weights)
    filled = fill(MODELS["CapsNet without decoder"].make(), tmp_path / "counted.weights.h5")
    for a, b in zip(filled.get_weights(), bare.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_growing_margin_counts_one_network():
    model, other = growing(EAGER), MODELS["CapsNet without decoder"].make()
    next_loss(model)
    (margin,) = model.growing_margins
    with pytest.raises(ValueError, match="'spread_loss' counts the steps of another training"):
        other.compile("sgd", SpreadLoss(margin))
    model.compile("sgd", SpreadLoss(margin))
    assert count(model) == 1
    model.compile("sgd", [SpreadLoss(margin)])  # Keras takes a list of one, too
    assert count(model) == 1 and model.growing_margins == [margin]
    outputs = other.encoder.output
    inside, margin = dict(outputs), SpreadMargin.over(10, "linear")
    inside["activations"] = margin(outputs["activations"])
    inner = CapsuleClassifier(keras.Model(other.encoder.input, inside))
    inner.compile("sgd", SpreadLoss(margin), run_eagerly=EAGER)
    inner.train_on_batch(IMAGES, LABELS)
    assert int(array(margin.steps)) == 1 and not inner.growing_margins


def test_a_growing_margin_leaves_activations_in_float32_under_half_precision():
    keras.config.set_dtype_policy("mixed_bfloat16")
    assert {array(growing()(IMAGES)["activations"]).dtype} == {np.dtype("float32")}


def test_a_configuration_makes_several_models():
    config = MODELS["CapsNet"].make().get_config()
    one, other = (CapsuleClassifier.from_config(config) for _ in range(2))
    assert one.count_params() == other.count_params() == MODELS["CapsNet"].make().count_params()


@needs_tensorflow
def test_keras_exports_it(tmp_path):
    import tensorflow as tf

    model = MODELS["CapsNet"].make()
    model.export(tmp_path / "exported", "tf_saved_model", False)
    exported = tf.saved_model.load(tmp_path / "exported")
    np.testing.assert_allclose(exported.serve(IMAGES)["activations"], model(IMAGES)["activations"], rtol=1e-5)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision_training_stays_finite(policy):
    keras.config.set_dtype_policy(policy)
    model = tiny(jit_compile=False, run_eagerly=EAGER)
    losses = [model.train_on_batch(IMAGES, LABELS) for _ in range(6)]
    assert np.isfinite(losses).all() and losses[-1] < losses[0]


def test_a_decoder_of_one_s_own_trains():
    pixels = IMAGES[0].size
    layers = [keras.layers.Flatten(), keras.layers.Dense(pixels), keras.layers.BatchNormalization()]
    decoder = keras.Sequential([*layers, keras.layers.Reshape(IMAGES.shape[1:])])
    model = CapsuleClassifier(MODELS["CapsNet without decoder"].make().encoder, decoder)
    model.compile(keras.optimizers.SGD(0.0), MarginLoss(), run_eagerly=EAGER)
    poses = model(IMAGES)["poses"]
    values = array(layers[1](layers[0](model.label_mask(poses, LABELS))))
    model.train_on_batch(IMAGES, LABELS)
    np.testing.assert_allclose(array(layers[2].moving_mean), 0.01 * values.mean(0), atol=1e-6)
    np.testing.assert_allclose(array(layers[2].moving_variance), 0.99 + 0.01 * values.var(0), atol=1e-6)
    decoded = model.reconstruct(poses, LABELS)
    np.testing.assert_allclose(array(decoded), array(decoder(model.label_mask(poses, LABELS))), atol=1e-6)


class Dropping(keras.layers.Dropout):
    """Adds a loss of its own, and counts its calls by the state of its random generator."""

    def call(self, inputs, training=False):
        self.add_loss(7.0 + 0.0 * ops.sum(inputs))
        return super().call(inputs, training=training)


def test_what_layers_of_the_decoder_add_to_the_loss_counts():
    pixels = IMAGES[0].size
    dense = keras.layers.Dense(pixels, "sigmoid", activity_regularizer=keras.regularizers.L2(10.0))
    dropping = Dropping(0.5, seed=1)
    decoder = keras.Sequential([keras.layers.Flatten(), dense, dropping, keras.layers.Reshape(IMAGES.shape[1:])])
    encoder = MODELS["CapsNet without decoder"].make().encoder
    model = CapsuleClassifier(encoder, decoder, reconstruction_weight=0.1)
    model.compile(keras.optimizers.SGD(0.0), MarginLoss(), run_eagerly=EAGER)
    outputs = model(IMAGES)
    regularized = keras.Sequential([keras.layers.Flatten(), dense])
    regularized(model.label_mask(outputs["poses"], LABELS))
    errors = squared_errors(model, IMAGES, array(outputs["poses"]), LABELS)
    expected = margin(ONE_HOT, array(outputs["activations"])).mean() + 0.1 * errors.mean()
    expected += array(regularized.losses[0]) + 7  # versions of Keras differ in whether they divide by the batch
    assert array(regularized.losses[0]) > 100
    for _ in range(2):
        found = model.evaluate(IMAGES, LABELS, batch_size=SAMPLES, verbose=0)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    state = array(dropping.seed_generator.state)
    assert model.train_on_batch(IMAGES, LABELS) > 7
    assert (array(dropping.seed_generator.state) != state).any()


def test_labels_may_be_a_list_of_one():
    model = tiny(run_eagerly=EAGER)
    expected = model.evaluate(IMAGES, LABELS, verbose=0)
    np.testing.assert_allclose(model.evaluate(IMAGES, [LABELS], verbose=0), expected, rtol=1e-6)


@pytest.mark.parametrize("form", [list, dict])
def test_images_in_a_dict_or_a_list_are_reconstructed(form):
    plain = tiny(run_eagerly=EAGER)
    images = keras.Input(IMAGES.shape[1:], name="image")
    inputs, given = ({"image": images}, {"image": IMAGES}) if form is dict else ([images], [IMAGES])
    model = CapsuleClassifier(keras.Model(inputs, plain.encoder(images)), plain.decoder, plain.reconstruction_weight)
    model.compile("sgd", plain.loss, run_eagerly=EAGER)
    assert model.image_shape == plain.image_shape
    expected = plain.evaluate(IMAGES, LABELS, verbose=0, return_dict=True)["loss"]
    np.testing.assert_allclose(model.evaluate(given, LABELS, verbose=0), expected, rtol=1e-6)
    other = keras.Input((2,), name="other")
    outputs = plain.encoder(images) | {"other": 2 * other}
    with pytest.raises(ValueError, match="takes one input, the images. Received an encoder of: image, other"):
        CapsuleClassifier(keras.Model([images, other], outputs), plain.decoder)
    assert not hasattr(CapsuleClassifier(keras.Model([images, other], outputs)), "image_shape")


@pytest.mark.parametrize(
    "encoder, decoder, words",
    [
        (
            keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]),
            None,
            "answers with .'activations'.. Received: <S",
        ),
        (MODELS["CapsNet without decoder"].make().encoder, "dense", "Keras layer or None. Received: 'dense'"),
    ],
    ids=["encoder", "decoder"],
)
def test_other_parts_are_refused(encoder, decoder, words):
    with pytest.raises(ValueError, match=words):
        CapsuleClassifier(encoder, decoder)


def test_labels_and_losses_by_other_names_are_refused():
    model = tiny(run_eagerly=EAGER)
    expected = model.evaluate(IMAGES, LABELS, verbose=0)
    np.testing.assert_allclose(model.evaluate(IMAGES, {"label": LABELS}, verbose=0), expected, rtol=1e-6)
    with pytest.raises(ValueError, match='a dict with "label". Received a dict of: activations'):
        model.evaluate(IMAGES, {"activations": LABELS}, verbose=0)
    with pytest.raises(ValueError, match="one loss, of the activations. Received: {'activations'"):
        model.compile("sgd", {"activations": MarginLoss()})
    with pytest.raises(ValueError, match="`logits` must be true or false. Received: 'False'"):
        CapsuleClassifier(model.encoder, logits="False")


def test_a_file_of_an_older_version_is_loaded():
    folder = pathlib.Path(__file__).parent
    model = keras.models.load_model(folder / "saved" / "older_classifier.keras")
    with np.load(folder.parent / "runs" / "older" / "answers.npz") as arrays:
        expected = dict(arrays)
    outputs = model(expected["images"])
    for name, output in outputs.items():
        np.testing.assert_allclose(array(output), expected[name], rtol=1e-4, atol=1e-5)
    assert model.reconstruct(outputs["poses"]).shape == (3, 8, 8, 1)


def test_class_outputs_of_a_plain_network():
    model = MODELS["BaselineCNN"].make()
    outputs = model(np.ones((2, 4, 3, 2), "float32"))
    found = array(class_outputs(outputs))
    assert found.shape == (2, 7)
    np.testing.assert_allclose(found.sum(-1), 1, rtol=1e-5)
    with pytest.raises(ValueError, match="must give a dict of them, with the key"):
        class_outputs([outputs, outputs])


def test_mixed_examples_are_not_decoded():
    model = CapsNet((8, 8, 1), classes=3, filters=4, kernel_size=3, types=2, primary_kernel_size=3)
    model.compile("sgd", MarginLoss(), run_eagerly=EAGER)
    rows = np.full((2, 3), 1 / 3, "float32")
    with pytest.raises(ValueError, match="can't draw mixed examples. Received labels: label, unmixed"):
        model.compute_loss(np.ones((2, 8, 8, 1)), {"label": rows, "unmixed": [0, 1]}, model(np.ones((2, 8, 8, 1))))


def test_a_layer_named_logits_makes_no_logits():
    class Users(keras.Model):
        def __init__(self):
            super().__init__()
            self.logits = keras.layers.Dense(5)

        def call(self, images):
            return keras.ops.softmax(self.logits(keras.layers.Flatten()(images)))

    model = Users()
    answer = model(np.ones((2, 3)))
    np.testing.assert_allclose(array(class_probabilities(model, answer)), array(answer))


@pytest.mark.long
def test_a_fresh_process_loads_models_and_weights(tmp_path):
    model = tiny(run_eagerly=EAGER)
    model.fit(IMAGES, LABELS, verbose=0)
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "set.weights.h5")
    np.save(tmp_path / "images.npy", IMAGES)
    script = f"""
import keras, numpy as np, pathlib, tf_capsules
from tf_capsules.models.sabour2017 import CapsNet
folder = pathlib.Path({str(tmp_path)!r})
images = np.load(folder / "images.npy")
loaded = keras.models.load_model(folder / "model.keras")
rebuilt = CapsNet(**{MODELS["CapsNet"].options!r}, weights=folder / "set.weights.h5")
for name, model in dict(loaded=loaded, rebuilt=rebuilt).items():
    outputs = {{key: keras.ops.convert_to_numpy(value) for key, value in model(images).items()}}
    decoded = keras.ops.convert_to_numpy(model.reconstruct(outputs["poses"]))
    np.savez(folder / f"{{name}}.npz", decoded=decoded, **outputs)
print(loaded.evaluate(images, np.array({LABELS.tolist()}), verbose=0))
"""
    done = run_script(script)
    assert done.returncode == 0, done.stderr
    expected = model.predict(IMAGES, verbose=0)
    expected["decoded"] = array(model.reconstruct(expected["poses"]))
    for name in ("loaded", "rebuilt"):
        with np.load(tmp_path / f"{name}.npz") as outputs:
            assert set(outputs) == set(expected)
            for key, value in expected.items():
                np.testing.assert_allclose(outputs[key], value, atol=1e-6)
    loss = float(done.stdout.splitlines()[-1])
    np.testing.assert_allclose(loss, model.evaluate(IMAGES, LABELS, verbose=0), rtol=1e-5)


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
@pytest.mark.parametrize("units", [None, (6,)])
def test_a_network_can_be_quantized(units):
    options = dict(filters=8, types=2, pose=4, dim=4, kernel_size=3, primary_kernel_size=3, decoder_units=units)
    model = CapsNet(IMAGES.shape[1:], CLASSES, **options)
    expected = array(class_outputs(model(IMAGES)))
    model.quantize("int8")
    np.testing.assert_allclose(array(class_outputs(model(IMAGES))), expected, atol=0.05)


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
def test_a_quantized_decoder_is_loaded(tmp_path):
    options = dict(filters=8, types=2, pose=4, dim=4, kernel_size=3, primary_kernel_size=3, decoder_units=(6,))
    model = CapsNet(IMAGES.shape[1:], CLASSES, **options)
    model.quantize("int8")
    model.save(tmp_path / "quantized.keras")
    loaded = keras.saving.load_model(tmp_path / "quantized.keras")
    poses = model(IMAGES)["poses"]
    np.testing.assert_array_equal(array(loaded.reconstruct(poses)), array(model.reconstruct(poses)))
