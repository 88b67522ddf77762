import dataclasses
import json
import shutil

import h5py
import keras
import numpy as np
import pytest
from small_runs import RECTIFIED, SHORT, TINY, write_arrays

from tf_capsules import datasets, recipes
from tf_capsules.datasets.pipeline import Dataset, Split
from tf_capsules.losses import MarginLoss, SoftmaxCrossentropy
from tf_capsules.models.weights.keras_file import has_decoder
from tf_capsules.runs import (
    RunFolder,
    Settings,
    TrainingError,
    evaluate_runs,
    find_run,
    load_run,
    run_of_weights,
    train,
)
from tf_capsules.runs import run as module


def test_a_loaded_run_measures_what_training_measured(run, monkeypatch):
    monkeypatch.setattr(recipes, "get", lambda name: TINY)
    loaded = load_run(run.folder)
    assert loaded.evaluate()["accuracy"] == pytest.approx(run.result["value"], abs=1e-6)
    assert find_run(run.folder, len(run.history)).folder == find_run(run.folder).folder == loaded.folder
    images, labels = loaded.examples(9)
    assert images.shape == (9, 8, 8, 1) and labels.shape == (9,)
    lengths = keras.ops.convert_to_numpy(loaded.model(images)["activations"])
    np.testing.assert_allclose(lengths, keras.ops.convert_to_numpy(run.model(images)["activations"]), atol=1e-6)


def test_a_run_whose_data_have_gone_is_loaded_without_them(eager, tmp_path, monkeypatch):
    path = tmp_path / "mine.npz"
    x, _ = write_arrays(path, 10, (8, 8, 1))
    run = train(RECTIFIED, tmp_path / "run", Settings(data=str(path), epochs=1), verbose=0)
    path.unlink()
    monkeypatch.setattr(recipes, "get", lambda name: RECTIFIED)
    loaded = load_run(run.folder)
    spec = loaded.trained_on
    assert (spec.name, spec.raw_shape, spec.image_shape, spec.train_size) == ("mine.npz", (8, 8, 1), (8, 8, 1), 60)
    assert spec.class_names == tuple("0123456789") and loaded.result == run.result
    for a, b in zip(run.model.get_weights(), loaded.model.get_weights(), strict=True):
        np.testing.assert_array_equal(b, a)
    assert loaded.model.optimizer.get_config() == run.model.optimizer.get_config()
    with pytest.raises(TrainingError, match="mine.npz: there is no such file or folder"):
        loaded.evaluate()
    elsewhere = load_run(run.folder, dataset="digits", test_limit=30)
    assert elsewhere.data.spec.name == "digits" and 0 <= elsewhere.evaluate()["accuracy"] <= 1


def test_other_data_must_have_the_images_and_classes_of_the_run(eager, run, tmp_path, monkeypatch):
    monkeypatch.setattr(recipes, "get", lambda name: TINY)
    write_arrays(tmp_path / "large.npz", 10, (9, 8, 1))
    with pytest.raises(TrainingError, match=r"large.npz has images \(9, 8, 1\) of 10 .* trained on images \(8, 8, 1\)"):
        load_run(run.folder, data=str(tmp_path / "large.npz")).evaluate()
    write_arrays(tmp_path / "many.npz", 11, (8, 8, 1))
    with pytest.raises(
        TrainingError, match="many.npz is not a data set: y_train has the label 10; 10 classes have labels 0 to 9"
    ):
        load_run(run.folder, data=str(tmp_path / "many.npz")).evaluate()
    write_arrays(tmp_path / "few.npz", 3, (8, 8, 1))  # three of the ten classes: arrays may lack classes
    assert load_run(run.folder, data=str(tmp_path / "few.npz"), test_limit=20).evaluate()["loss"] > 0
    split = Split({"image": np.zeros((4, 8, 8, 1), np.uint8), "label": np.arange(4) % 3})
    monkeypatch.setattr(datasets, "load", lambda *_, **__: Dataset("three", split, split, ("a", "b", "c")))
    with pytest.raises(TrainingError, match=r"three has images \(8, 8, 1\) of 3 classes; .* of 10 classes"):
        load_run(run.folder, dataset="mnist").evaluate()
    names = tuple("0123456") + ("seven", "8", "9")
    monkeypatch.setattr(datasets, "load", lambda *_, **__: Dataset("words", split, split, names))
    with pytest.raises(TrainingError, match=r"words has 'seven'; .* was trained on '7', class 7"):
        load_run(run.folder, dataset="mnist").evaluate()


