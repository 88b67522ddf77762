import keras
import numpy as np
import pytest
from backend import BACKEND, EAGER, JIT, array, gradients_of
from keras import ops

from tf_capsules.layers import HeinsenRouting
from tf_capsules.losses import SoftmaxCrossentropy
from tf_capsules.models.heinsen2019 import ImageCapsNet, MeanPooling, SelfAttentionCapsNet, TextCapsNet


@pytest.mark.parametrize(
    "network, options, trainable, total",
    [
        (ImageCapsNet, dict(), 271_688, 272_592),
        (TextCapsNet, dict(), 142_912, 142_912),
        (TextCapsNet, dict(classes=2), 141_376, 141_376),
        (TextCapsNet, dict(norm="post"), 140_480, 140_480),
        (TextCapsNet, dict(classes=2, norm="post"), 138_944, 138_944),
    ],
)
def test_published_parameter_counts(network, options, trainable, total):
    model = network(**options)
    assert sum(np.prod(weight.shape) for weight in model.trainable_weights) == trainable
    assert model.count_params() == total


def test_shapes_of_the_smallnorb_network():
    model = ImageCapsNet()
    shapes = {layer.name: layer.output for layer in model.encoder.layers}
    assert shapes["coordinates"].shape == (None, 96, 96, 4)
    sizes = [shapes[f"convolution_{block}"].shape[1] for block in range(1, 7)]
    assert sizes == [94, 46, 44, 21, 19, 9]
    assert shapes["poses"].shape == (None, 9, 9, 64, 4, 4) and shapes["scores"].shape == (None, 9, 9, 64)
    assert shapes["parts"][0].shape == (None, 64, 4, 4)
    assert model.encoder.output["variances"].shape == (None, 5, 4, 4)


def test_any_image_of_at_least_29_pixels():
    outputs = ImageCapsNet((29, 40, 1), classes=3, filters=8, types=9)(np.zeros((2, 29, 40, 1), "float32"))
    assert outputs["activations"].shape == (2, 3)
    vectors = ImageCapsNet((29, 29, 1), classes=3, filters=8, types=9, pose=4)(np.zeros((2, 29, 29, 1), "float32"))
    assert vectors["poses"].shape == (2, 3, 4)
    with pytest.raises(ValueError, match=r"at least 29 x 29.*\(28, 96, 2\)"):
        ImageCapsNet((28, 96, 2))
    with pytest.raises(ValueError, match="pointwise_initializer.*'zeros'"):
        ImageCapsNet(pointwise_initializer="zeros")


@pytest.mark.parametrize("rule, bias", [("kaiming", 0.0), ("uniform", 0.072)])
def test_initial_weights(rule, bias):
    keras.utils.set_random_seed(0)
    weights = {weight.path: array(weight) for weight in ImageCapsNet(pointwise_initializer=rule).weights}
    kernel = weights["convolution_3/kernel"]
    assert abs(kernel.std() / (2 / 576) ** 0.5 - 1) < 0.02 and np.abs(kernel).max() > 3.5 * kernel.std()
    pointwise = next(value for path, value in weights.items() if path.endswith("poses/poses/kernel"))
    limit = 1 / 8
    expected = (2 / 64) ** 0.5 if rule == "kaiming" else limit / 3**0.5
    assert abs(pointwise.std() / expected - 1) < 0.02
    assert (np.abs(pointwise).max() <= limit) == (rule == "uniform")
    assert abs(weights["scores/bias"].std() - bias) < 0.015
    assert not np.isin(weights["scores/kernel"].ravel()[:9], pointwise).all()


def test_the_first_loss_is_that_of_chance():
    model = ImageCapsNet((29, 29, 2), filters=8, types=9)
    images = np.random.default_rng(0).random((3, 29, 29, 2)).astype("float32")
    scores = model(images)["activations"]
    np.testing.assert_allclose(array(scores), 0, atol=1e-6)
    np.testing.assert_allclose(array(SoftmaxCrossentropy()(np.array([0, 4, 2]), scores)), np.log(5), rtol=1e-6)


def test_padding_does_not_change_a_text_s_answer():
    keras.utils.set_random_seed(0)
    model = TextCapsNet(layers=3, width=8, classes=4, dim=6, parts=9)
    for weight in model.weights:
        if "beta" in weight.name:
            weight.assign(np.random.default_rng(1).normal(size=weight.shape))
    random = np.random.default_rng(2)
    embeddings = random.normal(size=(2, 7, 3, 8)).astype("float32")
    mask = np.array([[1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 0, 0, 0, 0]], "float32")
    whole = model({"embeddings": embeddings, "mask": mask})
    for row, length in ((0, 5), (1, 3)):
        alone = {"embeddings": embeddings[row : row + 1, :length], "mask": mask[row : row + 1, :length]}
        for name, value in model(alone).items():
            np.testing.assert_allclose(array(value)[0], array(whole[name])[row], atol=2e-5)
    hidden = {"embeddings": embeddings, "mask": 0 * mask}
    first, second = array(model(hidden)["activations"])
    np.testing.assert_allclose(first, second, rtol=1e-5)


