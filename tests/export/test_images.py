import io
import re

import keras
import numpy as np
import pytest
from PIL import Image
from served import STEPS, answering, call, encoded, make_images, make_model, make_plain

from tf_capsules import export
from tf_capsules.datasets import augment

if keras.backend.backend() != "tensorflow":
    pytest.skip("export runs on TensorFlow", allow_module_level=True)

import tensorflow as tf  # noqa: E402


@pytest.mark.parametrize("channels", [1, 3])
def test_every_format_is_decoded_to_the_models_channels(tmp_path, channels):
    loaded = tf.saved_model.load(str(export.export_saved_model(make_plain(channels), tmp_path / "model")))
    grey = make_images((8, 7, 1))
    want = loaded.serve(np.repeat(grey, channels, axis=-1)[None])
    kinds = ["PNG", "BMP", "GIF"] + ["WEBP"] * (tf.__version__ >= "2.21")  # WebP is tried with that version
    for kind in kinds:
        answer = loaded.signatures["serving_bytes"](files=tf.constant([encoded(grey, kind)]))
        np.testing.assert_allclose(answer["probabilities"], want["probabilities"], atol=1e-6, err_msg=kind)


def test_a_model_that_tells_no_shape_needs_it(tmp_path):
    class Users(keras.Model):
        def __init__(self):
            super().__init__()
            self.encoder = make_plain()  # a name that has no meaning in a model of the user's
            self.inner = make_plain()

        def call(self, images):
            return self.inner(images)

    model, images = Users(), make_images() / np.float32(255)
    expected = model(images)
    with pytest.raises(ValueError, match="can't be told from the model's .None, None, None.*`image_shape`"):
        export.export_saved_model(model, tmp_path / "model")
    served = tf.saved_model.load(str(export.export_saved_model(model, tmp_path / "model", image_shape=(8, 7, 1))))
    np.testing.assert_allclose(served.serve(images)["probabilities"], expected, atol=1e-6)


def test_an_animated_webp_file_is_refused(loaded):
    frames = [Image.fromarray(make_images((8, 7, 3)) // (1 + n)) for n in range(2)]
    file = io.BytesIO()
    frames[0].save(file, "webp", save_all=True, append_images=frames[1:], lossless=True)
    with pytest.raises(tf.errors.InvalidArgumentError, match="animated WebP files are not decoded"):
        loaded.signatures["serving_bytes"](files=tf.constant([file.getvalue()]))


def test_colours_become_grey_by_their_luma_and_alpha_is_dropped(loaded):
    colours = make_images((8, 7, 4))
    answer = loaded.signatures["serving_bytes"](files=tf.constant([encoded(colours)]))
    grey = (colours[..., :3] / np.float32(255)) @ np.float32([0.299, 0.587, 0.114])
    np.testing.assert_allclose(answer["poses"], loaded.serve(grey[None, ..., None])["poses"], atol=1e-6)


def test_jpeg_files_and_files_of_other_sizes_are_resized(loaded):
    big = np.repeat(np.repeat(make_images((8, 7, 1)), 4, axis=0), 4, axis=1)
    for kind in ("PNG", "JPEG"):
        file = encoded(big, kind)
        answer = loaded.signatures["serving_bytes"](files=tf.constant([file]))
        pixels = np.array(Image.open(io.BytesIO(file)))[..., None]
        small = tf.image.resize(pixels / np.float32(255), (8, 7), antialias=True)
        want = loaded.serve(small[None])["poses"].numpy()
        np.testing.assert_allclose(answer["poses"], want, atol=1e-4 * np.ptp(want))


def test_two_channels_have_no_encoded_form(tmp_path):
    loaded = tf.saved_model.load(str(export.export_saved_model(make_plain(2), tmp_path / "model")))
    assert "serving_bytes" not in loaded.signatures


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_preprocessing_runs_inside_under_every_policy(tmp_path, policy):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        model = make_model(3, width=8, iterations=1)
    finally:
        keras.config.set_dtype_policy(before)
    images = make_images((3, 18, 22, 3))
    want = call(model, np.stack([augment.apply(STEPS, image / np.float32(255)) for image in images]))
    folder = export.export_saved_model(model, tmp_path / "model", STEPS, image_shape=(18, 22, 3))
    loaded = tf.saved_model.load(str(folder))
    answer = loaded.serve(images)
    assert answer["poses"].dtype == answer["probabilities"].dtype == tf.float32
    tolerance = 1e-6 if policy == "float32" else 0.02 * np.ptp(want["poses"])
    np.testing.assert_allclose(answer["poses"], want["poses"], atol=tolerance)
    files = tf.constant([encoded(image) for image in images])
    np.testing.assert_array_equal(loaded.signatures["serving_bytes"](files=files)["poses"], answer["poses"])
    assert loaded.serve(images[:0])["poses"].shape == (0, 5, 9)


def test_the_shape_before_the_steps_is_found(tmp_path):
    steps = (("pad", 1), ("downscale", 3), ("standardize",))
    loaded = tf.saved_model.load(str(export.export_saved_model(make_plain(width=10), tmp_path / "model", steps)))
    assert loaded.signatures["serving_default"].structured_input_signature[1]["images"].shape == (None, 22, 28, 1)


def test_steps_of_training_alone_add_nothing(plain, tmp_path):
    loaded = tf.saved_model.load(str(export.export_saved_model(plain, tmp_path / "model", (("shift", 2), ("flip",)))))
    operations = {op.type for op in loaded.signatures["serving_float32"].graph.get_operations()}
    nested = {
        node.op
        for f in loaded.signatures["serving_float32"].graph.as_graph_def().library.function
        for node in f.node_def
    }
    assert not {name for name in operations | nested if "While" in name}


@pytest.mark.parametrize("value", [200.0, 1.02, -1.0, np.nan, np.inf])
def test_float_images_beyond_their_range_are_refused(loaded, value):
    images = make_images() / np.float32(255)
    images[2, 3, 4, 0] = value
    message = re.escape("float32 images must be in [0, 1]; pixels of 0 to 255 are for serving_uint8.")
    for name in ("serving_default", "serving_float32"):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            loaded.signatures[name](images=tf.constant(images))
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        loaded.serve(images)


def test_rounding_beyond_the_range_is_answered(loaded):
    """Resizing and half precision can push pixels slightly out of [0, 1]."""
    for value in (1.005, -0.005):
        images = np.full((2, 8, 7, 1), value, "float32")
        assert np.isfinite(loaded.serve(images)["probabilities"]).all()


def test_images_of_another_shape_or_dtype_are_refused(loaded):
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=re.escape("[2,9,7,1] is not compatible with expected shape [?,8,7,1]")
    ):
        loaded.signatures["serving_default"](images=tf.zeros((2, 9, 7, 1)))
    with pytest.raises(ValueError, match=re.escape("shape=(None, 8, 7, 1)")):
        loaded.serve(np.zeros((2, 9, 7, 1), "float32"))
    with pytest.raises(ValueError, match="float64"):
        loaded.serve(np.zeros((2, 8, 7, 1), "float64"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Unknown image file format"):
        loaded.signatures["serving_bytes"](files=tf.constant(["not an image"]))


@pytest.mark.parametrize("dtype", ["uint8", "int32"])
def test_a_model_of_whole_numbers_is_refused(tmp_path, dtype):
    with pytest.raises(ValueError, match=f"give a model float32 images in .0, 1.; own takes {dtype}"):
        export.export_saved_model(answering(keras.layers.Softmax(), dtype), tmp_path / "model")
