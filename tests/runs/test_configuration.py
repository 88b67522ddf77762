import dataclasses
import json
import os
import pathlib
import shutil

import numpy as np
import pytest
from backend import array
from small_runs import SHORT, TINY, write_arrays

from tf_capsules import recipes
from tf_capsules.files import write_csv
from tf_capsules.runs import RunFolder, Settings, TrainingError, load_run, train
from tf_capsules.runs.configuration import check_folder, configuration, recorded_recipe, resumed
from tf_capsules.runs.data_spec import ImageSpec


def test_a_folder_with_a_run_is_not_overwritten_nor_resumed_with_other_settings(run):
    with pytest.raises(TrainingError, match="holds a run already. Add --resume"):
        train(TINY, run.folder, SHORT)
    other = Settings(train_limit=120, test_limit=70, seed=5)
    with pytest.raises(TrainingError, match="other settings: seed 0, now 5"):
        train(TINY, run.folder, other, resume=True)
    with pytest.raises(TrainingError, match="batch_size 50, now 40"):
        train(TINY.replace(batch_size=40), run.folder, SHORT, resume=True)
    own = dataclasses.replace(SHORT, batch_size=TINY.batch_size)  # the recipe's own value is no other setting
    _, done = check_folder(RunFolder(run.folder), configuration(own.apply(TINY), own), TINY, resume=True)
    assert done == len(run.history)
    drawn = TINY.replace(figures=("training_curves",))
    _, done = check_folder(RunFolder(run.folder), configuration(SHORT.apply(drawn), SHORT), drawn, resume=True)
    assert done == len(run.history) and drawn.figures != TINY.figures


def test_a_run_goes_on_where_its_data_have_moved(eager, run_on_arrays, tmp_path, monkeypatch, capsys):
    shutil.copytree(run_on_arrays.folder, tmp_path / "run")
    config = (tmp_path / "run" / "config.json").read_text()
    assert config.count(run_on_arrays.settings.data) == 1
    (tmp_path / "run" / "config.json").write_text(config.replace(run_on_arrays.settings.data, "gone/mine.npz"))
    write_arrays(tmp_path / "renamed.npz")
    settings = Settings(data=str(tmp_path / "renamed.npz"), epochs=2)
    assert len(train(TINY, tmp_path / "run", settings, resume=True, verbose=2).history) == 2
    printed = capsys.readouterr().out
    assert "goes on after epoch 1 of 2" in printed
    assert "data: renamed.npz, 60 examples for training, 30 for testing, images (10, 12, 2), 4 classes" in printed
    before = (tmp_path / "run" / "config.json").read_text()
    train(TINY, tmp_path / "run", settings, resume=True, verbose=2)
    assert "all 2 epochs of" in capsys.readouterr().out
    with pytest.raises(TrainingError, match="run has finished 2 epochs, more than 1"):
        train(TINY, tmp_path / "run", Settings(data=settings.data, epochs=1), resume=True)
    assert (tmp_path / "run" / "config.json").read_text() == before
    (tmp_path / "run" / "last-0002.weights.h5").write_bytes(b"damaged")
    monkeypatch.setattr(recipes, "get", lambda name: TINY)
    with pytest.raises(TrainingError, match="last-0002.weights.h5 does not hold .* best.weights.h5 is there, too"):
        load_run(tmp_path / "run")
    assert load_run(tmp_path / "run", "best").evaluate()["loss"] > 0


def test_other_data_under_the_same_name_are_not_resumed_on(run_on_arrays, tmp_path):
    shutil.copytree(run_on_arrays.folder, tmp_path / "run")
    write_arrays(tmp_path / "mine.npz", 5)
    settings = Settings(data=str(tmp_path / "mine.npz"), epochs=1)
    with pytest.raises(TrainingError, match="was trained on other data: class_names .*'3'], now .*'4']"):
        train(TINY, tmp_path / "run", settings, resume=True, verbose=0)


def test_other_examples_of_the_same_sizes_are_told(run_on_arrays, tmp_path):
    folder = shutil.copytree(run_on_arrays.folder, tmp_path / "run")
    arrays = dict(np.load(run_on_arrays.settings.data))
    settings = Settings(data=str(tmp_path / "mine.npz"), epochs=1)
    np.savez_compressed(settings.data, **arrays)  # another file of the same arrays
    train(TINY, folder, settings, resume=True, verbose=0)
    arrays["y_test"][:2] = arrays["y_test"][1::-1]
    assert arrays["y_test"][0] != arrays["y_test"][1]
    np.savez(settings.data, **arrays)
    with pytest.warns(UserWarning, match="run was trained on other examples or labels than those of mine.npz now"):
        train(TINY, folder, settings, resume=True, verbose=0)
    train(TINY, folder, settings, resume=True, verbose=0)  # told once: the folder holds the new checksum
    config = json.loads((folder / "config.json").read_text())
    del config["data"]["contents"]  # as earlier versions wrote it
    (folder / "config.json").write_text(json.dumps(config))
    train(TINY, folder, settings, resume=True, verbose=0)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such lock")