@pytest.mark.long
def test_it_learns_mixed_examples_and_counts_unmixed_labels():
    keras.utils.set_random_seed(0)
    model = TextCapsNet(layers=2, width=5, classes=3, dim=4, parts=8, iterations=2)
    accuracy = keras.metrics.SparseCategoricalAccuracy("accuracy")
    # Eagerly on TensorFlow: tracing takes longer than a few steps.
    options = dict(jit_compile=JIT, run_eagerly=EAGER)
    model.compile(keras.optimizers.Adam(0.05), SoftmaxCrossentropy(), weighted_metrics=[accuracy], **options)
    random = np.random.default_rng(0)
    x = {"embeddings": random.normal(size=(4, 3, 2, 5)).astype("float32"), "mask": np.ones((4, 3), "float32")}
    rows = np.eye(3, dtype="float32")[[0, 1, 2, 0]] * 0.3 + np.eye(3, dtype="float32")[[1, 1, 0, 2]] * 0.7
    labels = np.array([0, 1, 2, 0], "int32")
    logs = model.evaluate(x, {"label": rows, "unmixed": labels}, verbose=0, return_dict=True)
    np.testing.assert_allclose(logs["loss"], np.log(3), rtol=1e-5)
    best = array(ops.argmax(model(x)["activations"], axis=-1))
    np.testing.assert_allclose(logs["accuracy"], np.mean(best == labels))
    model.fit(x, {"label": rows, "unmixed": labels}, epochs=6, verbose=0)
    assert model.evaluate(x, {"label": rows, "unmixed": labels}, verbose=0)[0] < 1.0


def self_attention(**options):
    """A small network with random betas; the initial betas of zero would hide everything else."""
    small = dict(layers=3, width=7, classes=4, dim=12, heads=2, pose=5)
    model = SelfAttentionCapsNet(**{**small, **options})
    for weight in model.weights:
        if "beta" in weight.name:
            weight.assign(np.random.default_rng(1).normal(size=weight.shape))
    return model


def texts(batch=2, tokens=9):
    embeddings = np.random.default_rng(2).normal(size=(batch, tokens, 3, 7)).astype("float32")
    return {"embeddings": embeddings, "mask": np.ones((batch, tokens), "float32")}


def answers(model, inputs):
    """Outputs in NumPy. JAX compiles the call as a whole; its eager mode would compile each operation separately."""
    return keras.tree.map_structure(array, (model.predict_on_batch if BACKEND == "jax" else model)(inputs))


def primary_capsules(model, inputs):
    poses, scores = answers(keras.Model(model.encoder.input, model.encoder.get_layer("capsules").output), inputs)
    return poses[:, :, 0], scores


@pytest.mark.parametrize("pose", [4, 16, 64, 256])
def test_parameters_of_the_self_attention_network(pose):
    projection = 384 * 64 + 64
    block = 4 * 64 * 64 + 2 * 2 * 64 + (64 * 256 + 256) + (256 * 64 + 64)
    capsules = 64 + 2 * 64 + (64 * pose + pose)
    classes = 5 * (pose * pose + pose + 2)
    model = SelfAttentionCapsNet(layers=7, width=384, pose=pose)
    assert model.count_params() == projection + 2 * block + capsules + classes
    assert model.encoder.output["poses"].shape == (None, 5, 1, pose)


@pytest.mark.parametrize(
    "pose, density",
    [(4, "gaussian"), (4, "soft_k_means"), (16, "gaussian"), (64, "soft_k_means"), (256, "gaussian")],
)
def test_self_attention_network_has_finite_gradients_for_any_pose(pose, density):
    model = self_attention(pose=pose, density=density, blocks=1)
    inputs = texts()
    inputs["mask"][1, 3:] = [0.25, 1, 1, 0.75, 0, 0]

    def loss(*weights):
        fixed = [array(x) for x in model.non_trainable_variables]
        outputs, _ = model.stateless_call(weights, fixed, inputs)
        return SoftmaxCrossentropy()(np.array([3, 1]), outputs["activations"])

    value, gradients = gradients_of(loss)(*(array(x) for x in model.trainable_variables))
    assert np.isfinite(value)
    for weight, gradient in zip(model.trainable_variables, gradients, strict=True):
        # With poses of 256 numbers, densities differ so much that each child may go to one class: gradients can be 0.
        assert np.isfinite(gradient).all() and (np.abs(gradient).max() > 0 or pose == 256), weight.path


def test_padding_does_not_change_the_self_attention_network_s_answer():
    model, inputs = self_attention(), texts()
    inputs["mask"][0, 8:] = inputs["mask"][1, 3:] = 0
    whole = answers(model, inputs)
    for row, length in ((0, 8), (1, 3)):
        alone = {name: x[row : row + 1, :length] for name, x in inputs.items()}
        for name, value in answers(model, alone).items():
            np.testing.assert_allclose(value[0], whole[name][row], atol=2e-5)
    hidden = answers(model, {**inputs, "mask": 0 * inputs["mask"]})["activations"]
    assert np.isfinite(hidden).all() and (hidden == hidden[0]).all()


