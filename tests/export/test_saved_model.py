import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
from served import NAMES, call, make_images, make_model, make_plain

from tf_capsules import export

if keras.backend.backend() != "tensorflow":
    pytest.skip("export runs on TensorFlow", allow_module_level=True)

import tensorflow as tf  # noqa: E402


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
