import importlib.util
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
from sweep import MODELS

from tf_capsules import export
from tf_capsules.datasets import augment
from tf_capsules.models import class_probabilities
from tf_capsules.models.heinsen2019 import TextCapsNet
from tf_capsules.models.sabour2017 import CapsNet

if keras.backend.backend() != "tensorflow":
    pytest.skip("export runs on TensorFlow", allow_module_level=True)

import tensorflow as tf  # noqa: E402

NAMES = ["ant", "bee", "cat", "dog", "eel"]
STEPS = (("downscale", 2), ("brightness", 63), ("crop", 8), ("standardize",))


def make_model(channels=1, width=7, **options):
    sizes = {"filters": 6, "kernel_size": 3, "types": 3, "pose": 4, "primary_kernel_size": 3, "primary_strides": 1}
    return CapsNet((8, width, channels), classes=5, dim=9, **sizes, decoder_units=(11,), **options)


def make_images(shape=(4, 8, 7, 1), seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def encoded(image, kind="PNG"):
    file = io.BytesIO()
    Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).save(file, kind)
    return file.getvalue()


def call(model, images):
    return {name: keras.ops.convert_to_numpy(value) for name, value in model(np.float32(images)).items()}


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    return make_model()


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    return export.export_saved_model(model, tmp_path_factory.mktemp("export") / "model", class_names=NAMES)


@pytest.fixture(scope="module")
def loaded(folder):
    return tf.saved_model.load(str(folder))


def serve(folder, images):
    """What a process with TensorFlow alone answers to uint8 images: {signature: {output: array}}."""
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


def test_weights_are_stored_once_and_only_those_that_serve(model, folder):
    model = make_model()
    model.compile("adam", loss="mse")
    model.optimizer.build(model.trainable_variables)
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
def test_default_chooses_what_serving_default_takes(model, tmp_path, default):
    loaded = tf.saved_model.load(str(export.export_saved_model(model, tmp_path / "model", default=default)))
    specs = {name: signature.structured_input_signature[1] for name, signature in loaded.signatures.items()}
    assert set(specs) == {"serving_default", "serving_float32", "serving_uint8", "serving_bytes"}
    assert specs["serving_default"]["images"].dtype == default
    assert specs["serving_uint8"]["images"].dtype == "uint8" and specs["serving_float32"]["images"].dtype == "float32"
    assert specs["serving_default"]["images"].shape == (None, 8, 7, 1)
    assert "label" not in loaded.signatures["serving_default"].structured_outputs