def test_a_folder_is_read_as_the_run_s_images_were(eager, run, tmp_path, monkeypatch):
    Image = pytest.importorskip("PIL.Image")
    monkeypatch.setattr(recipes, "get", lambda name: TINY)
    for label in range(10):
        (tmp_path / str(label)).mkdir()
        for i in range(6):
            Image.fromarray(np.full((5, 7, 3), i, np.uint8)).save(tmp_path / str(label) / f"{i}.png")
    given = load_run(run.folder, data=str(tmp_path))
    assert given.data.spec.image_shape == (8, 8, 1) and given.evaluate()["loss"] > 0
    by_name = load_run(run.folder, dataset="folder", data_dir=str(tmp_path))
    assert by_name.remark == given.remark == "trained on digits"


def test_a_folder_that_was_split_anew_is_told(eager, tmp_path, monkeypatch):
    Image = pytest.importorskip("PIL.Image")
    monkeypatch.setattr(recipes, "get", lambda name: TINY)
    for label in ("a", "b"):
        (tmp_path / "pets" / label).mkdir(parents=True)
        for i in range(10):
            Image.fromarray(np.full((9, 9, 3), i, np.uint8)).save(tmp_path / "pets" / label / f"{i}.png")
    settings = Settings(data=str(tmp_path / "pets"), image_size=8, epochs=1)
    train(TINY.replace(preprocess=(), model_options={}), tmp_path / "run", settings, verbose=0)
    assert load_run(tmp_path / "run").data.spec.test_size == 4  # no warning
    for i in range(10, 15):
        Image.fromarray(np.full((9, 9, 3), i, np.uint8)).save(tmp_path / "pets" / "a" / f"{i}.png")
    told = "pets holds other examples or labels than the run was trained on. Unless .* split anew"
    with pytest.warns(UserWarning, match=told):
        assert load_run(tmp_path / "run").data.spec.test_size == 5
    for i in range(5):  # as many as before, but others
        (tmp_path / "pets" / "a" / f"{i}.png").unlink()
    with pytest.warns(UserWarning, match=told):
        assert load_run(tmp_path / "run").data.spec.test_size == 4
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    del config["data"]["contents"]  # as earlier versions wrote it
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    assert load_run(tmp_path / "run").data.spec.test_size == 4
    (tmp_path / "pets" / "b" / "9.png").unlink()
    with pytest.warns(UserWarning, match=told):
        assert load_run(tmp_path / "run").data.spec.train_size == 15


