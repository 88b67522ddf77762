"""Any bytes in a file and any command line either work or get a one-line error, and they leave nothing behind."""

import contextlib
import io
import json
import os
import pathlib
import tempfile
import warnings

import keras
import numpy as np
import pytest

pytest.importorskip("hypothesis")
from hypothesis import example, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from tf_capsules import cli  # noqa: E402
from tf_capsules.datasets import smallnorb  # noqa: E402
from tf_capsules.datasets.folder import folder as load_folder  # noqa: E402
from tf_capsules.datasets.npz import load_npz  # noqa: E402
from tf_capsules.datasets.sst import tree_phrases  # noqa: E402
from tf_capsules.files import write_csv  # noqa: E402
from tf_capsules.models.weights.keras_file import fill, seal  # noqa: E402
from tf_capsules.runs import Settings, run, table, training  # noqa: E402
from tf_capsules.runs.data_spec import ImageSpec  # noqa: E402
from tf_capsules.runs.folder import RunFolder  # noqa: E402

few = settings(max_examples=40, derandomize=True, deadline=None, database=None)

# Kinds of damage: cut off the end, change one byte, insert some bytes, or replace all.
damages = st.one_of(
    st.tuples(st.just("cut"), st.floats(0, 1)),
    st.tuples(st.just("change"), st.floats(0, 1, exclude_max=True), st.integers(1, 255)),
    st.tuples(st.just("insert"), st.floats(0, 1), st.binary(min_size=1, max_size=9)),
    st.tuples(st.just("replace"), st.binary(max_size=200)),
)


def damaged(content, damage):
    kind, *values = damage
    if kind == "replace":
        return values[0]
    place = int(values[0] * len(content))
    if kind == "cut":
        return content[:place]
    if kind == "change":
        return content[:place] + bytes([content[place] ^ values[1]]) + content[place + 1 :]
    return content[:place] + values[1] + content[place:]


