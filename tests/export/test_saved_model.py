import io
import pathlib
import re
import subprocess
import sys
import warnings

import keras
import numpy as np
import pytest
from PIL import Image
from served import NAMES, STEPS, call, encoded, make_images, make_model, make_plain

from tf_capsules import export
from tf_capsules.datasets import augment
from tf_capsules.export.images import warn_of_image_logits
from tf_capsules.layers import EMRouting, HeinsenRouting

if keras.backend.backend() != "tensorflow":
    pytest.skip("export runs on TensorFlow", allow_module_level=True)

import tensorflow as tf  # noqa: E402


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    return make_model()


@pytest.fixture(scope="module")
def plain():
    """A network without routing, for tests that do not depend on the network: its export takes a third of the time."""
    keras.utils.set_random_seed(0)
    return make_plain()


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    return export.export_saved_model(model, tmp_path_factory.mktemp("export") / "model", class_names=NAMES)


@pytest.fixture(scope="module")
def loaded(folder):
    return tf.saved_model.load(str(folder))


def serve(folder, images):
    """The answers of a process with TensorFlow alone to uint8 images: {signature: {output: array}}."""
    script = """
import sys, numpy as np, tensorflow as tf
images = np.load(sys.argv[2])
loaded = tf.saved_model.load(sys.argv[1])
answers = {
    "serving_default": loaded.signatures["serving_default"](images=tf.constant(images / np.float32(255))),
    "serving_uint8": loaded.signatures["serving_uint8"](images=tf.constant(images)),
    "serving_bytes": loaded.signatures["serving_bytes"](files=tf.stack([tf.io.encode_png(i) for i in images])),
    "serve": loaded.serve(images),
}
assert not [name for name in sys.modules if name.split(".")[0] == "tf_capsules"]
np.savez(sys.argv[3], **{f"{s}/{k}": v.numpy() for s, answer in answers.items() for k, v in answer.items()})
"""
    place = folder.parent
    np.save(place / "images.npy", images)
    arguments = [str(folder), str(place / "images.npy"), str(place / "answers.npz")]
    subprocess.run([sys.executable, "-c", script, *arguments], check=True, cwd=place, capture_output=True, timeout=120)
    answers = {}
    with np.load(place / "answers.npz", allow_pickle=True) as archive:
        for key in archive:
            signature, name = key.split("/")
            answers.setdefault(signature, {})[name] = archive[key]
    return answers


@pytest.mark.long
def test_a_process_with_tensorflow_alone_gives_the_models_numbers(model, folder):
    images = make_images()
    want = call(model, images / np.float32(255))
    answers = serve(folder, images)
    assert set(answers) == {"serving_default", "serving_uint8", "serving_bytes", "serve"}
    for answer in answers.values():
        assert set(answer) == {"probabilities", "poses", "class", "label"}
        np.testing.assert_allclose(answer["probabilities"], want["activations"], atol=1e-6)
        np.testing.assert_allclose(answer["poses"], want["poses"], atol=1e-6)
        np.testing.assert_array_equal(answer["class"], want["activations"].argmax(-1))
        assert [label.decode() for label in answer["label"]] == [NAMES[c] for c in answer["class"]]
        assert answer["class"].dtype == np.int64 and answer["poses"].dtype == np.float32
    np.testing.assert_array_equal(answers["serving_bytes"]["poses"], answers["serving_uint8"]["poses"])


def test_weights_are_stored_once_and_only_those_that_serve(tmp_path):
    model = make_model()
    model.compile("adam", loss="mse")
    model.optimizer.build(model.trainable_variables)
    folder = export.export_saved_model(model, tmp_path / "model")
    stored = tf.train.list_variables(str(folder / "variables" / "variables"))
    numbers = sum(
        int(np.prod(shape)) for name, shape in stored if "OBJECT_GRAPH" not in name and "save_counter" not in name
    )
    assert numbers == model.encoder.count_params()
    size = (folder / "variables" / "variables.data-00000-of-00001").stat().st_size
    assert 4 * numbers <= size < 4 * numbers + 4096


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


@pytest.mark.parametrize("default", ["float32", "uint8"])
def test_default_chooses_what_serving_default_takes(plain, tmp_path, default):
    loaded = tf.saved_model.load(str(export.export_saved_model(plain, tmp_path / "model", default=default)))
    specs = {name: signature.structured_input_signature[1] for name, signature in loaded.signatures.items()}
    assert set(specs) == {"serving_default", "serving_float32", "serving_uint8", "serving_bytes"}
    assert specs["serving_default"]["images"].dtype == default
    assert specs["serving_uint8"]["images"].dtype == "uint8" and specs["serving_float32"]["images"].dtype == "float32"
    assert specs["serving_default"]["images"].shape == (None, 8, 7, 1)
    assert "label" not in loaded.signatures["serving_default"].structured_outputs


def test_a_place_that_cannot_be_written_is_named(plain):
    if not pathlib.Path("/proc").is_dir():
        pytest.skip("no file system that refuses every user")
    with pytest.raises(OSError, match="/proc/served can't be written: .*No such file or directory"):
        export.export_saved_model(plain, "/proc/served")


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


