"""What the repository ships, measured again: the digits weights and the SavedModel made from them."""

import pathlib

import keras
import numpy as np
import pytest

from tf_capsules import datasets, recipes
from tf_capsules.models import weights

MODELS = pathlib.Path(__file__).parents[1] / "saved_models"


def test_every_shipped_set_has_a_card():
    assert weights.names() == ["sabour2017-digits"]
    for name in weights.names():
        assert "Measured: " in (weights.FOLDER / f"{name}.md").read_text()


def test_the_digits_weights_and_the_saved_model_have_the_accuracy_on_their_card():
    test = datasets.load("digits").test
    images, labels = test.arrays["image"].astype(np.float32) / 255, test.arrays["label"]
    recipe = recipes.get("sabour2017-digits")
    model = recipe.model(image_shape=(8, 8, 1), classes=10, **recipe.model_options, weights="sabour2017-digits")
    lengths = keras.ops.convert_to_numpy(model(images)["activations"])
    accuracy = np.mean(lengths.argmax(-1) == labels)
    assert f"{accuracy:.2%}" in (weights.FOLDER / "sabour2017-digits.md").read_text()
    if not MODELS.exists():
        pytest.skip("saved_models/ is part of the repository, not of the wheel")
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        served = tf.saved_model.load(str(MODELS / "digits"))
        np.testing.assert_allclose(served.serve(tf.constant(images))["probabilities"], lengths, atol=1e-5)