@pytest.mark.long
def test_weights_of_every_epoch_are_kept_on_demand(eager, tmp_path, monkeypatch):
    monkeypatch.setattr(recipes, "get", lambda name: TINY)
    settings = Settings(epochs=3, train_limit=32, test_limit=20, batch_size=16, keep_epochs=True)
    run = train(TINY, tmp_path / "run", settings, verbose=0)
    assert RunFolder(run.folder).checkpoints() == [1, 2, 3]
    models = run.models(most=2)
    assert list(models) == ["epoch 1", "epoch 3"] and list(run.models()) == ["epoch 1", "epoch 2", "epoch 3"]
    last, first, best = (load_run(run.folder, which).model.get_weights() for which in ("last", 1, "best"))
    for kept, weights in ((models["epoch 3"], last), (models["epoch 1"], first)):
        assert all(np.array_equal(a, b) for a, b in zip(kept.get_weights(), weights, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, last, strict=True))
    changed = load_run(run.folder, iterations=2, dtype="mixed_bfloat16").models()
    layers = [layer for model in changed.values() for layer in model.encoder.layers]
    assert {layer.iterations for layer in layers if hasattr(layer, "iterations")} == {2}
    assert {layer.compute_dtype for layer in layers if isinstance(layer, keras.layers.Conv2D)} == {"bfloat16"}
    best = max(run.history, key=lambda row: (row["val_accuracy"], row["epoch"]))["epoch"]
    told = {which: measured_row(load_run(run.folder, which)) for which in ("last", 2, "best")}
    assert {which: row["epochs"] for which, row in told.items()} == {"last": 3, 2: 2, "best": best}
    part, kept = "20 of 360 test examples", ("weights of epoch 2", "weights with the best validation")
    assert [row["note"] for row in told.values()] == [part, *(f"{part}; {words}" for words in kept)]
    assert told[2]["seconds"] == pytest.approx(sum(row["seconds"] for row in run.history[:2]), abs=0.06)
    # A process that is killed between history and weights leaves a row too many.
    (run.folder / "last-0003.weights.h5").unlink()
    assert [row["epoch"] for row in load_run(run.folder).history] == [1, 2]
    # Then the best weights may be those of an earlier epoch than the history says.
    earlier = 2 if best == 1 else 1
    shutil.copy(run.folder / f"last-{earlier:04d}.weights.h5", run.folder / "best.weights.h5")
    assert load_run(run.folder, "best").epoch == earlier
    with h5py.File(run.folder / "best.weights.h5", "r+") as file:
        del file.attrs["epoch"]  # as in files of earlier versions
    assert load_run(run.folder, "best").epoch == best
    with pytest.raises(TrainingError, match="no weights of epoch 4, but of: 1, 2[.] .* --keep-epochs"):
        load_run(run.folder, 4)
    with pytest.raises(TrainingError, match="keep_epochs True, now False"):
        train(TINY, run.folder, dataclasses.replace(settings, keep_epochs=False), resume=True)


def test_a_recipe_of_ones_own_is_given_to_load_its_runs(eager, tmp_path):
    own = TINY.replace(name="own", loss=SoftmaxCrossentropy, optimizer=keras.optimizers.RMSprop, epochs=1)
    run = train(own, tmp_path / "run", Settings(train_limit=32, test_limit=20), verbose=0)
    with pytest.raises(ValueError, match=r"There is no recipe 'own'[.] .*`load_run\(folder, recipe=[.]{3}\)`"):
        load_run(run.folder)
    with pytest.raises(ValueError, match="trained with the loss SoftmaxCrossentropy, own has MarginLoss. Give the"):
        load_run(run.folder, recipe=own.replace(loss=MarginLoss))
    loaded = load_run(run.folder, recipe=own)
    assert loaded.evaluate()["loss"] == pytest.approx(run.result["test_loss"], abs=1e-5)
    assert isinstance(loaded.model.optimizer, keras.optimizers.RMSprop)


@pytest.mark.long
def test_a_fine_tuned_run_needs_its_initial_weights_no_more(eager, run, tmp_path):
    start = tmp_path / "start.weights.h5"
    run.model.save_weights(start)
    own, settings = TINY.replace(name="own", model_options=dict(weights=start)), Settings(train_limit=50, test_limit=20)
    uninterrupted = train(own, tmp_path / "both", settings, verbose=0)
    tuned = train(own, tmp_path / "run", dataclasses.replace(settings, epochs=1), verbose=0)
    start.unlink()
    loaded = load_run(tuned.folder, recipe=own)
    assert loaded.evaluate()["loss"] == pytest.approx(tuned.result["test_loss"], abs=1e-5)
    resumed = train(own, tuned.folder, settings, resume=True, verbose=0)
    for a, b in zip(uninterrupted.model.get_weights(), resumed.model.get_weights(), strict=True):
        np.testing.assert_allclose(b, a, atol=1e-6)
    with pytest.raises(TrainingError, match="`weights`: no such file"):
        train(own, tmp_path / "other", settings, verbose=0)