def test_a_run_that_another_process_goes_on_with_is_not_read(run_on_arrays):
    folder, settings = RunFolder(run_on_arrays.folder), run_on_arrays.settings
    config = configuration(settings.apply(TINY), settings)
    with folder.held(), pytest.raises(TrainingError, match="Another process is training in "):
        check_folder(folder, config, settings.apply(TINY), resume=True)
    assert check_folder(folder, config, settings.apply(TINY), resume=True)[1] == 1


def test_a_finished_run_keeps_what_its_row_says_of_the_training(run_on_arrays, tmp_path, capsys):
    folder = RunFolder(shutil.copytree(run_on_arrays.folder, tmp_path / "run"))
    before = {**run_on_arrays.result, "device": "1 x gpu", "peak_memory_mb": 9999, "date": "2020-01-01"}
    folder.write_json("result.json", before)
    again = train(TINY, folder.path, run_on_arrays.settings, resume=True)
    assert "nothing is left to train" in capsys.readouterr().out
    assert again.result == before == folder.read_json("result.json")


def test_a_figure_that_is_not_there_is_told_before_training(tmp_path):
    with pytest.raises(TrainingError, match="There is no figure 'training_curve'; there are training_curves, "):
        train(TINY.replace(figures=("training_curve",)), tmp_path / "run", SHORT)
    assert not (tmp_path / "run").exists()


def test_nothing_to_resume_is_said_and_a_new_run_starts(eager, tmp_path, capsys):
    recipe, settings = TINY.replace(epochs=1), Settings(train_limit=50, test_limit=20)
    (tmp_path / "run").mkdir()
    run = train(recipe, tmp_path / "run", settings, resume=True, verbose=2)
    assert f"{run.folder} holds no finished epoch to resume: a new run starts" in capsys.readouterr().out.splitlines()
    assert len(train(recipe, run.folder, settings, resume=True, verbose=2).history) == 1
    assert "a new run starts" not in capsys.readouterr().out


def test_a_run_that_ended_in_its_first_epoch_is_replaced(eager, tmp_path, capsys):
    wild, settings = TINY.replace(epochs=1, learning_rate=1e38), Settings(train_limit=100, test_limit=20)
    with pytest.raises(TrainingError, match="at step 2 of epoch 1. No epoch was .* or a larger --batch-size.$"):
        train(wild, tmp_path / "run", settings, verbose=0)
    folder = RunFolder(tmp_path / "run")
    assert folder.has_run() and not folder.has_epoch()
    other = dataclasses.replace(settings, learning_rate=0.01)
    recipe, given = resumed(folder.path, learning_rate=0.01)
    config = configuration(other.apply(wild), other)
    assert (recipe.name, given) == (wild.name, other)
    assert check_folder(folder, config, other.apply(wild), resume=True) == (config, 0)
    assert len(train(wild, folder.path, other, verbose=0).history) == 1
    with pytest.raises(TrainingError, match="holds a run already"):
        train(wild, folder.path, settings, verbose=0)
    for name in ("last-0001.weights.h5", "best.weights.h5"):
        (folder.path / name).unlink()
        with pytest.raises(TrainingError, match="holds a run already"):
            train(wild, folder.path, settings, verbose=0)


def test_a_first_epoch_without_weights_is_replaced(eager, tmp_path):
    """A process that is killed between the history of the first epoch and its weights leaves this."""
    recipe, settings = TINY.replace(epochs=1), Settings(train_limit=50, test_limit=20)
    folder = RunFolder(train(recipe, tmp_path / "run", settings, verbose=0).folder)
    for name in ("last-0001.weights.h5", "best.weights.h5", "result.json"):
        (folder.path / name).unlink()
    assert len(train(recipe, folder.path, settings, verbose=0).history) == 1


def test_a_checkpoint_that_a_kill_has_left_is_removed(eager, tmp_path):
    recipe, settings = TINY.replace(epochs=2), Settings(train_limit=50, test_limit=20)
    run = train(recipe, tmp_path / "run", settings, verbose=0)
    folder = RunFolder(run.folder)
    shutil.copy(folder.weights(2), folder.path / "last-0001.weights.h5")
    train(recipe, run.folder, settings, resume=True, verbose=0)
    assert folder.checkpoints() == [2]


@pytest.mark.parametrize("name", recipes.names())
def test_a_recorded_recipe_is_the_recipe(name):
    recipe = recipes.get(name)
    assert recorded_recipe(configuration(recipe, Settings())) == recipe


def test_runs_that_began_with_the_adam_of_keras_go_on():
    recipe = recipes.get("mazzia2021-mnist")
    assert configuration(recipe, Settings())["resolved"]["optimizer"] == "Adam"
    assert recipe.optimizer(0.1, beta_1=0.8).get_config().items() >= dict(epsilon=1e-7, beta_1=0.8).items()


