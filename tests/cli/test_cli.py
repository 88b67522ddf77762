"""Commands that train nothing, and what all commands refuse."""

import pathlib

import keras
import pytest
import tensorflow as tf

from tf_capsules import cli, recipes


@pytest.mark.long
def test_a_recipe_is_evaluated_drawn_and_exported_with_given_weights(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    of = ["sabour2017-digits", "--weights", "sabour2017-digits"]
    assert cli.main(["evaluate", *of, "--jit", "off", "--batch-size", "90", "--results", "results.csv"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("360 test images of digits, loss 0.0")
    assert said[0].endswith(" ms each, compiling included")
    assert said[1] == "weights sabour2017-digits" and float(said[-1].split()[-1].rstrip("%")) > 99
    header, row = (line.split(",") for line in (tmp_path / "results.csv").read_text().splitlines())
    row = dict(zip(header, row, strict=True))
    assert (row["note"], row["settings"]) == ("weights sabour2017-digits", "jit off")
    assert (
        row["epochs"],
        row["train_examples"],
    ) == ("0", "0")
    assert row["batch_size"] == str(recipes.get("sabour2017-digits").batch_size) != "90"
    assert cli.main(["figures", *of]) == 0
    pictures = {path.stem for path in (tmp_path / "runs" / "sabour2017-digits-weights" / "figures").glob("*.png")}
    assert pictures == set(recipes.get("sabour2017-digits").figures) - {"training_curves"}
    if keras.backend.backend() == "tensorflow":
        assert cli.main(["export", *of]) == 0
        assert (tmp_path / "runs" / "sabour2017-digits-weights" / "saved_model" / "saved_model.pb").exists()


def test_a_reader_may_stop_reading(monkeypatch, capfd):
    def broken(options):
        print("read")
        raise BrokenPipeError

    monkeypatch.setattr("tf_capsules.cli.list.run", broken)
    assert cli.main(["list"]) == 141
    assert "error" not in capfd.readouterr().err.lower()


def test_an_interruption_while_the_package_is_imported(monkeypatch, capsys):
    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr("importlib.import_module", interrupted)
    assert cli.main(["list"]) == 130
    assert capsys.readouterr().err.strip() == "interrupted"


def test_pictures_that_cannot_be_written_are_refused_before_work(trained, tmp_path, said, no_data):
    (tmp_path / "file").touch()
    for command in ("attack", "figures"):
        assert "picture can't be written" in said(command, trained[0], "-o", tmp_path / "file")


def test_a_mistyped_recipe_is_told(said):
    assert "no recipe 'sabour2017-digit'. Did you mean sabour2017-digits" in said(
        "export", "sabour2017-digit", "--weights", "sabour2017-digits"
    )


def test_results_that_cannot_be_appended_are_refused_before_work(trained, tmp_path, capsys, monkeypatch):
    folder, _ = trained
    (tmp_path / "other.csv").write_text("other\n")
    results = ["--results", str(tmp_path / "other.csv")]
    monkeypatch.setattr(keras.Model, "fit", None)
    monkeypatch.setattr(keras.Model, "evaluate", None)
    for command, first in (
        (["train", "-o", str(tmp_path / "run")], "recipe"),
        (["evaluate", str(folder)], "recipe"),
        (["attack", str(folder)], "run"),
    ):
        assert cli.main(command + results) == 2
        assert f"other.csv has the columns ['other'], not ['{first}'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["train", "sabour2017-minst"], "There is no recipe 'sabour2017-minst'. Did you mean"),
        (["train", "tsai2020-cifar10@3"], "Other commands take tsai2020-cifar10 --iterations 3"),
        (["train", "--epochs", "-3"], "--epochs must be at least 1. Received: -3"),
        (["train", "--image-size", "9"], "--image-size 9 is for a folder of images. Received: digits"),
        (["train", "--warmup", "7", "--mixup", "0.2"], "--warmup must be between 0 and 1. Received: 7.0"),
        (["train", "--data", "absent.npz"], "absent.npz: there is no such file"),
        (["evaluate", "absent"], "absent is not the folder of a run"),
        (["attack", "absent"], "absent is not the folder of a run"),
        (["export", "absent"], "absent is not the folder of a run"),
        (["figures", "absent"], "absent is not the folder of a run"),
    ],
)
def test_mistakes_are_named_in_one_line_with_status_2(command, message, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert cli.main(command) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith(f"tf-capsules {command[0]}: ") and message in error and "\n" not in error
    assert not list(pathlib.Path(tmp_path).iterdir())


@pytest.mark.parametrize(
    "error, words",
    [
        (tf.errors.ResourceExhaustedError(None, None, "OOM when\nallocating"), "out of memory"),
        (tf.errors.ResourceExhaustedError(None, None, "/tmp/x; No space left on device"), "/tmp/x; No space left"),
        (tf.errors.DataLossError(None, None, "a broken\nrecord"), "a broken record"),
    ],
)
def test_tensorflow_s_errors_are_told_in_one_line_too(error, words, capsys, monkeypatch):
    def fail(options):
        raise error

    monkeypatch.setattr("tf_capsules.cli.list.run", fail)
    assert cli.main(["list"]) == 2
    told = capsys.readouterr().err.strip()
    assert told.startswith(f"tf-capsules list: {words}") and "\n" not in told
