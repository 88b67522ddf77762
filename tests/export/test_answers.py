import warnings

import keras
import numpy as np
import pytest
from served import NAMES, answering, call, encoded, make_images

from tf_capsules import export
from tf_capsules.export.images import warn_of_image_logits
from tf_capsules.layers import EMRouting, HeinsenRouting

if keras.backend.backend() != "tensorflow":
    pytest.skip("export runs on TensorFlow", allow_module_level=True)

import tensorflow as tf  # noqa: E402


@pytest.mark.parametrize("batch", [0, 1, 3])
def test_any_batch_size(model, loaded, batch):
    images = make_images((batch, 8, 7, 1))
    want = (
        call(model, images / np.float32(255))
        if batch
        else {"activations": np.zeros((0, 5)), "poses": np.zeros((0, 5, 9))}
    )
    files = tf.constant([encoded(image) for image in images], tf.string, (batch,))
    for answer in (
        loaded.serve(images),
        loaded.serve(images / np.float32(255)),
        loaded.signatures["serving_default"](images=tf.constant(images / np.float32(255))),
        loaded.signatures["serving_bytes"](files=files),
    ):
        np.testing.assert_allclose(answer["probabilities"], want["activations"], atol=1e-6)
        np.testing.assert_allclose(answer["poses"], want["poses"], atol=1e-6)
        assert answer["class"].shape == answer["label"].shape == (batch,)


def test_a_plain_network_answers_without_poses(plain, tmp_path):
    loaded = tf.saved_model.load(str(export.export_saved_model(plain, tmp_path / "model", class_names=NAMES)))
    images = make_images()
    answer = loaded.serve(images)
    assert set(answer) == {"probabilities", "class", "label"}
    np.testing.assert_allclose(answer["probabilities"], plain(images / np.float32(255)), atol=1e-6)


IMAGES = keras.Input((4, 4, 2))


CAPSULES = keras.layers.Reshape((8, 4))(IMAGES)


class OwnRouting(EMRouting):
    """A user's own layer answers as the layer that it inherits from."""


LOGITS = {
    "heinsen_routing": HeinsenRouting(3, 4, name="heinsen_routing")(CAPSULES)[1],
    "em_routing": EMRouting(3, 4, name="em_routing")(CAPSULES, keras.layers.Activation("sigmoid")(CAPSULES[..., 0]))[2],
    "own_routing": OwnRouting(3, 4, name="own_routing")(CAPSULES)[2],
    "dense": keras.layers.Dense(3, name="dense")(keras.layers.Flatten()(IMAGES)),
    "last": keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(3, name="last")])(IMAGES),
}


LOGITS["float32_dense"] = keras.layers.Activation("linear", dtype="float32")(
    keras.layers.Dense(3, name="float32_dense", dtype="mixed_bfloat16")(keras.layers.Flatten()(IMAGES))
)


LOGITS["inner"] = keras.Model(IMAGES, [IMAGES, keras.layers.Dense(3, name="inner")(LOGITS["dense"])])(IMAGES)[1]


@pytest.mark.parametrize("name", LOGITS)
def test_logits_served_as_probabilities_are_warned_of(name):
    """The warning comes also before training, when logits can lie in [0, 1]: those of `HeinsenRouting` are all 0."""
    with pytest.warns(UserWarning, match=f"but they are not probabilities: its layer '{name}' gives logits"):
        warn_of_image_logits(keras.Model(IMAGES, LOGITS[name]), (), (4, 4, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        shares = keras.layers.Softmax()(LOGITS[name])
        for outputs in (shares, keras.layers.Activation("linear", dtype="float32")(shares)):
            warn_of_image_logits(keras.Model(IMAGES, outputs), (), (4, 4, 2))


def test_logits_of_a_sequential_model_are_warned_of_in_the_caller_s_line(tmp_path):
    last = keras.layers.Dense(3, kernel_initializer="zeros", name="last")
    model = keras.Sequential([keras.Input((4, 4, 2)), keras.layers.Flatten(), last])
    last.bias.assign([0.2, 0.3, 0.4])
    with pytest.warns(UserWarning, match="its layer 'last' gives logits") as told:
        export.export_saved_model(model, tmp_path / "sequential")
    assert told[0].filename == __file__


def test_numbers_that_are_no_probabilities_are_warned_of(tmp_path):
    five = keras.ops.add(LOGITS["dense"], 5.0)
    with pytest.warns(UserWarning, match=r"but they are not probabilities: it answers with numbers such as \d\.\d\d\."):
        export.export_saved_model(keras.Model(IMAGES, five), tmp_path / "five")


@pytest.mark.parametrize(
    "outputs, shapes",
    [
        (keras.layers.Dense(1, "sigmoid"), r"\(None, 1\)"),
        (keras.layers.Reshape((8, 7)), r"\(None, 8, 7\)"),
        (lambda x: [keras.layers.Softmax()(x), x], r"\[\(None, 56\), \(None, 56\)\]"),
        (lambda x: {"probs": keras.layers.Softmax()(x)}, r"\{'probs': \(None, 56\)\}"),
    ],
)
def test_answers_without_classes_are_refused(tmp_path, outputs, shapes):
    with pytest.raises(ValueError, match=f"Exports need a model .* own answers with {shapes}"):
        export.export_saved_model(answering(outputs), tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_activations_may_come_without_poses(tmp_path):
    model = answering(lambda x: {"activations": keras.layers.Softmax()(x)})
    served = tf.saved_model.load(str(export.export_saved_model(model, tmp_path / "model")))
    assert set(served.serve(np.zeros((1, 8, 7, 1), np.uint8))) == {"class", "probabilities"}


def test_names_may_be_bytes(plain, tmp_path):
    names = [name.encode() for name in NAMES]
    served = tf.saved_model.load(str(export.export_saved_model(plain, tmp_path / "model", class_names=names)))
    assert set(served.serve(make_images())["label"].numpy()) <= set(names)
