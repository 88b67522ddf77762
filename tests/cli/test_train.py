import importlib.util

import keras
import pytest

from tf_capsules import cli, recipes


def test_train_ends_with_pictures_export_a_served_prediction_and_the_accuracy(trained):
    folder, lines = trained
    assert lines[0].startswith("sabour2017-digits: ")
    pictures = sorted(path.stem for path in (folder / "figures").glob("*.png"))
    assert pictures == sorted(recipes.get("sabour2017-digits").figures)
    history = (folder / "history.csv").read_text().splitlines()
    accuracy = float(dict(zip(history[0].split(","), history[-1].split(","), strict=True))["val_accuracy"])
    assert lines[-1] == f"test accuracy {100 * accuracy:.2f}%"
    assert (folder.parent / "results.csv").read_text().count("\n") == 2
    if keras.backend.backend() == "tensorflow":
        assert (folder / "saved_model" / "saved_model.pb").exists()
        assert any(line.startswith("served by TensorFlow alone: test image 0 (label 7) is class") for line in lines)


@pytest.mark.long
def test_resume_needs_nothing_but_the_run_folder(eager, tmp_path, capsys):
    run, short = str(tmp_path / "run"), ["--no-export", "--no-figures"]
    given = ["--dataset", "digits", "--train-limit", "32", "--test-limit", "10", "--batch-size", "16"]
    given += ["--decay-steps", "100"]  # without it the rate follows the run's length, so that the run can't grow longer
    assert cli.main(["train", "sabour2017-mnist-cnn", "-o", run, "--epochs", "1", *given, *short]) == 0
    capsys.readouterr()
    assert cli.main(["train", "--resume", "-o", run, "--epochs", "2", *short]) == 0
    out = capsys.readouterr().out
    assert out.startswith("sabour2017-mnist-cnn: ") and "goes on after epoch 1 of 2" in out
    assert cli.main(["train", "--resume", "-o", run, *short]) == 0
    assert "all 2 epochs of" in capsys.readouterr().out
    for other, message in (
        (["--batch-size", "8"], "batch_size 16, now 8"),
        (["sabour2017-mnist-cnn"], "batch_size 16, now 128"),  # a recipe comes with its own settings
        (["sabour2017-digits"], "recipe sabour2017-mnist-cnn, now sabour2017-digits"),
    ):
        assert cli.main(["train", *other, "--resume", "-o", run, *short]) == 2
        assert message in capsys.readouterr().err


@pytest.mark.long
def test_diagnostics_leave_rows_and_a_picture(eager, tmp_path, capsys, monkeypatch):
    get = recipes.get
    monkeypatch.setattr(recipes, "get", lambda name: get(name).replace(figures=()))
    command = ["train", "-o", str(tmp_path / "run"), "--epochs", "1", "--train-limit", "40", "--test-limit", "30"]
    assert cli.main([*command, "--diagnostics", "--no-export"]) == 0
    assert (tmp_path / "run" / "diagnostics.csv").read_text().count("class_capsules") == 3  # iterations
    assert (tmp_path / "run" / "figures" / "routing_diagnostics.png").stat().st_size > 10_000
    assert cli.main([*command, "--resume", "--no-export", "--no-figures"]) == 0  # the option is no setting of the run
    plain = ["train", "li2018-mnist-cnn", "--dataset", "digits", "-o", str(tmp_path / "plain"), "--diagnostics"]
    assert cli.main(plain) == 2
    assert "has no layer whose call takes `return_couplings`" in capsys.readouterr().err
    assert not (tmp_path / "plain").exists()


def test_absent_data_are_named_at_once(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ["train", "sabour2017-mnist", "--data-dir", str(tmp_path / "nowhere")]
    assert cli.main(command) == 2
    error = capsys.readouterr().err
    if importlib.util.find_spec("tensorflow_datasets") is None:
        assert "needs the Python package tensorflow_datasets" in error
    else:
        assert "nowhere" in error and "--download" in error
    assert not list(tmp_path.iterdir())


def test_a_folder_without_a_run_is_not_resumed_as_the_default_recipe(tmp_path, capsys):
    assert cli.main(["train", "--resume", "-o", str(tmp_path / "mistyped")]) == 2
    assert "mistyped holds no run to resume. To start one there, name a recipe." in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