@pytest.mark.parametrize(
    "options, message",
    [
        ({"default": "int8"}, "Received: 'int8'"),
        ({"class_names": ["ant", "bee"]}, "5 classes. Received 2"),
        ({"class_names": "abcde"}, "has a name for each class, in their order. Received: 'abcde'"),
        ({"class_names": dict(enumerate("abcde"))}, "has a name for each class, in their order. Received: {0: 'a'"),
        ({"class_names": iter("abcde")}, "has a name for each class, in their order. Received: <"),
        ({"class_names": set("abcde")}, "has a name for each class, in their order. Received: {"),
        ({"preprocess": (("blur", 2),)}, "'blur'"),
        ({"preprocess": (("crop", 8),)}, "give `image_shape`"),
        ({"preprocess": (("pad", 4),)}, "Received: 0"),
        ({"image_shape": (8, 9, 1)}, r"images \(8, 7, 1\); images \(8, 9, 1\) are \(8, 9, 1\)"),
        ({"image_shape": (8, None, 1)}, "Received: None"),
        ({"image_shape": (8, 7)}, r"`image_shape` must be \(height, width, channels\). Received: \(8, 7\)"),
    ],
)
def test_bad_arguments_are_refused_and_nothing_is_written(model, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        export.export_saved_model(model, tmp_path / "model", **options)
    assert not list(tmp_path.iterdir())


def test_an_earlier_export_is_replaced_and_nothing_else_is(plain, tmp_path):
    folder = tmp_path / "deep" / "model"
    export.export_saved_model(make_plain(width=9), folder)
    export.export_saved_model(plain, folder, class_names=NAMES)
    assert "label" in tf.saved_model.load(str(folder)).signatures["serving_default"].structured_outputs
    assert [path.name for path in folder.parent.iterdir()] == ["model"]
    (folder / "notes.txt").write_text("mine")
    for other in (folder, folder / "notes.txt"):
        with pytest.raises(ValueError, match=r"is not overwritten: .* other files than a SavedModel \(notes.txt\)"):
            export.export_saved_model(plain, other)
    assert (folder / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("entries", [["assets"], ["variables", "assets.extra"], ["saved_model.pb/of mine"]])
def test_a_folder_that_is_no_saved_model_is_refused(model, tmp_path, entries):
    folder = tmp_path / "mine"
    for entry in entries:
        (folder / entry).mkdir(parents=True)
    with pytest.raises(ValueError, match="mine is not overwritten: it holds other files than a SavedModel"):
        export.export_saved_model(model, folder)
    assert all((folder / entry).is_dir() for entry in entries)


def test_an_empty_folder_is_filled(plain, tmp_path):
    assert tf.saved_model.load(str(export.export_saved_model(plain, tmp_path))).signatures


def test_a_folder_behind_a_link_is_replaced_and_the_link_stays(plain, tmp_path):
    (tmp_path / "v1").mkdir()
    (tmp_path / "current").symlink_to("v1")
    for _ in range(2):
        export.export_saved_model(plain, tmp_path / "current")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["current", "v1"]
    assert (tmp_path / "current").is_symlink() and (tmp_path / "v1" / "saved_model.pb").exists()


def test_a_folder_that_cannot_be_replaced_is_refused_before_work(plain, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pathlib.Path, "is_mount", lambda path: path == tmp_path / "disk")
    for folder in (".", tmp_path, tmp_path / "disk"):
        with pytest.raises(ValueError, match="can't be replaced: you are in it, or a disk is mounted there"):
            export.export_saved_model(plain, folder)


def test_an_address_is_no_folder(plain, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="gs://bucket/digits can't be written: give a path of this machine"):
        export.export_saved_model(plain, "gs://bucket/digits")
    assert not list(tmp_path.iterdir())


def test_a_version_that_another_process_has_written_meanwhile_stays(plain, tmp_path, monkeypatch):
    folder, save = export.version_folder(tmp_path), tf.saved_model.save

    def slow(*arguments):
        save(*arguments)
        folder.mkdir()
        (folder / "saved_model.pb").touch()

    monkeypatch.setattr(tf.saved_model, "save", slow)
    with pytest.raises(FileExistsError, match="Another process created .*1 in the meantime"):
        export.export_saved_model(plain, folder)
    assert [path.name for path in tmp_path.rglob("*")] == ["1", "saved_model.pb"]


def answering(outputs, dtype="float32"):
    """A model of images that answers with `outputs` of their 56 values."""
    images = keras.Input((8, 7, 1), dtype=dtype)
    return keras.Model(images, outputs(keras.layers.Flatten()(images)), name="own")


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


@pytest.mark.parametrize("dtype", ["uint8", "int32"])
def test_a_model_of_whole_numbers_is_refused(tmp_path, dtype):
    with pytest.raises(ValueError, match=f"give a model float32 images in .0, 1.; own takes {dtype}"):
        export.export_saved_model(answering(keras.layers.Softmax(), dtype), tmp_path / "model")


def test_names_may_be_bytes(plain, tmp_path):
    names = [name.encode() for name in NAMES]
    served = tf.saved_model.load(str(export.export_saved_model(plain, tmp_path / "model", class_names=names)))
    assert set(served.serve(make_images())["label"].numpy()) <= set(names)


def test_a_failure_while_writing_leaves_the_earlier_export(plain, tmp_path, monkeypatch):
    folder = export.export_saved_model(plain, tmp_path / "model")
    before = (folder / "saved_model.pb").read_bytes()

    def save(module, path, signatures):
        pathlib.Path(path).mkdir()
        (pathlib.Path(path) / "saved_model.pb").write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(tf.saved_model, "save", save)
    with pytest.raises(OSError, match="disk full"):
        export.export_saved_model(plain, folder)
    assert (folder / "saved_model.pb").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_other_backends_are_told_the_way(model, tmp_path, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    images = (export.export_saved_model, export.export_litert, export.export_onnx)
    for function in (*images, export.export_embeddings_saved_model):
        with pytest.raises(RuntimeError, match="'jax'.*KERAS_BACKEND=tensorflow"):
            function(model, tmp_path / "model")