@pytest.mark.parametrize("kind", ["PNG", "BMP", "GIF"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_format_is_decoded_to_the_models_channels(tmp_path, kind, channels):
    model = make_model(channels)
    loaded = tf.saved_model.load(str(export.export_saved_model(model, tmp_path / "model")))
    grey = make_images((8, 7, 1))
    answer = loaded.signatures["serving_bytes"](files=tf.constant([encoded(grey, kind)]))
    want = loaded.serve(np.repeat(grey, channels, axis=-1)[None])
    np.testing.assert_allclose(answer["poses"], want["poses"], atol=1e-6)


def test_colours_become_grey_by_their_luma_and_alpha_is_dropped(loaded):
    colours = make_images((8, 7, 4))
    answer = loaded.signatures["serving_bytes"](files=tf.constant([encoded(colours)]))
    grey = (colours[..., :3] / np.float32(255)) @ np.float32([0.299, 0.587, 0.114])
    np.testing.assert_allclose(answer["poses"], loaded.serve(grey[None, ..., None])["poses"], atol=1e-6)


def test_jpeg_files_and_files_of_other_sizes_are_resized(loaded):
    big = np.repeat(np.repeat(make_images((8, 7, 1)), 4, axis=0), 4, axis=1)
    for kind, tolerance in (("PNG", 1e-6), ("JPEG", 0.02)):
        answer = loaded.signatures["serving_bytes"](files=tf.constant([encoded(big, kind)]))
        small = tf.image.resize(big / np.float32(255), (8, 7), antialias=True)
        np.testing.assert_allclose(answer["poses"], loaded.serve(small[None])["poses"], atol=tolerance)


def test_two_channels_have_no_encoded_form(tmp_path):
    loaded = tf.saved_model.load(str(export.export_saved_model(make_model(2), tmp_path / "model")))
    assert "serving_bytes" not in loaded.signatures


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_preprocessing_runs_inside_under_every_policy(tmp_path, policy):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        model = make_model(3, width=8)
    finally:
        keras.config.set_dtype_policy(before)
    images = make_images((3, 18, 22, 3))
    want = call(model, np.stack([augment.apply(STEPS, image / np.float32(255)) for image in images]))
    folder = export.export_saved_model(model, tmp_path / "model", STEPS, image_shape=(18, 22, 3))
    loaded = tf.saved_model.load(str(folder))
    answer = loaded.serve(images)
    assert answer["poses"].dtype == answer["probabilities"].dtype == tf.float32
    tolerance = 1e-6 if policy == "float32" else 0.02
    np.testing.assert_allclose(answer["poses"], want["poses"], atol=tolerance)
    files = tf.constant([encoded(image) for image in images])
    np.testing.assert_array_equal(loaded.signatures["serving_bytes"](files=files)["poses"], answer["poses"])
    assert loaded.serve(images[:0])["poses"].shape == (0, 5, 9)


def test_the_shape_before_the_steps_is_found(tmp_path):
    steps = (("pad", 1), ("downscale", 3), ("standardize",))
    loaded = tf.saved_model.load(str(export.export_saved_model(make_model(width=10), tmp_path / "model", steps)))
    assert loaded.signatures["serving_default"].structured_input_signature[1]["images"].shape == (None, 22, 28, 1)


def test_steps_of_training_alone_add_nothing(model, tmp_path):
    loaded = tf.saved_model.load(str(export.export_saved_model(model, tmp_path / "model", (("shift", 2), ("flip",)))))
    operations = {op.type for op in loaded.signatures["serving_float32"].graph.get_operations()}
    nested = {
        node.op
        for f in loaded.signatures["serving_float32"].graph.as_graph_def().library.function
        for node in f.node_def
    }
    assert not {name for name in operations | nested if "While" in name}


def test_a_plain_network_answers_without_poses(tmp_path):
    network = keras.Sequential([keras.Input((8, 7, 1)), keras.layers.Flatten(), keras.layers.Dense(5, "softmax")])
    loaded = tf.saved_model.load(str(export.export_saved_model(network, tmp_path / "model", class_names=NAMES)))
    images = make_images()
    answer = loaded.serve(images)
    assert set(answer) == {"probabilities", "class", "label"}
    np.testing.assert_allclose(answer["probabilities"], network(images / np.float32(255)), atol=1e-6)


def test_scores_served_as_probabilities_are_warned_of(tmp_path):
    images = keras.Input((4, 4, 1))
    scores = keras.layers.Dense(3, bias_initializer=keras.initializers.Constant(5.0))(keras.layers.Flatten()(images))
    with pytest.warns(UserWarning, match="answers with scores such as .*, which are no probabilities"):
        export.export_saved_model(keras.Model(images, scores), tmp_path / "scores")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        export.export_saved_model(keras.Model(images, keras.layers.Softmax()(scores)), tmp_path / "shares")


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
        ({"preprocess": (("blur", 2),)}, "'blur'"),
        ({"preprocess": (("crop", 8),)}, "give `image_shape`"),
        ({"preprocess": (("pad", 4),)}, "Received: 0"),
        ({"image_shape": (8, 9, 1)}, r"images \(8, 7, 1\); images \(8, 9, 1\) are \(8, 9, 1\)"),
        ({"image_shape": (8, None, 1)}, "Received: None"),
    ],
)
def test_bad_arguments_are_refused_and_nothing_is_written(model, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        export.export_saved_model(model, tmp_path / "model", **options)
    assert not list(tmp_path.iterdir())


def make_text_model(**options):
    """A text network whose answers differ from text to text, unlike those of betas of zero."""
    keras.utils.set_random_seed(0)
    text_model = TextCapsNet(layers=3, width=8, classes=5, dim=6, parts=9, **options)
    random = np.random.default_rng(1)
    for weight in text_model.weights:
        if "beta" in weight.name:
            weight.assign(random.normal(scale=0.1, size=weight.shape))
    return text_model


def make_states(batch=4, tokens=7):
    embeddings = np.random.default_rng(0).normal(size=(batch, tokens, 3, 8)).astype("float32")
    return embeddings, (np.arange(tokens) < 1 + 2 * np.arange(batch)[:, None]).astype("float32")


SERVE_EMBEDDINGS = """
import sys, numpy as np, tensorflow as tf
states = np.load("states.npz")
loaded = tf.saved_model.load(sys.argv[1])
answer = loaded.signatures["serving_default"](**{name: tf.constant(states[name]) for name in states})
assert not [name for name in sys.modules if name.split(".")[0] in ("tf_capsules", "tensorflow_text")]
np.savez("answers.npz", **{name: value.numpy() for name, value in answer.items()})
"""


def test_a_text_network_is_served_from_hidden_states(tmp_path):
    text_model, (embeddings, mask) = make_text_model(), make_states()
    folder = export.export_embeddings_saved_model(text_model, tmp_path / "model", NAMES)
    np.savez(tmp_path / "states.npz", embeddings=embeddings, mask=mask)
    command = [sys.executable, "-c", SERVE_EMBEDDINGS, str(folder)]
    subprocess.run(command, check=True, cwd=tmp_path, capture_output=True, timeout=120)
    outputs = text_model({"embeddings": embeddings, "mask": mask})
    probabilities = keras.ops.convert_to_numpy(keras.ops.softmax(outputs["activations"]))
    assert probabilities.std(0).min() > 1e-3
    with np.load(tmp_path / "answers.npz", allow_pickle=True) as answers:
        assert set(answers) == {"probabilities", "poses", "class", "label"}
        np.testing.assert_allclose(answers["probabilities"], probabilities, atol=1e-6)
        np.testing.assert_allclose(answers["poses"], outputs["poses"], atol=1e-6)
        np.testing.assert_array_equal(answers["class"], probabilities.argmax(-1))
        assert [label.decode() for label in answers["label"]] == [NAMES[c] for c in answers["class"]]
    stored = tf.train.list_variables(str(folder / "variables" / "variables"))
    numbers = [int(np.prod(shape)) for name, shape in stored if "OBJECT_GRAPH" not in name and "counter" not in name]
    assert sum(numbers) == text_model.count_params()


def test_any_number_of_texts_and_tokens(tmp_path):
    full = make_text_model()
    keras.config.set_dtype_policy("mixed_bfloat16")
    half = make_text_model()
    for number, (text_model, tolerance) in enumerate(((full, 1e-6), (half, 0.02))):
        loaded = tf.saved_model.load(str(export.export_embeddings_saved_model(text_model, tmp_path / str(number))))
        for batch, tokens in ((1, 7), (2, 1), (4, 0), (0, 7), (0, 0)):
            embeddings, mask = make_states(batch, tokens)
            answers = loaded.serve(embeddings, mask)
            want = text_model({"embeddings": embeddings, "mask": mask})
            assert set(answers) == {"probabilities", "poses", "class"}
            assert answers["poses"].dtype == answers["probabilities"].dtype == tf.float32
            np.testing.assert_allclose(answers["poses"], want["poses"], atol=tolerance)
            np.testing.assert_allclose(answers["probabilities"], tf.nn.softmax(want["activations"]), atol=tolerance)


def test_a_mask_of_other_texts_is_refused(tmp_path):
    loaded = tf.saved_model.load(str(export.export_embeddings_saved_model(make_text_model(), tmp_path / "model")))
    embeddings, mask = make_states(4, 6)
    with pytest.raises(tf.errors.InvalidArgumentError, match="the mask is \\(batch, tokens\\) of the embeddings"):
        loaded.signatures["serving_default"](embeddings=tf.constant(embeddings), mask=tf.constant(mask.T))
    with pytest.raises(tf.errors.InvalidArgumentError, match=re.escape("[4,6,3,7] is not compatible")):
        loaded.signatures["serving_default"](embeddings=tf.constant(embeddings[..., 1:]), mask=tf.constant(mask))


def test_each_export_takes_its_own_kind_of_model(model, tmp_path):
    text_model = make_text_model()
    with pytest.raises(ValueError, match='dict of hidden states, "embeddings" and "mask".*CapsuleClassifier'):
        export.export_embeddings_saved_model(model, tmp_path / "model")
    with pytest.raises(ValueError, match="5 classes. Received 2"):
        export.export_embeddings_saved_model(text_model, tmp_path / "model", ["ant", "bee"])
    for function in (export.export_saved_model, export.export_litert):
        with pytest.raises(ValueError, match="hidden states of texts, not images.*CapsuleClassifier"):
            function(text_model, tmp_path / "model")
    assert not list(tmp_path.iterdir())
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="holds something else"):
        export.export_embeddings_saved_model(text_model, tmp_path)