def test_self_attention_network_reads_the_lowest_hidden_state_only():
    model, inputs = self_attention(), texts()
    before = answers(model, inputs)["activations"]
    inputs["embeddings"][:, :, 1:] += 1
    np.testing.assert_array_equal(answers(model, inputs)["activations"], before)
    inputs["embeddings"][:, :, 0] += 1
    assert np.abs(answers(model, inputs)["activations"] - before).max() > 1e-3


def test_self_attention_looks_at_what_is_there_in_whole_or_in_part():
    model, inputs = self_attention(), texts()
    whole, _ = primary_capsules(model, inputs)
    inputs["mask"][:, 4] = 0.2
    part, scores = primary_capsules(model, inputs)
    np.testing.assert_array_equal(part, whole)
    np.testing.assert_allclose(scores[:, 4], np.log(0.2 / 0.8), rtol=1e-6)
    assert np.isposinf(np.delete(scores, 4, axis=1)).all()
    inputs["mask"][:, 4] = 0
    without, scores = primary_capsules(model, inputs)
    assert np.abs(without - whole).max() > 1e-3 and np.isneginf(scores[:, 4]).all()
    inputs["embeddings"][:, 4] += 1
    hidden, _ = primary_capsules(model, inputs)
    np.testing.assert_allclose(np.delete(hidden, 4, axis=1), np.delete(without, 4, axis=1), atol=1e-6)


def test_saved_self_attention_network_is_the_same(tmp_path):
    model, inputs = self_attention(parts=10, density="soft_k_means", blocks=1, dropout=0.5), texts()
    inputs["mask"][1, 5:] = 0
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    before, after = answers(model, inputs), answers(loaded, inputs)
    for name, value in before.items():
        np.testing.assert_allclose(after[name], value, atol=1e-6)
    names = [layer.name for layer in loaded.encoder.layers if isinstance(layer, HeinsenRouting)]
    assert names == ["parts", "classes"]
    trained = array(model(inputs, training=True)["activations"])
    assert np.abs(trained - before["activations"]).max() > 1e-3  # dropout


@pytest.mark.long
def test_self_attention_network_learns_from_mixed_examples():
    model, inputs = self_attention(blocks=1, iterations=2), texts(batch=6)
    inputs["mask"][::2, 6:] = 0.3
    rows = np.eye(4, dtype="float32")[[0, 1, 2, 0, 3, 1]]
    model.compile(keras.optimizers.Adam(0.01), SoftmaxCrossentropy(), jit_compile=JIT)
    before = model.evaluate(inputs, rows, verbose=0)
    model.fit(inputs, rows, epochs=40, verbose=0)
    assert model.evaluate(inputs, rows, verbose=0) < min(0.3, before)


def test_self_attention_network_says_what_does_not_fit():
    with pytest.raises(ValueError, match="`layers`.*Received: 0"):
        self_attention(layers=0)
    with pytest.raises(ValueError, match="`dim` must be a multiple of `heads`, 5. Received: 12"):
        self_attention(heads=5)
    with pytest.raises(ValueError, match="`heads`.*Received: 0"):
        self_attention(heads=0)
    with pytest.raises(ValueError, match="`blocks`.*Received: 1.5"):
        self_attention(blocks=1.5)
    with pytest.raises(ValueError, match="`density`.*Received: 'laplace'"):
        self_attention(density="laplace")


@pytest.mark.parametrize(("option", "value"), [("pose", (2, 2)), ("parts", 0), ("classes", 0)])
def test_a_wrong_argument_of_the_text_network_is_named(option, value):
    with pytest.raises(ValueError, match=f"`{option}` must be a whole number of at least 1. Received: "):
        TextCapsNet(3, 8, **{"classes": 2, option: value})


def test_a_wrong_number_of_classes_of_the_mean_is_named():
    with pytest.raises(ValueError, match="`classes` must be a whole number of at least 1. Received: 0"):
        MeanPooling(3, 8, 0)


def test_mean_pooling_weighs_tokens_by_the_mask():
    model, random = MeanPooling(layers=3, width=4, classes=5), np.random.default_rng(0)
    embeddings = random.normal(size=(3, 6, 3, 4)).astype("float32")
    mask = np.array([[1, 1, 1, 1, 1, 1], [1, 0.5, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]], "float32")
    kernel, bias = (array(weight) for weight in model.get_layer("classes").weights)
    means = [embeddings[0].mean(0), (embeddings[1, 0] + 0.5 * embeddings[1, 1]) / 1.5, np.zeros((3, 4))]
    scores = np.stack(means).reshape(3, 12) @ kernel + bias
    expected = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(array(model({"embeddings": embeddings, "mask": mask})), expected, rtol=1e-4)