@contextlib.contextmanager
def refusing(path):
    """Checks that the only error is a ValueError of one line that begins with the path."""
    try:
        yield
    except ValueError as error:
        assert str(error).startswith(str(path)) and "\n" not in str(error), error


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The bytes of an undamaged file of each kind."""
    from PIL import Image

    place = tmp_path_factory.mktemp("whole")
    x, y = np.arange(6 * 4 * 5, dtype=np.uint8).reshape(6, 4, 5, 1), np.arange(6) % 3
    arrays = {"x_train": x, "y_train": y, "x_test": x[:3], "y_test": y[:3]}
    np.savez(place / "plain.npz", **arrays)
    np.savez_compressed(place / "small.npz", **arrays)
    Image.fromarray(x[0, ..., 0]).save(place / "image.png")
    Image.fromarray(x[0, ..., 0]).save(place / "image.jpg")
    Image.fromarray(x[0, ..., 0]).save(place / "image.gif")
    network().save_weights(place / "net.weights.h5")
    seal(place / "net.weights.h5")
    network().save(place / "net.keras")
    rows = [dict(epoch=i, learning_rate=0.1, seconds=1.5, loss=0.5, val_loss=0.5, val_accuracy=0.9) for i in (1, 2)]
    write_csv(place / "history.csv", rows)
    return {path.name: path.read_bytes() for path in place.iterdir()}


def network():
    layer = keras.layers.Dense(3, kernel_initializer="ones")
    return keras.Sequential([keras.Input((4,)), layer], name="network")


@pytest.mark.parametrize("name", ["plain.npz", "small.npz"])
@given(damage=damages)
@few
def test_arrays(whole, name, damage):
    with tempfile.TemporaryDirectory() as place:
        path = pathlib.Path(place, name)
        path.write_bytes(damaged(whole[name], damage))
        with refusing(path):
            assert load_npz(path)["x_train"].shape == (6, 4, 5, 1)


@pytest.mark.parametrize("name", ["image.png", "image.jpg", "image.gif"])
@given(damage=damages)
@few
def test_folders_of_images(whole, name, damage):
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of the file
        for part in ("train", "test"):
            for kind in ("cat", "dog"):
                pathlib.Path(place, part, kind).mkdir(parents=True)
                pathlib.Path(place, part, kind, name).write_bytes(whole[name])
        path = pathlib.Path(place, "train", "dog", name)
        path.write_bytes(damaged(whole[name], damage))
        with refusing(path):
            assert load_folder(place, image_size=3).train.image_shape == (3, 3, 3)


@pytest.mark.parametrize("name", ["net.weights.h5", "net.keras"])
@given(damage=damages)
@few
def test_weights_are_the_same_or_refused(whole, name, damage):
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile warns of bytes before an archive
        path, model = pathlib.Path(place, name), network()
        path.write_bytes(damaged(whole[name], damage))
        with refusing(path):
            fill(model, path)
            np.testing.assert_array_equal(keras.ops.convert_to_numpy(model.weights[0]), np.ones((4, 3)))


@given(damage=damages)
@few
def test_histories(whole, damage):
    with tempfile.TemporaryDirectory() as place:
        path = pathlib.Path(place, "history.csv")
        path.write_bytes(damaged(whole[path.name], damage))
        with refusing(path):
            assert all(row["val_accuracy"] is not None for row in RunFolder(place).history("accuracy"))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
CONFIG = {
    "recipe": "sabour2017-digits",
    "settings": {name: value for name, value in vars(Settings()).items()},
    "resolved": {"epochs": 3},
    "data": ImageSpec("digits", tuple("0123456789"), 9, 4, "", (8, 8, 1), (8, 8, 1)).to_json(),
}
places = [(part,) for part in CONFIG]
places += [(part, key) for part in ("settings", "data") for key in (*CONFIG[part], "new")]


@given(place=st.sampled_from(places), value=json_values)
@example(place=("settings", "seed"), value=0)
@few
def test_configurations_of_runs(place, value):
    config = json.loads(json.dumps(CONFIG))
    *part, key = place
    (config[part[0]] if part else config)[key] = value
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "build_model", lambda *_, **__: None)
        patch.setattr(run, "compile_learner", lambda *_: network())
        path = pathlib.Path(folder, "config.json")
        path.write_text(json.dumps(config))
        pathlib.Path(folder, "best.weights.h5").write_bytes(b"none")
        with refusing(folder):
            run.load_run(folder, "best")
            raise AssertionError("there are no weights")


@given(content=st.binary(max_size=60) | st.binary(max_size=40).map(lambda end: b"\x54\x4c\x3d\x1e\x01\0\0\0" + end))
@few
def test_matrices(content):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "labels.mat")
        path.write_bytes(content)
        with refusing(path):
            assert smallnorb._read(path.parent, path.name, "<i4", (None,)).ndim == 1


@given(tree=st.lists(st.sampled_from(["(", ")", "0", "4", "7", " ", "a", "\x1f"]), max_size=15).map("".join))
@example(tree="(3 (2 good) (2 film))")
@few
def test_trees(tree):
    with contextlib.suppress(ValueError):
        assert all(label in range(5) and text for label, text in tree_phrases(tree))


COMMANDS = [name for name in cli.COMMANDS if name != "cost"]
OPTIONS = sorted({option for name in COMMANDS for option in cli.make_parser()._subparsers._group_actions[0]
                  .choices[name]._option_string_actions})  # fmt: skip
VALUES = ["0", "-1", "1", "1e9", "nan", "inf", "", "none", "last", "a\nb", "\udc80", "mnist", "sst_fine", "digits",
          "sabour2017-digits", "heinsen2019-sst2", "li2018-mnist-cnn", "sabour2017-digits@0", "x.tflite", "my.npz",
          ".", "/", "litert", "on", "mirrored", "float32", "--", "recipes", "\0"]  # fmt: skip
words = st.one_of(st.sampled_from(OPTIONS), st.sampled_from(VALUES), st.text(max_size=4))


@given(command=st.sampled_from(COMMANDS), rest=st.lists(words, max_size=5))
@example(command="train", rest=["--data", "a\0b"])
@example(command="train", rest=["0", "a\nb"])
@example(command="evaluate", rest=["sabour2017-digits", "--weights", "\0"])
@settings(few, max_examples=150)
def test_command_lines(command, rest):
    def stop(*_, **__):
        raise ValueError("no work is done in this test")

    out, err, before = io.StringIO(), io.StringIO(), os.getcwd()
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "check_folder", stop)
        patch.setattr(training, "load_data", stop)
        patch.setattr(run, "load_data", stop)
        patch.setattr(table, "_run", stop)
        os.chdir(place)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = cli.main([command, *rest])
        except SystemExit as ended:  # argparse
            status = ended.code
        finally:
            os.chdir(before)
        assert not os.listdir(place)
    said = err.getvalue()
    assert (status, said) == (0, "") or (status == 2 and said.startswith("tf-capsules") and said.count("\n") == 1)
    assert status == 2 or command == "list" or {"-h", "--help"} & set(rest)