def test_an_earlier_export_is_replaced_and_nothing_else_is(model, tmp_path):
    folder = tmp_path / "deep" / "model"
    export.export_saved_model(make_model(width=9), folder)
    export.export_saved_model(model, folder, class_names=NAMES)
    assert "label" in tf.saved_model.load(str(folder)).signatures["serving_default"].structured_outputs
    assert [path.name for path in folder.parent.iterdir()] == ["model"]
    (folder / "notes.txt").write_text("mine")
    for other in (folder, folder / "notes.txt"):
        with pytest.raises(ValueError, match="holds something else"):
            export.export_saved_model(model, other)
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_failure_while_writing_leaves_the_earlier_export(model, tmp_path, monkeypatch):
    folder = export.export_saved_model(model, tmp_path / "model")
    before = (folder / "saved_model.pb").read_bytes()

    def save(module, path, signatures):
        pathlib.Path(path).mkdir()
        (pathlib.Path(path) / "saved_model.pb").write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(tf.saved_model, "save", save)
    with pytest.raises(OSError, match="disk full"):
        export.export_saved_model(model, folder)
    assert (folder / "saved_model.pb").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def run_litert(file, images):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tf.lite.Interpreter announces that it will move to another package
        return tf.lite.Interpreter(str(file)).get_signature_runner()(images=images)