def test_weights_without_a_decoder_make_a_network_without_one(tmp_path, monkeypatch):
    write_arrays(tmp_path / "mine.npz", 10, (28, 28, 1))
    monkeypatch.chdir(tmp_path)
    bare = run_of_weights("mazzia2021-mnist", "mazzia2021-mnist", data="mine.npz")
    assert bare.settings.stated() == [f"data {tmp_path / 'mine.npz'}"]
    assert bare.model.decoder is None and set(bare.evaluate()) == {"loss", "accuracy"}
    assert has_decoder(module.find("mazzia2021-mnist")) is False
    bare.model.save(tmp_path / "bare.keras")
    again = run_of_weights("mazzia2021-mnist", tmp_path / "bare.keras", data=str(tmp_path / "mine.npz"))
    assert again.model.decoder is None
    whole = recipes.get("sabour2017-digits").model((8, 8, 1), 10, **recipes.get("sabour2017-digits").model_options)
    whole.save_weights(tmp_path / "whole.weights.h5")
    assert run_of_weights("sabour2017-digits", tmp_path / "whole.weights.h5").model.decoder is not None


def test_a_recipe_that_no_file_can_hold_is_refused(tmp_path):
    own = TINY.replace(name="own", model_options=dict(backbone=keras.Sequential()))
    with pytest.raises(TrainingError, match="values must go into a JSON file; .* Received: .*Sequential"):
        train(own, tmp_path / "run", verbose=0)
    assert not (tmp_path / "run").exists()


def test_a_run_is_loaded_while_its_training_goes_on(eager, tmp_path, monkeypatch):
    monkeypatch.setattr(recipes, "get", lambda name: TINY)
    settings = Settings(epochs=2, train_limit=32, test_limit=20, keep_epochs=True)
    folder = RunFolder(train(TINY, tmp_path / "run", settings, verbose=0).folder)
    first, second = folder.weights(1), folder.weights(2)
    second.rename(tmp_path / "second")
    load = module.load_checkpoint

    def load_late(learner, path, otherwise):
        if first.exists():  # meanwhile the training has written the next checkpoint and removed this one
            (tmp_path / "second").rename(second)
            first.unlink()
        load(learner, path, otherwise)

    monkeypatch.setattr(module, "load_checkpoint", load_late)
    loaded = load_run(folder.path)
    assert loaded.epoch == len(loaded.history) == 2
    second.unlink()
    with pytest.raises(TrainingError, match="holds no last weights: the file is not there, but"):
        load_run(folder.path)


def test_a_finished_run_without_its_checkpoint_is_not_begun_anew(run, tmp_path, monkeypatch):
    monkeypatch.setattr(recipes, "get", lambda name: TINY)
    folder = RunFolder(shutil.copytree(run.folder, tmp_path / "run"))
    folder.weights().unlink()
    best = folder.weights("best").read_bytes()
    with pytest.raises(TrainingError, match="has no checkpoint to go on from. Choose another --output"):
        train(TINY, folder.path, SHORT, resume=True)
    with pytest.raises(TrainingError, match=r"the best weights are \(--weights best\)"):
        load_run(folder.path)
    assert load_run(folder.path, "best").folder == folder.path and folder.weights("best").read_bytes() == best


def test_epochs_are_whole_numbers_of_any_kind(run, monkeypatch):
    monkeypatch.setattr(recipes, "get", lambda name: TINY)
    epochs = len(run.history)
    assert load_run(run.folder, np.int64(epochs)).epoch == epochs
    for wrong in (True, 1.0, "1"):
        with pytest.raises(TrainingError, match=f"the number of an epoch. Received: {wrong!r}"):
            load_run(run.folder, wrong)


def test_what_a_training_was_cannot_be_changed(run, monkeypatch):
    monkeypatch.setattr(recipes, "get", lambda name: TINY)
    assert load_run(run.folder, seed=run.settings.seed).settings.seed == run.settings.seed
    for changes in ({"seed": 7}, {"warmup": 0.3}, {"mixup": 0.5}, {"train_limit": 10}):
        ((name, value),) = changes.items()
        with pytest.raises(TrainingError, match=f"was trained with {name} .*. Received: {value}"):
            load_run(run.folder, **changes)


def test_a_run_that_has_lost_its_history_is_refused(run, tmp_path, monkeypatch):
    monkeypatch.setattr(recipes, "get", lambda name: TINY)
    shutil.copytree(run.folder, tmp_path / "run")
    (tmp_path / "run" / "history.csv").unlink()
    with pytest.raises(
        TrainingError, match=f"history.csv has 0 epochs, fewer than the weights .{len(run.history)}.[.]"
    ):
        load_run(tmp_path / "run")


