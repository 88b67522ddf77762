import dataclasses
import os
import signal
import subprocess
import sys
import time

import pytest

from tf_capsules.runs import Settings, TrainingError, table
from tf_capsules.runs.results import COLUMNS, append_row

ROWS = ["sabour2017-digits", "sabour2017-digits@1"]


def test_rows_of_familiar_viewpoints_and_of_crops_are_not_the_result(tmp_path):
    name = "hinton2018-novel-azimuth"
    row = {"recipe": name, "dataset": "smallnorb_novel_azimuth", "epochs": 1, "batch_size": 64}
    row |= {"schedule": table.recipes.get(name).schedule, "seed": 0, "dtype": "float32", "parameters": 1, "seconds": 1}
    row |= {"settings": ""}
    row |= {"learning_rate": table.recipes.get(name).learning_rate, "test_examples": 9}
    notes = {
        "familiar viewpoints": 0.9,
        "novel viewpoints; 10 random crops": 0.8,
        "evaluated with 1 iteration; novel viewpoints": 0.6,
    }
    notes |= {
        "novel viewpoints; weights of epoch 1": 0.4,
        "novel viewpoints; weights with the best validation": 0.5,
        "novel viewpoints; 9 of 16,200 test examples": 0.3,
        "a copy; novel viewpoints": 0.7,
    }
    for note, value in notes.items():
        append_row(tmp_path / "table.csv", row | {"note": note, "value": value})
    assert table._found(tmp_path / "table.csv", table.Row(name), Settings(epochs=1))["value"] == "0.7"


def test_rows_of_other_hidden_states_and_settings_are_not_the_result(tmp_path):
    recipe = table.recipes.get("heinsen2019-sst5-minilm")
    same = ("dataset", "epochs", "batch_size", "schedule", "learning_rate")
    row = {"recipe": recipe.name, "seed": 0, "dtype": "float32", "parameters": 1, "seconds": 1, "test_examples": 9}
    row |= {name: getattr(recipe, name) for name in same}
    kinds = {("hidden states of other", ""): 0.9, ("hidden states of mine", "jit off"): 0.8}
    for (note, settings), value in (kinds | {("hidden states of mine", ""): 0.7}).items():
        append_row(tmp_path / "table.csv", row | {"note": note, "settings": settings, "value": value})
    of = {transformer: Settings(transformer=f"folder/{transformer}") for transformer in ("mine", "other", "third")}
    found = {name: table._found(tmp_path / "table.csv", table.Row(recipe.name), one) for name, one in of.items()}
    assert found["mine"]["value"] == "0.7" and found["other"]["value"] == "0.9" and found["third"] is None