def run_onnx(file, images):
    session = pytest.importorskip("onnxruntime").InferenceSession(str(file), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {"images": images}), strict=True))


@pytest.fixture(params=["litert", "onnx"])
def converter(request):
    """(what writes a file, what runs it, the fewest images that it takes)."""
    if request.param == "litert":
        return export.export_litert, run_litert, 1
    pytest.importorskip("tf2onnx")
    return export.export_onnx, run_onnx, 0


def assert_converted(converter, file, model, images, steps=()):
    write, run, fewest = converter
    assert write(model, file, steps, image_shape=images.shape[1:]) == file
    want = call(model, np.stack([augment.apply(steps, image) for image in images]))
    probabilities = keras.ops.convert_to_numpy(class_probabilities(model, want))
    for batch in (len(images), 1, fewest):
        answer = run(file, images[:batch])
        assert set(answer) == {"probabilities", "poses", "class"} and answer["class"].dtype == np.int64
        np.testing.assert_allclose(answer["probabilities"], probabilities[:batch], atol=1e-5)
        np.testing.assert_allclose(answer["poses"], want["poses"][:batch], atol=1e-5)
        np.testing.assert_array_equal(answer["class"], probabilities[:batch].argmax(-1))


@pytest.mark.parametrize("steps", [(), STEPS])
def test_converted_files_give_the_models_numbers(tmp_path, converter, steps):
    model = make_model(3, width=8)
    images = make_images((4, 18, 22, 3) if steps else (4, 8, 8, 3)) / np.float32(255)
    assert_converted(converter, tmp_path / "model", model, images, steps)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("name", ["MatrixCapsNet", "AttentionCapsNet"])
def test_networks_of_other_routings_are_converted(tmp_path, converter, name):
    if name == "MatrixCapsNet" and converter[1] is run_litert and tf.__version__ < "2.21":
        pytest.skip("TensorFlow's converter slices arrays of six axes from 2.21 on")
    case = MODELS[name]
    model, images = case.make(), case.arrays()["images"][:3]
    assert_converted(converter, tmp_path / "model", model, images)


