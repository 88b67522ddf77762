import importlib.util
import itertools
import re
import warnings

import keras
import numpy as np
import pytest
from served import STEPS, call, make_images, make_model, make_plain
from sweep import MODELS

from tf_capsules import export
from tf_capsules.datasets import augment
from tf_capsules.models import class_probabilities, with_feedback

if keras.backend.backend() != "tensorflow":
    pytest.skip("export runs on TensorFlow", allow_module_level=True)

import tensorflow as tf  # noqa: E402


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    return make_model(iterations=1)


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
    """(function that writes a file, function that runs it, smallest batch that it takes)."""
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


@pytest.mark.long
@pytest.mark.parametrize("name", ["MatrixCapsNet", "AttentionCapsNet", "EfficientCapsNet"])
def test_networks_of_other_routings_are_converted(tmp_path, converter, name, monkeypatch):
    if name == "MatrixCapsNet" and converter[1] is run_litert and tf.__version__ < "2.21":
        pytest.skip("TensorFlow's converter slices arrays of six axes from 2.21 on")
    if converter[1] is run_onnx:
        from tf2onnx.optimizer import einsum_optimizer

        # tf2onnx tries all orders of an einsum's letters, only for speed. Seven letters take it ten seconds.
        monkeypatch.setattr(einsum_optimizer, "permutations", lambda x: itertools.islice(itertools.permutations(x), 6))
    case = MODELS[name]
    model, images = case.make(), case.arrays()["images"][:3]
    assert_converted(converter, tmp_path / "model", model, images)


@pytest.mark.long
def test_loops_within_an_image_are_for_litert_alone(tmp_path):
    case = MODELS["CapNet"]
    model, images = case.make(), case.arrays()["images"][:2]
    assert_converted((export.export_litert, run_litert, 1), tmp_path / "model.tflite", model, images)
    pytest.importorskip("tf2onnx")
    with pytest.raises(ValueError, match="capnet loops within an image, which its ONNX form can't"):
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


def test_the_range_of_images_is_not_checked_but_stated(model, tmp_path, converter):
    """Both converters drop assertions."""
    write, run, _ = converter
    images = np.full((1, 8, 7, 1), 200, "float32")
    want = call(model, images)
    np.testing.assert_allclose(run(write(model, tmp_path / "model"), images)["poses"], want["poses"], atol=1e-5)
    if run is run_onnx:
        import onnx

        assert "in [0, 1]" in onnx.load(tmp_path / "model").graph.input[0].doc_string


def test_converters_refuse_half_precision_quantized_layers_and_folders(model, tmp_path, converter):
    half = keras.Sequential(
        [keras.Input((8, 7, 1)), keras.layers.Flatten(), keras.layers.Dense(5, dtype="mixed_bfloat16")]
    )
    keras.config.set_dtype_policy("mixed_bfloat16")
    for network in (half, MODELS["MatrixCapsNet"].make()):
        with pytest.raises(ValueError, match="computes in bfloat16"):
            converter[0](network, tmp_path / "model")
    with pytest.raises(ValueError, match="is a folder"):
        converter[0](model, tmp_path)
    if converter[1] is not run_onnx:
        plain = keras.Sequential(
            [keras.Input((8, 7, 1)), keras.layers.Flatten(), keras.layers.Dense(5, dtype="float32")]
        )
        plain.layers[-1].quantize("int8")
        with pytest.raises(ValueError, match=r"does not take Keras's quantized layers \(dense.*, ...\)"):
            converter[0](plain, tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_model_of_the_same_form_is_replaced_and_nothing_else(tmp_path, converter):
    write, run, _ = converter
    images = make_images() / np.float32(255)
    plain = make_plain()
    file = write(make_plain(), tmp_path / "model")
    answer = run(write(plain, file), images)
    np.testing.assert_allclose(answer["probabilities"], plain(images), atol=1e-5)
    for content in (b"notes of mine", b"PK\x03\x04" + 99 * b"\0"):
        file.write_bytes(content)
        with pytest.raises(ValueError, match="model is not overwritten: it exists, and is no (LiteRT|ONNX) model"):
            write(plain, file)
        assert file.read_bytes() == content
    for export_model in (write, export.export_saved_model):
        with pytest.raises(ValueError, match="below can't be written: .*/model is no folder that may be written to"):
            export_model(plain, file / "below")


def test_without_its_packages_onnx_says_what_to_install(model, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ImportError, match=re.escape("tf2onnx, onnx, not installed (pip install 'tf_capsules[export]')")
    ):
        export.export_onnx(model, tmp_path / "model.onnx")


def test_a_model_in_training_with_feedback_is_converted_without_it(tmp_path):
    inputs = keras.Input((8, 7, 1))
    low = keras.layers.Conv2D(4, 3, name="low")(inputs)
    high = keras.layers.Conv2D(4, 3, padding="same", name="high")(low)
    network = keras.Model(inputs, keras.layers.Dense(5, "softmax")(keras.layers.Flatten()(high)))
    training, images = with_feedback(network, [("low", "high")], groups=1), make_images() / np.float32(255)
    answer = run_litert(export.export_litert(training, tmp_path / "model"), images)
    np.testing.assert_allclose(answer["probabilities"], network(images), atol=1e-5)