def test_rows_of_other_files_are_not_the_result(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one, other = (Settings(data=f"{name}/pets", image_size=16) for name in ("one", "other"))
    recipe = one.apply(table.recipes.get("sabour2017-digits"))
    same = ("epochs", "batch_size", "schedule", "learning_rate")
    row = {"recipe": recipe.name, "dataset": "folder", "seed": 0, "dtype": "float32", "parameters": 1, "seconds": 1}
    row |= {name: getattr(recipe, name) for name in same} | {"test_examples": 9, "value": 0.7, "note": ""}
    row["settings"] = "; ".join(one.with_absolute_paths().stated())
    append_row(tmp_path / "table.csv", row)
    settings = one, other, dataclasses.replace(one, image_size=64)
    found = [table._found(tmp_path / "table.csv", table.Row(recipe.name), each) for each in settings]
    assert [row and row["value"] for row in found] == ["0.7", None, None]


def test_rows_of_other_folders_and_of_fewer_epochs_are_not_the_result(tmp_path):
    recipe = table.recipes.get("sabour2017-digits")
    row = {"recipe": recipe.name, "seed": 0, "dtype": "float32", "parameters": 1, "seconds": 1, "test_examples": 9}
    row |= {name: getattr(recipe, name) for name in ("batch_size", "schedule", "learning_rate")}
    row |= {"value": 0.7, "note": "", "epochs": 1}
    pets = Settings(dataset="folder", data_dir=str(tmp_path / "pets"), epochs=1)
    short = Settings(stop_at=0.9, epochs=1)
    for one, dataset in ((pets, "folder"), (short, "digits")):
        append_row(tmp_path / "table.csv", row | {"dataset": dataset, "settings": "; ".join(one.stated())})
    others = dataclasses.replace(pets, data_dir=str(tmp_path / "more")), dataclasses.replace(short, epochs=50)
    found = [table._found(tmp_path / "table.csv", table.Row(recipe.name), one) for one in (pets, short, *others)]
    assert [bool(one) for one in found] == [True, True, False, False]


def test_rows_that_share_a_panel_are_told_apart_by_whole_words():
    names = ["tsai2020-cifar10-random-start", "tsai2020-cifar10-resnet"]
    assert table._common_words(names) == "tsai2020-cifar10-"
    assert table._common_words([*names, "tsai2020-cifar10@1"]) == "tsai2020-cifar10"
    assert table._common_words(["tsai2020-cifar10@1", "tsai2020-cifar100"]) == "tsai2020-"


def test_rows_that_differ_in_more_than_iterations_keep_their_names(tmp_path, monkeypatch):
    points = [{"epoch": epoch, "loss": 1.0, "val_accuracy": 0.1 * epoch} for epoch in (1, 2)]
    monkeypatch.setattr(table, "_curve", lambda row, folder: points)
    for names, labels in [
        (["tsai2020-cifar10", "tsai2020-cifar10@3"], ["2 iterations", "3 iterations"]),
        (["tsai2020-cifar10", "tsai2020-cifar10-resnet@3"], ["tsai2020-cifar10", "resnet@3"]),
    ]:
        (panel,) = table.draw_table(names, tmp_path).axes
        assert [line.get_label() for line in panel.get_lines()] == labels
        assert panel.get_ylabel() == "validation accuracy (%)"


@pytest.mark.parametrize(
    ("names", "settings", "message"),
    [
        ([], {}, "needs at least one row"),
        (["sabour2017-digits"] * 2, {}, "no row twice"),
        (["sabour2017-digits", "nothing"], {}, "nothing"),
        (["sabour2017-digits@many"], {}, "RECIPE@ITERATIONS"),
        (["sabour2017-digits@0"], {}, "--iterations"),
        (["tsai2020-cifar10-cnn@2"], {}, "needs a network that routes"),
        (["sabour2017-digits"], {"epochs": 0}, "--epochs"),
        (["sabour2017-digits"], {"iterations": 2}, "names its own iterations .* Received: iterations 2"),
        (["sabour2017-digits"], {"weights": "a.h5"}, "random weights, .* Received: weights a.h5"),
        (["sabour2017-digits"], {"processes": 2, "process": 0}, "one process. Received: processes 2, process 0"),
        (["sabour2017-digits"], {"network": {"layers": 2}}, "--network layers=2"),
        (["mazzia2021-mnist", "sabour2017-digits"], {"momentum_cycle": True}, "needs warmup"),
    ],
)
def test_rows_that_can_not_be_are_refused_before_anything_is_trained(tmp_path, names, settings, message):
    with pytest.raises(TrainingError, match=message):
        table.make_table(iter(names), tmp_path / "table", Settings(**settings), tmp_path / "table" / "table.csv")
    assert not (tmp_path / "table").exists()


def test_a_file_of_results_that_cannot_be_written_is_refused_before_anything_is_trained(tmp_path):
    with pytest.raises(TrainingError, match="can't be written as a file of results"):
        table.make_table(ROWS, tmp_path / "runs", Settings(), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_file_of_results_with_other_columns_is_refused_before_anything_is_trained(tmp_path):
    (tmp_path / "table.csv").write_text(",".join([*COLUMNS, "comment"]) + "\n")
    with pytest.raises(TrainingError, match="table.csv has the columns .* 'comment'"):
        table.make_table(ROWS, tmp_path / "runs", Settings(), tmp_path / "table.csv")
    assert not (tmp_path / "runs").exists()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
def test_what_a_table_runs_ends_with_it(monkeypatch):
    run, command = subprocess.run, [sys.executable, "-c", "import time; time.sleep(60)"]
    started = []

    class Started(subprocess.Popen):
        def communicate(self, *args, **options):
            started.append(self)
            os.kill(os.getpid(), signal.SIGTERM)
            return super().communicate(*args, **options)

    monkeypatch.setattr(subprocess, "Popen", Started)
    monkeypatch.setattr(subprocess, "run", lambda _, **options: run(command, **options))
    before = signal.getsignal(signal.SIGTERM)
    begin = time.monotonic()
    with pytest.raises(SystemExit) as ended:
        table._run("list")
    assert ended.value.code == 128 + signal.SIGTERM and signal.getsignal(signal.SIGTERM) == before
    assert started[0].poll() == -signal.SIGKILL and time.monotonic() - begin < 30