def test_loops_within_an_image_are_for_litert_alone(tmp_path):
    case = MODELS["CapNet"]
    model, images = case.make(), case.arrays()["images"][:2]
    assert_converted((export.export_litert, run_litert, 1), tmp_path / "model.tflite", model, images)
    pytest.importorskip("tf2onnx")
    with pytest.raises(ValueError, match="ONNX has no form for the loops within an image of capnet"):
        export.export_onnx(model, tmp_path / "model.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["model.tflite"]


def test_a_plain_network_is_converted(tmp_path, converter):
    network = keras.Sequential([keras.Input((8, 7, 1)), keras.layers.Conv2D(3, 3), keras.layers.Flatten()])
    network.add(keras.layers.Dense(5, "softmax"))
    images = make_images() / np.float32(255)
    write, run, _ = converter
    answer = run(write(network, tmp_path / "model"), images)
    assert set(answer) == {"probabilities", "class"}
    np.testing.assert_allclose(answer["probabilities"], network(images), atol=1e-5)


def test_converters_refuse_half_precision_and_folders(model, tmp_path, converter):
    half = keras.Sequential(
        [keras.Input((8, 7, 1)), keras.layers.Flatten(), keras.layers.Dense(5, dtype="mixed_bfloat16")]
    )
    keras.config.set_dtype_policy("mixed_bfloat16")
    for network in (half, MODELS["MatrixCapsNet"].make()):
        with pytest.raises(ValueError, match="computes in bfloat16"):
            converter[0](network, tmp_path / "model")
    with pytest.raises(ValueError, match="is a folder"):
        converter[0](model, tmp_path)
    assert not list(tmp_path.iterdir())


def test_without_its_packages_onnx_says_what_to_install(model, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ImportError, match=re.escape("tf2onnx, onnx, not installed (pip install 'tf_capsules[export]')")
    ):
        export.export_onnx(model, tmp_path / "model.onnx")


def test_versions_are_numbered_and_never_replaced(tmp_path):
    folder = tmp_path / "deep" / "model"
    assert export.version_folder(folder) == folder / "1" and not folder.exists()
    for name in ("2", "010", ".11.123.partial", "notes"):
        (folder / name).mkdir(parents=True)
    assert export.version_folder(folder) == folder / "11"
    assert export.version_folder(folder, 7) == folder / "7"
    for version, message in ((10, "10 is there"), (0, "Received: 0"), ("two", "Received: 'two'")):
        with pytest.raises(ValueError, match=message):
            export.version_folder(folder, version)
    (folder / "2" / "saved_model.pb").touch()
    with pytest.raises(ValueError, match="2 is a SavedModel; versions of one go into a folder of their own"):
        export.version_folder(folder / "2")


def test_warmup_requests_are_written_with_the_rest_or_not_at_all(model, folder, tmp_path, monkeypatch):
    assert not (folder / "assets.extra").exists()
    target = export.export_saved_model(model, tmp_path / "model", warmup=True)
    warmup = target / "assets.extra" / "tf_serving_warmup_requests"
    assert warmup.stat().st_size > 500
    tf.saved_model.load(str(target))
    export.export_saved_model(model, target)
    assert not warmup.exists()
    monkeypatch.setattr(export, "_one_example", lambda spec: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        export.export_saved_model(model, tmp_path / "other", warmup=True)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_hidden_states_are_warmed_up_too(tmp_path):
    folder = export.export_embeddings_saved_model(make_text_model(), tmp_path / "1", NAMES, warmup=True)
    pytest.importorskip("tensorflow_serving.apis", reason="needs the package tensorflow-serving-api")
    from loopback_server import Client, serving

    with serving({"head": tmp_path}) as server, Client(server, "head") as client:
        (answer,) = server["models"].versions["head"][1].warmed
        assert answer["probabilities"].shape == (1, 5) and np.isfinite(answer["poses"]).all()
        embeddings, mask = make_states()
        loaded = tf.saved_model.load(str(folder))
        want = loaded.serve(embeddings, mask)["probabilities"]
        answer = client.ask_grpc({"embeddings": embeddings, "mask": mask})
        np.testing.assert_allclose(answer["probabilities"], want, atol=1e-6)
        rows = [{"embeddings": e.tolist(), "mask": m.tolist()} for e, m in zip(embeddings, mask, strict=True)]
        status, answer = client.ask_rest({"instances": rows})
        assert status == 200
        np.testing.assert_allclose([row["probabilities"] for row in answer["predictions"]], want, atol=1e-6)
        assert client.ask_rest({"instances": embeddings.tolist()})[0] == 400


def test_other_backends_are_told_the_way(model, tmp_path, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    images = (export.export_saved_model, export.export_litert, export.export_onnx)
    for function in (*images, export.export_embeddings_saved_model):
        with pytest.raises(RuntimeError, match="'jax'.*KERAS_BACKEND=tensorflow"):
            function(model, tmp_path / "model")
