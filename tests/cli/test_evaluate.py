import csv
import json
import re
import shutil

import keras
import numpy as np
import pytest
from small_runs import TINY

from tf_capsules import cli, datasets, recipes
from tf_capsules.datasets.pipeline import Dataset, Split


def test_evaluate_repeats_the_accuracy_of_training(eager, trained, tmp_path, capsys):
    folder, lines = trained
    assert cli.main(["evaluate", str(folder)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == lines[-1]
    again = shutil.copytree(folder, tmp_path / "again")
    assert cli.main(["evaluate", str(folder), str(again)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert "ensemble of 2" in said[0] and said[-1] == lines[-1]
    results = folder.parent / "evaluated.csv"
    options = ["--weights", "best", "--test-limit", "50", "--batch-size", "17", "--results", str(results)]
    assert cli.main(["evaluate", str(folder), *options]) == 0
    header, row = (line.split(",") for line in results.read_text().splitlines())
    row = dict(zip(header, row, strict=True))
    trained_with = json.loads((folder / "result.json").read_text())["batch_size"]
    assert row["test_examples"] == "50" and row["batch_size"] == str(trained_with) != "17"


def test_the_batch_size_of_a_row_is_that_of_the_training(eager, trained, tmp_path):
    run, results = shutil.copytree(trained[0], tmp_path / "run"), tmp_path / "results.csv"
    config = json.loads((run / "config.json").read_text())
    config["settings"]["batch_size"] = config["resolved"]["batch_size"] = 24
    (run / "config.json").write_text(json.dumps(config))
    (run / "result.json").unlink()  # as of a training that was interrupted
    assert cli.main(["evaluate", str(run), "--batch-size", "17", "--results", str(results)]) == 0
    with results.open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["batch_size"] == "24"


@pytest.mark.long
def test_novel_viewpoints_and_crops_are_told_and_kept(eager, tmp_path, capsys, monkeypatch):
    random = np.random.default_rng(0)
    train, test, familiar = (
        Split({"image": random.integers(0, 256, (n, 12, 12, 1), dtype=np.uint8), "label": np.arange(n) % 10})
        for n in (20, 30, 25)
    )
    toys = Dataset("toys", train, test, tuple("abcdefghij"), familiar=familiar)
    recipe = TINY.replace(preprocess=(("crop", 8),), epochs=1)
    monkeypatch.setattr(datasets, "load", lambda *_, **__: toys)
    monkeypatch.setattr(recipes, "get", lambda name: recipe)
    run, results = str(tmp_path / "run"), tmp_path / "results.csv"
    assert cli.main(["train", "-o", run, "--no-export"]) == 0
    last = capsys.readouterr().out.splitlines()[-2:]
    accuracies = [
        re.fullmatch(rf"test accuracy (\d+\.\d\d)% at {views} viewpoints", line).group(1)
        for views, line in zip(("familiar", "novel"), last, strict=True)
    ]
    assert cli.main(["evaluate", run, "--results", str(results)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-2:] == last and said[1] == "familiar viewpoints" and said[3] == "novel viewpoints"
    assert cli.main(["evaluate", run, "--crops", "3", "--test-limit", "25", "--results", str(results)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("25 test images of toys, 3 random crops, ") and len(said) == 6
    assert cli.main(["evaluate", run, "--crops", "fixed", "--test-limit", "25"]) == 0
    assert "25 test images of toys, ten fixed crops, " in capsys.readouterr().out
    with results.open(newline="") as file:
        rows = [(row["note"], int(row["test_examples"]), row["test_loss"] == "") for row in csv.DictReader(file)]
    assert rows == [
        ("familiar viewpoints", 25, False),
        ("novel viewpoints", 30, False),
        ("familiar viewpoints; 3 random crops", 25, True),
        ("novel viewpoints; 25 of 30 test examples; 3 random crops", 25, True),
    ]
    with results.open(newline="") as file:
        values = [100 * float(row["value"]) for row in csv.DictReader(file)]
    assert [f"{value:.2f}" for value in values[:2]] == accuracies


def test_weights_that_do_not_go_with_what_is_named(trained, capsys):
    folder, _ = trained
    for arguments, message in (
        (["evaluate", "sabour2017-digits"], "sabour2017-digits is a recipe, without weights: give --weights FILE"),
        (["evaluate", str(folder), "--weights", "author.npz"], "--weights of a run folder is last, best or an epoch"),
        (["evaluate", "sabour2017-digits", "--weights", "no.npz"], "Received: 'no.npz'"),
        (["evaluate", "no-such-run"], "no-such-run is not the folder of a run"),
    ):
        assert cli.main(arguments) == 2
        assert message in capsys.readouterr().err


def test_crops_need_a_recipe_that_crops(trained, capsys, no_data):
    folder, _ = trained
    for crops, words in (
        ("2", "2 needs a recipe with the step 'crop'; sabour2017-digits has: shift"),
        ("0", "--crops must be fixed, or a whole number of at least 1. Received: 0"),
        ("ten", "--crops must be fixed, or a whole number of at least 1. Received: ten"),
    ):
        assert cli.main(["evaluate", str(folder), "--crops", crops]) == 2
        assert words in capsys.readouterr().err


def test_runs_of_one_ensemble_take_the_same_images(trained, tmp_path, capsys):
    folder, _ = trained
    other = shutil.copytree(folder, tmp_path / "other")
    config = (other / "config.json").read_text()
    assert config.count('"9"') == 1
    (other / "config.json").write_text(config.replace('"9"', '"nine"'))
    assert cli.main(["evaluate", str(folder), str(other)]) == 2
    assert "need the same inputs, preprocessing, classes and metric. Received: [" in capsys.readouterr().err
    assert cli.main(["evaluate", str(folder), str(folder)]) == 2
    assert f"A run is named twice: {folder}, {folder}" in capsys.readouterr().err


def with_config(folder, path, **changes):
    """A copy of a run folder, its configuration changed."""
    copy = shutil.copytree(folder, path)
    config = json.loads((copy / "config.json").read_text())
    for place, value in changes.items():
        part, _, key = place.partition("__")
        if key:
            config[part][key] = value
        else:
            config[part] = value
    (copy / "config.json").write_text(json.dumps(config))
    return copy


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (dict(settings=3), "its 'settings' is 3"),
        (dict(data=None), "its 'data' is None"),
        (dict(recipe="of-tomorrow"), "There is no recipe 'of-tomorrow'"),
        (dict(settings__epochs="many"), "--epochs can't be 'many'"),
        (dict(settings__magic=1), "Settings.__init__() got an unexpected keyword argument 'magic'"),
        (dict(data__raw_shape=[8, 8]), "the raw_shape of data can't be (8, 8)"),
        (dict(data__class_names=[]), "`classes` must be a whole number of at least 1. Received: 0"),
        (dict(data__colour="red"), "data are described by name, class_names, train_size"),
    ],
)
def test_configurations_of_other_versions_are_refused(trained, tmp_path, said, changes, words):
    copy = with_config(trained[0], tmp_path / "run", **changes)
    assert f"{copy}/config.json is not of a run that this version can load: {words}" in said("evaluate", copy)


def test_files_of_a_run_that_are_damaged_are_named(trained, tmp_path, said):
    folder, _ = trained
    last = "last-0002.weights.h5"
    whole = (folder / last).read_bytes()
    for name, content, words in (
        ("config.json", b"", "can't be read: Expecting value"),
        ("config.json", b"[]", "can't be read: it holds no dict but []"),
        ("history.csv", b"epoch,loss\n1,2\n", "is no history of a run: it has no column 'learning_rate'"),
        ("history.csv", b"\xff\xfe", "is no history of a run: 'utf-8' codec can't decode"),
        ("result.json", b"{", "can't be read: Expecting property name"),
        (last, whole[: len(whole) // 2], "does not hold weights of the network 'capsnet': Unable to"),
        (last, b"", "best.weights.h5 is there, too: --weights best."),
    ):
        copy = shutil.copytree(folder, tmp_path / "run")
        (copy / name).write_bytes(content)
        error = said("evaluate", copy)
        assert f"{copy / name} " in error and words in error
        shutil.rmtree(copy)
    with_other_shape = with_config(folder, tmp_path / "other", data__image_shape=[9, 9, 1])
    assert f"{with_other_shape / last} does not hold weights" in said("evaluate", with_other_shape)


def test_what_is_no_run_is_told_from_one(trained, tmp_path, said):
    folder, _ = trained
    (tmp_path / "net.keras").write_bytes(b"PK")
    for other, why in ((tmp_path, "it has no config.json"), (tmp_path / "net.keras", "it is a file")):
        assert f"{other} is not the folder of a run: {why}" in said("evaluate", other)
    if keras.backend.backend() == "tensorflow":
        error = said("evaluate", folder / "saved_model")
        assert error.endswith("it has no config.json. It is an exported model.\n")
