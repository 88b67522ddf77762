import keras
import numpy as np
import pytest
from backend import array
from keras import ops

from tf_capsules.losses import SoftmaxCrossentropy
from tf_capsules.models.heinsen2019 import ImageCapsNet, TextCapsNet


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
    assert (array(model(hidden)["activations"]) == array(model(hidden)["activations"])[0]).all()


def test_it_learns_mixed_examples_and_counts_unmixed_labels():
    keras.utils.set_random_seed(0)
    model = TextCapsNet(layers=2, width=5, classes=3, dim=4, parts=8)
    model.compile("adam", SoftmaxCrossentropy(), weighted_metrics=[keras.metrics.SparseCategoricalAccuracy("accuracy")])
    random = np.random.default_rng(0)
    x = {"embeddings": random.normal(size=(4, 3, 2, 5)).astype("float32"), "mask": np.ones((4, 3), "float32")}
    rows = np.eye(3, dtype="float32")[[0, 1, 2, 0]] * 0.3 + np.eye(3, dtype="float32")[[1, 1, 0, 2]] * 0.7
    labels = np.array([0, 1, 2, 0], "int32")
    logs = model.evaluate(x, {"label": rows, "unmixed": labels}, verbose=0, return_dict=True)
    np.testing.assert_allclose(logs["loss"], np.log(3), rtol=1e-5)
    best = array(ops.argmax(model(x)["activations"], axis=-1))
    np.testing.assert_allclose(logs["accuracy"], np.mean(best == labels))
    model.fit(x, {"label": rows, "unmixed": labels}, epochs=60, verbose=0)
    assert model.evaluate(x, {"label": rows, "unmixed": labels}, verbose=0)[0] < 1.0