def test_a_network_that_has_lost_an_argument_is_not_resumed(run, tmp_path):
    shutil.copytree(run.folder, tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    config = json.loads(path.read_text()) | {"recipe": "sabour2017-digits"}
    config["resolved"]["model_options"] = {"old": 1}
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match="config.json is not of a run .* can load: .*old=1.* no such argument"):
        resumed(tmp_path / "run")


def test_a_folder_without_a_run_is_refused(tmp_path):
    (tmp_path / "letter.txt").write_text("keep me")
    with pytest.raises(TrainingError, match="holds other files already"):
        train(TINY, tmp_path, SHORT)
    with pytest.raises(TrainingError, match="not the folder of a run"):
        load_run(tmp_path)
    for below in ("letter.txt", "letter.txt/run"):
        with pytest.raises(TrainingError, match=f"can't be written: {tmp_path / 'letter.txt'} is no folder"):
            train(TINY, tmp_path / below, SHORT)
    assert (tmp_path / "letter.txt").read_text() == "keep me"
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(TrainingError, match=r"holds other files already \(config.json\)"):
        train(TINY, tmp_path, SHORT)
    assert "bert" in (tmp_path / "config.json").read_text()


def finish_epoch(folder):
    """Writes the files of a run after its first epoch, with made-up numbers."""
    columns = ("epoch", "learning_rate", "seconds", "loss", "val_loss", "val_accuracy")
    write_csv(folder.path / "history.csv", [dict.fromkeys(columns, 1)])
    (folder.path / "last-0001.weights.h5").touch()


OLDER = sorted((pathlib.Path(__file__).parent / "configurations").glob("*.json"))  # of version 0.1.0, 2026-11-24


@pytest.mark.parametrize("path", OLDER, ids=[path.stem for path in OLDER])
def test_a_configuration_of_an_older_version_matches_the_same_settings(path, tmp_path):
    (tmp_path / "config.json").write_text(path.read_text())
    finish_epoch(RunFolder(tmp_path))
    recipe, settings = resumed(tmp_path)
    assert recipe.name == path.stem
    recipe = settings.apply(recipe)
    asked = configuration(recipe, settings)
    config, done = check_folder(RunFolder(tmp_path), asked, recipe, resume=True)
    assert done == 1 and config["data"] == json.loads(path.read_text())["data"]
    for changed in (dict(seed=9), dict(network={"types": 5}), dict(loss={"variant": "code"})):
        other = dataclasses.replace(settings, **changed)
        other = configuration(other.apply(recipe), other)
        with pytest.raises(TrainingError, match=f"other settings: {next(iter(changed))} "):
            check_folder(RunFolder(tmp_path), other, recipe, resume=True)


@pytest.mark.long
def test_a_run_of_an_older_version_is_loaded_and_resumed(eager, tmp_path, capsys):
    """The folder was written before recipes were data: two epochs of a small network on 200 digits."""
    saved = pathlib.Path(__file__).parent / "older"
    folder = pathlib.Path(shutil.copytree(saved / "run", tmp_path / "run"))
    with np.load(saved / "answers.npz") as arrays:
        expected = dict(arrays)
    loaded = load_run(folder)
    images, _ = loaded.examples(3)
    np.testing.assert_array_equal(images, expected["images"])
    for name, output in loaded.model(images).items():
        np.testing.assert_allclose(array(output), expected[name], rtol=1e-4, atol=1e-5)
    for name, value in loaded.evaluate().items():
        assert value == pytest.approx(expected[name], rel=1e-4)
    recipe, settings = resumed(folder, epochs=3)
    longer = train(recipe, folder, settings, resume=True, verbose=2)
    assert "goes on after epoch 2 of 3" in capsys.readouterr().out and len(longer.history) == 3


def test_momentum_feedback_and_loss_are_part_of_what_a_run_is(tmp_path):
    recipe = recipes.get("li2018-cifar10-feedback")
    settings = Settings(feedback={"weight": 5}, loss={"down_weight": 0.25}, dataset="digits")
    for name in ("feedback_options", "loss_options"):
        assert configuration(settings.apply(recipe), settings)["resolved"][name]
    folder = RunFolder(tmp_path)
    finish_epoch(folder)
    asked = configuration(settings.apply(recipe), settings)
    folder.write_json(
        "config.json", {**asked, "data": ImageSpec("a", ("b",), 1, 1, "", (1, 1, 1), (1, 1, 1)).to_json()}
    )
    other = dataclasses.replace(settings, feedback={"weight": 6})
    with pytest.raises(
        TrainingError, match=r"feedback {'weight': 5}, now {'weight': 6}; feedback_options {.*'weight': 6"
    ):
        check_folder(folder, configuration(other.apply(recipe), other), recipe, resume=True)
    other = dataclasses.replace(settings, loss=None)
    with pytest.raises(
        TrainingError, match=r"loss {'down_weight': 0.25}, now None; loss_options {'down_weight': 0.25}, now {}"
    ):
        check_folder(folder, configuration(other.apply(recipe), other), recipe, resume=True)