def test_a_part_that_no_data_have_is_refused(run):
    for part in ("tests", "train"):
        with pytest.raises(ValueError, match=f"`part` must be one of 'test', 'validation'. Received: '{part}'"):
            run.evaluate(part)


def measured_row(run):
    (measured,) = evaluate_runs([run])
    return measured.row


def test_the_row_of_an_ensemble_is_of_all_its_runs(run):
    other = dataclasses.replace(run, settings=dataclasses.replace(run.settings, seed=1))
    (alone,), (both,) = evaluate_runs([run]), evaluate_runs([run, other])
    assert (both.row["seed"], both.row["epochs"]) == ("0 + 1", alone.row["epochs"])
    assert both.row["parameters"] == 2 * alone.row["parameters"] and both.row["recipe"] == f"{TINY.name} + {TINY.name}"


def test_runs_of_one_ensemble_have_one_metric(run):
    other = dataclasses.replace(run, recipe=run.recipe.replace(metric="top_5"))
    with pytest.raises(ValueError, match="same inputs, preprocessing, classes and metric. .*top_5"):
        next(evaluate_runs([run, other]))


def test_other_iterations_than_in_training_are_told(eager, run, monkeypatch):
    monkeypatch.setattr(recipes, "get", lambda name: TINY)
    part = run.result["note"]
    assert measured_row(load_run(run.folder, iterations=2))["note"] == f"{part}; evaluated with 2 iterations"
    assert [measured_row(load_run(run.folder, iterations=count))["note"] for count in (1, None)] == [part, part]
    with pytest.raises(ValueError, match="^`types` must be"):  # and not that config.json is wrong
        load_run(run.folder, network={"types": -1})
    with pytest.raises(TrainingError, match="weights.h5 does not hold") as error:
        load_run(run.folder, network={"types": 5})
    assert "best" not in str(error.value)  # those are of the same network
    assert part == "70 of 360 test examples"


def test_other_data_are_told_by_their_whole_path(eager, run_on_arrays, tmp_path, monkeypatch):
    monkeypatch.setattr(recipes, "get", lambda name: TINY)
    write_arrays(tmp_path / "o.npz")
    monkeypatch.chdir(tmp_path)
    row = measured_row(load_run(run_on_arrays.folder, data="o.npz"))
    assert row["settings"] == f"data {tmp_path / 'o.npz'}"
    own = run_on_arrays.settings.data
    assert row["note"] == f"trained on {own}"
    for same in (own, None):
        assert measured_row(load_run(run_on_arrays.folder, data=same))["note"] == ""


def test_the_length_of_an_epoch_is_not_that_of_other_data(eager, tmp_path, monkeypatch):
    monkeypatch.setattr(recipes, "get", lambda name: TINY)
    write_arrays(tmp_path / "one.npz")
    settings = Settings(data=str(tmp_path / "one.npz"), epoch_size=10, epochs=1)
    train(TINY, tmp_path / "run", settings, verbose=0)
    assert "epochs of 10 of" in load_run(tmp_path / "run").data.spec.note
    (tmp_path / "more").mkdir()
    write_arrays(tmp_path / "more" / "one.npz")
    other = load_run(tmp_path / "run", data=str(tmp_path / "more" / "one.npz"))
    assert other.data.spec.note == "" and measured_row(other)["note"] == f"trained on {settings.data}"


def test_a_run_without_the_weights_of_every_epoch_has_one_model(run):
    assert run.models() == {"": run.model}


def test_a_run_on_data_of_one_s_own_takes_no_other_folder(eager, run_on_arrays, monkeypatch):
    monkeypatch.setattr(recipes, "get", lambda name: TINY)
    with pytest.raises(TrainingError, match="replaces the data set: leave out --data-dir"):
        load_run(run_on_arrays.folder, data_dir="elsewhere")


def test_a_run_that_downloaded_its_data_downloads_no_others(eager, tmp_path, monkeypatch):
    monkeypatch.setattr(recipes, "get", lambda name: TINY)
    run = train(
        TINY.replace(epochs=1), tmp_path / "run", Settings(train_limit=50, test_limit=20, download=True), verbose=0
    )
    assert not load_run(run.folder).settings.download
