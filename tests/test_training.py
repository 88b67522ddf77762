import csv
import dataclasses
import functools
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import keras
import numpy as np
import pytest
from toys import ToyTransformer, write_checkpoint, write_trees

from tf_capsules import datasets, recipes, text, training
from tf_capsules.datasets.pipeline import Dataset, Split
from tf_capsules.losses import SpreadLoss
from tf_capsules.models import CapsuleClassifier, li2018
from tf_capsules.optimizers import CoupledSGD, RAdam, one_cycle
from tf_capsules.training import Settings, TrainingError

DIGITS = recipes.get("sabour2017-digits")
TINY = DIGITS.replace(
    model_options=dict(filters=6, types=2, pose=3, dim=4, decoder_units=(7,)),
    epochs=2,
    batch_size=50,
    decays=None,
    decay_steps=40,
    figures=(),
)
RECTIFIED = TINY.replace(optimizer=RAdam, decay_steps=None, warmup=0.25, momentum_cycle=True)
SPREAD = TINY.replace(loss=SpreadLoss, margin_schedule="sigmoid")
SHORT = Settings(train_limit=120, test_limit=70)
REPOSITORY = pathlib.Path(__file__).parents[1]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return training.train(TINY, tmp_path_factory.mktemp("runs") / "tiny", SHORT, verbose=0)


def test_a_run_folder_holds_config_history_weights_and_result(run):
    assert json.loads((run.folder / "config.json").read_text())["settings"]["train_limit"] == 120
    history = training.RunFolder(run.folder).history()
    assert [row["epoch"] for row in history] == [1, 2]
    assert {"loss", "accuracy", "val_loss", "val_accuracy", "learning_rate", "seconds"} <= set(history[0])
    assert (run.folder / "last-0002.weights.h5").exists() and (run.folder / "best.weights.h5").exists()
    assert not (run.folder / "last-0001.weights.h5").exists()
    if keras.backend.backend() == "tensorflow":
        assert list((run.folder / "tensorboard").rglob("events*"))
    result = json.loads((run.folder / "result.json").read_text())
    assert result["value"] == pytest.approx(history[-1]["val_accuracy"], abs=1e-6)
    assert result["train_examples"] == 120 and result["test_examples"] == 70 and result["seed"] == 0


def test_a_loaded_run_measures_what_training_measured(run, monkeypatch):
    monkeypatch.setattr(recipes, "get", lambda name: TINY)
    loaded = training.load_run(run.folder)
    assert loaded.evaluate()["accuracy"] == pytest.approx(run.result["value"], abs=1e-6)
    images, labels = loaded.examples(9)
    assert images.shape == (9, 8, 8, 1) and labels.shape == (9,)
    lengths = keras.ops.convert_to_numpy(loaded.model(images)["activations"])
    np.testing.assert_allclose(lengths, keras.ops.convert_to_numpy(run.model(images)["activations"]), atol=1e-6)


def test_feedback_units_train_along_and_are_left_behind(tmp_path, monkeypatch):
    options = dict(types=3, layers=(1,), coefficients=None)
    recipe = DIGITS.replace(model=li2018.EncapNet, feedback=li2018.feedback, batch_size=30, decays=None, figures=())
    recipe = dataclasses.replace(recipe, model_options=options)
    monkeypatch.setattr(recipes, "get", lambda name: recipe)
    short = Settings(train_limit=60, test_limit=30, epochs=1)
    training.train(recipe, tmp_path / "run", short, verbose=0)
    run = training.train(recipe, tmp_path / "run", dataclasses.replace(short, epochs=2), resume=True, verbose=0)
    whole = training.train(recipe, tmp_path / "whole", dataclasses.replace(short, epochs=2), verbose=0)
    assert type(run.model) is CapsuleClassifier and run.result["parameters"] == run.model.count_params()
    loaded = training.load_run(run.folder)
    assert loaded.evaluate()["accuracy"] == pytest.approx(run.result["value"], abs=1e-6)
    for weight, other, again in zip(run.model.weights, whole.model.weights, loaded.model.weights, strict=True):
        np.testing.assert_allclose(weight, other, atol=1e-4)
        np.testing.assert_array_equal(weight, again)
    assert all(row["feedback"] > 0 for row in run.history)


def test_the_same_seed_gives_the_same_run_and_another_seed_another(tmp_path):
    recipe = TINY.replace(epochs=1)
    losses = [
        training.train(recipe, tmp_path / str(i), Settings(train_limit=60, test_limit=20, seed=seed), verbose=0)
        .history[0]["loss"]
        for i, seed in enumerate((3, 3, 4))
    ]  # fmt: skip
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert losses[0] != pytest.approx(losses[2], rel=3e-5)


def test_a_step_is_traced_once(tmp_path, monkeypatch):
    if keras.backend.backend() != "tensorflow":
        pytest.skip("other backends trace by themselves")
    traced, compute_loss = [], CapsuleClassifier.compute_loss

    def recorded(self, *arguments, training=True, **options):
        traced.append(training)
        return compute_loss(self, *arguments, training=training, **options)

    monkeypatch.setattr(CapsuleClassifier, "compute_loss", recorded)
    training.train(TINY, tmp_path / "run", Settings(train_limit=100, test_limit=50), verbose=0)
    assert traced == [True, False]


@pytest.mark.parametrize("name", ["sabour2017-multimnist", "sabour2017-multimnist-cnn"])
def test_capsule_networks_and_plain_classifiers_train_on_several_targets(tmp_path, name):
    if keras.backend.backend() != "tensorflow":
        pytest.skip("images made on the fly need TensorFlow")
    tiny = dict(filters=4, types=2, pose=3, dim=4, kernel_size=3, decoder_units=(7,))
    recipe = recipes.get(name).replace(dataset_options=dict(source="digits"), batch_size=8, figures=())
    if name == "sabour2017-multimnist":
        recipe = recipe.replace(model_options=tiny)
    else:
        recipe = recipe.replace(model=lambda **options: keras.Sequential(
            [keras.Input(options["image_shape"]), keras.layers.Flatten(), keras.layers.Dense(10, "sigmoid")]
        ))  # fmt: skip
        recipe.model.__name__ = "small"
    run = training.train(recipe, tmp_path / "run", Settings(train_limit=20, test_limit=11), verbose=0)
    assert run.evaluate()["exact_match"] == pytest.approx(run.result["value"])
    assert run.result["metric"] == "exact_match" and run.result["dataset"] == "multimnist"


def write_arrays(path, classes=4, shape=(10, 12, 2)):
    """Images of one bright row, in the row of its class."""
    y = np.random.default_rng(0).permutation(90) % classes
    x = np.zeros((90, *shape), np.uint8)
    x[np.arange(90), y % shape[0], 3] = 255
    np.savez(path, x_train=x[:60], y_train=y[:60], x_test=x[60:], y_test=y[60:])
    return x, y


def test_arrays_train_without_a_data_set(tmp_path):
    path = tmp_path / "mine.npz"
    x, _ = write_arrays(path)
    run = training.train(TINY, tmp_path / "run", Settings(data=str(path), epochs=1), verbose=0)
    assert run.model.image_shape == (10, 12, 2) and run.result["dataset"] == "mine.npz"
    assert run.model(x[:5] / 255)["activations"].shape == (5, 4)


def test_a_folder_of_images_is_resized(tmp_path):
    Image = pytest.importorskip("PIL.Image")
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for i in range(6):
            Image.fromarray(np.full((5, 7, 3), i, np.uint8)).save(tmp_path / name / f"{i}.png")
    for source in (dict(data=str(tmp_path)), dict(dataset="folder", data_dir=str(tmp_path))):
        for side in (9, None):
            settings = Settings(image_size=side, **source)
            settings.check(TINY)
            data = training.load_data(settings.apply(TINY), settings)
            assert data.spec.raw_shape == (side or 32, side or 32, 3) and data.spec.class_names == ("cat", "dog")


def test_a_run_whose_data_have_gone_is_loaded_without_them(tmp_path, monkeypatch):
    path = tmp_path / "mine.npz"
    x, _ = write_arrays(path, 10, (8, 8, 1))
    run = training.train(RECTIFIED, tmp_path / "run", Settings(data=str(path), epochs=1), verbose=0)
    path.unlink()
    monkeypatch.setattr(recipes, "get", lambda name: RECTIFIED)
    loaded = training.load_run(run.folder)
    spec = loaded.trained_on
    assert (spec.name, spec.raw_shape, spec.image_shape, spec.train_size) == ("mine.npz", (8, 8, 1), (8, 8, 1), 60)
    assert spec.class_names == tuple("0123456789") and loaded.result == run.result
    for a, b in zip(run.model.get_weights(), loaded.model.get_weights(), strict=True):
        np.testing.assert_array_equal(b, a)
    assert loaded.model.optimizer.get_config() == run.model.optimizer.get_config()
    with pytest.raises(TrainingError, match="mine.npz: there is no such file or folder"):
        loaded.evaluate()
    elsewhere = training.load_run(run.folder, dataset="digits", test_limit=30)
    assert elsewhere.data.spec.name == "digits" and 0 <= elsewhere.evaluate()["accuracy"] <= 1


def test_other_data_must_have_the_images_and_classes_of_the_run(run, tmp_path, monkeypatch):
    monkeypatch.setattr(recipes, "get", lambda name: TINY)
    write_arrays(tmp_path / "large.npz", 10, (9, 8, 1))
    with pytest.raises(TrainingError, match=r"large.npz has images \(9, 8, 1\) of 10 .* trained on images \(8, 8, 1\)"):
        training.load_run(run.folder, data=str(tmp_path / "large.npz")).evaluate()
    write_arrays(tmp_path / "many.npz", 11, (8, 8, 1))
    with pytest.raises(
        TrainingError, match="many.npz is not a data set: y_train has the label 10; of 10 classes they go to 9"
    ):
        training.load_run(run.folder, data=str(tmp_path / "many.npz")).evaluate()
    write_arrays(tmp_path / "few.npz", 3, (8, 8, 1))  # these arrays lack seven classes, which are no other classes
    assert training.load_run(run.folder, data=str(tmp_path / "few.npz"), test_limit=20).evaluate()["loss"] > 0
    split = Split({"image": np.zeros((4, 8, 8, 1), np.uint8), "label": np.arange(4) % 3})
    monkeypatch.setattr(datasets, "load", lambda *_, **__: Dataset("three", split, split, ("a", "b", "c")))
    with pytest.raises(TrainingError, match=r"three has images \(8, 8, 1\) of 3 classes; .* of 10 classes"):
        training.load_run(run.folder, dataset="mnist").evaluate()
    names = tuple("0123456") + ("seven", "8", "9")
    monkeypatch.setattr(datasets, "load", lambda *_, **__: Dataset("words", split, split, names))
    with pytest.raises(TrainingError, match=r"words has 'seven'; .* was trained on '7', class 7"):
        training.load_run(run.folder, dataset="mnist").evaluate()


def test_a_folder_is_read_as_the_run_s_images_were(run, tmp_path, monkeypatch):
    Image = pytest.importorskip("PIL.Image")
    monkeypatch.setattr(recipes, "get", lambda name: TINY)
    for label in range(10):
        (tmp_path / str(label)).mkdir()
        for i in range(6):
            Image.fromarray(np.full((5, 7, 3), i, np.uint8)).save(tmp_path / str(label) / f"{i}.png")
    given = training.load_run(run.folder, data=str(tmp_path))
    assert given.data.spec.image_shape == (8, 8, 1) and given.evaluate()["loss"] > 0


def test_limits_take_some_of_every_class_of_sorted_arrays(tmp_path):
    path = tmp_path / "sorted.npz"
    x, y = write_arrays(path)
    order, rest = np.argsort(y[:60], kind="stable"), 60 + np.argsort(y[60:], kind="stable")
    np.savez(path, x_train=x[order], y_train=y[order], x_test=x[rest], y_test=y[rest])
    settings = Settings(data=str(path), train_limit=20, test_limit=12)
    data = training.load_data(settings.apply(TINY), settings)
    assert (data.spec.train_size, data.spec.test_size) == (20, 12)
    for batches in (data.train, data.test):
        assert set(np.asarray(batches(batch_size=20)[0][1]).tolist()) == {0, 1, 2, 3}


def test_a_run_goes_on_where_its_data_have_moved(tmp_path, monkeypatch, capsys):
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
        write_arrays(tmp_path / place / "mine.npz")
    settings = Settings(data=str(tmp_path / "here" / "mine.npz"), epochs=1)
    training.train(TINY, tmp_path / "run", settings, verbose=0)
    (tmp_path / "here" / "mine.npz").unlink()
    (tmp_path / "there" / "mine.npz").rename(tmp_path / "there" / "renamed.npz")
    settings = Settings(data=str(tmp_path / "there" / "renamed.npz"), epochs=2)
    assert len(training.train(TINY, tmp_path / "run", settings, resume=True, verbose=2).history) == 2
    printed = capsys.readouterr().out
    assert "goes on after epoch 1 of 2" in printed
    assert "data: renamed.npz, 60 examples for training, 30 for testing, images (10, 12, 2), 4 classes" in printed
    before = (tmp_path / "run" / "config.json").read_text()
    training.train(TINY, tmp_path / "run", settings, resume=True, verbose=2)
    assert "all 2 epochs of" in capsys.readouterr().out
    with pytest.raises(TrainingError, match="run has finished 2 epochs, more than 1"):
        training.train(TINY, tmp_path / "run", Settings(data=settings.data, epochs=1), resume=True)
    assert (tmp_path / "run" / "config.json").read_text() == before
    (tmp_path / "run" / "last-0002.weights.h5").write_bytes(b"damaged")
    monkeypatch.setattr(recipes, "get", lambda name: TINY)
    with pytest.raises(TrainingError, match="last-0002.weights.h5 does not hold .* best.weights.h5 is there, too"):
        training.load_run(tmp_path / "run")
    assert training.load_run(tmp_path / "run", "best").evaluate()["loss"] > 0


def test_progress_without_a_terminal_tells_the_time_left(tmp_path, monkeypatch, capsys):
    write_arrays(tmp_path / "mine.npz")
    monkeypatch.setattr(training, "Progress", functools.partial(training.Progress, seconds=0))
    training.train(TINY, tmp_path / "run", Settings(data=str(tmp_path / "mine.npz"), epochs=2, batch_size=30))
    lines = [line for line in capsys.readouterr().out.splitlines() if "minutes left" in line]
    assert [line.split(":")[0] for line in lines] == [
        f"epoch {epoch}, step {step} of 2" for epoch in (1, 2) for step in (1, 2)
    ]
    assert lines[-1].endswith("about 0 minutes left")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1, -1, 2], "training set of odd has the label -1; of 3 classes they are 0 to 2"),
        ([0, 3, 1, 2], "training set of odd has the label 3; of 3 classes they are 0 to 2"),
        ([0, 1.5, 1, 2], "training set of odd has the label 1.5; of 3 classes"),
        (["a", "b", "c", "a"], "labels in the training set of odd are <U1, not whole numbers"),
    ],
)
def test_labels_that_are_no_class_are_refused_before_training(tmp_path, monkeypatch, labels, message):
    images = np.zeros((4, 8, 8, 1), np.uint8)
    train, test = (Split({"image": images, "label": np.array(y)}) for y in (labels, [0, 1, 2, 0]))
    monkeypatch.setattr(datasets, "load", lambda *_, **__: Dataset("odd", train, test, ("a", "b", "c")))
    with pytest.raises(TrainingError, match=message):
        training.train(TINY, tmp_path / "run", SHORT)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (Settings(epochs=0), "--epochs must be at least 1. Received: 0"),
        (Settings(learning_rate=-1.0), "--learning-rate must be above 0. Received: -1.0"),
        (Settings(seed=-1), "--seed"),
        (Settings(dtype="float8"), "--dtype must be .* Received: float8"),
        (Settings(jit="maybe"), "--jit must be auto or on or off. Received: maybe"),
        (Settings(strategy="magic"), "--strategy must be none or mirrored. Received: magic"),
        (Settings(dataset="mnits"), "--dataset must be one of .* Received: mnits"),
        (Settings(data="absent.npz"), "absent.npz: there is no such file"),
        (Settings(data="absent.npz", dataset="mnist"), "exclude each other"),
        (Settings(devices=2), "--devices 2 needs --strategy mirrored"),
        (Settings(image_size=16), "--image-size 16 is for a folder of images. Received: digits"),
        (
            Settings(image_size=16, data=__file__),
            "--image-size 16 is for a folder of images. Received: .*test_training",
        ),
        (Settings(iterations=0), "--iterations must be at least 1. Received: 0"),
        (Settings(warmup=1.0), "--warmup must be between 0 and 1. Received: 1.0"),
        (Settings(mixup=0.0), "--mixup must be above 0. Received: 0.0"),
        (Settings(stop_at=95.0), "--stop-at must be a share above 0, at most 1. Received: 95.0"),
        (Settings(warmup=0.1, decay_steps=9), "--decay-steps 9 and --warmup 0.1 exclude each other"),
    ],
)
def test_bad_settings_fail_before_anything_is_made(tmp_path, settings, message):
    with pytest.raises(TrainingError, match=message):
        training.train(TINY, tmp_path / "run", settings)
    assert not (tmp_path / "run").exists()


def test_a_failed_start_leaves_the_folder_free(tmp_path):
    (tmp_path / "bad.npz").write_bytes(b"not an archive")
    with pytest.raises(TrainingError, match="bad.npz is not a data set"):
        training.train(TINY, tmp_path / "run", Settings(data=str(tmp_path / "bad.npz")))
    with pytest.raises(TrainingError, match="for several classes an image, the data digits have one class"):
        training.train(TINY.replace(metric="exact_match"), tmp_path / "run", SHORT)
    with pytest.raises(TrainingError, match="--decay-steps 9 and the warm-up of .* exclude each other"):
        training.train(RECTIFIED, tmp_path / "run", Settings(decay_steps=9))
    with pytest.raises(TrainingError, match="momentum_cycle needs the optimizer RAdam. Received: Adam"):
        training.train(RECTIFIED.replace(optimizer=keras.optimizers.Adam), tmp_path / "run", SHORT)
    plain = recipes.get("sabour2017-mnist-cnn").replace(dataset="digits", preprocess=(), mixup=0.2)
    for recipe, kind in (
        (plain.replace(model=plain_network), "a plain one"),
        (TINY.replace(mixup=0.2), "one with a decoder"),
    ):
        with pytest.raises(TrainingError, match=f"mixup 0.2 is for .* without a decoder. Received: {kind}"):
            training.train(recipe, tmp_path / "run", SHORT)
    assert not (tmp_path / "run").exists()


def plain_network(image_shape, classes):
    layers = [keras.Input(image_shape), keras.layers.Flatten(), keras.layers.Dense(classes, "softmax")]
    return keras.Sequential(layers)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(margin_schedule="linear"), "margin_schedule 'linear' is for SpreadLoss, not MarginLoss"),
        (dict(warmup=0.1), "decay_steps 40 and warmup 0.1 exclude each other"),
        (dict(decays=9), "decays 9 and decay_steps 40 exclude each other"),
        (dict(drops=(0.5,)), r"decay_steps 40 and drops \(0.5,\) exclude each other"),
        (dict(drops=(0.5, 0.2), decay_steps=None), r"between 0 and 1 and in order, not \(0.5, 0.2\)"),
        (dict(momentum_cycle=True), "momentum_cycle .* needs warmup"),
        (dict(threshold=0.5), "threshold 0.5 is for the metric exact_match, not accuracy"),
        (dict(mixup=0.2, metric="exact_match"), "mixup 0.2 is for one class an image"),
    ],
)
def test_a_recipe_s_values_must_agree(changes, message):
    with pytest.raises(ValueError, match=message):
        TINY.replace(**changes)


def test_warm_up_and_momentum_follow_all_steps_of_the_run(tmp_path):
    run = training.train(RECTIFIED, tmp_path / "run", SHORT, verbose=0)
    rate, beta_1 = one_cycle(1e-5, 0.002, 6, 0.25), run.model.optimizer.beta_1  # 2 epochs of 3 batches
    assert [row["learning_rate"] for row in run.history] == pytest.approx([float(rate(3)), float(rate(6))])
    assert beta_1.get_config() == one_cycle(0.81, 0.9, 6, 0.25, inverted=True).get_config()
    with pytest.raises(TrainingError, match="epochs 2, now 3: with a warm-up"):
        training.train(RECTIFIED.replace(epochs=3), run.folder, SHORT, resume=True)
    recipe = Settings(warmup=0.5).apply(TINY)
    assert (recipe.warmup, recipe.decay_steps, recipe.momentum_cycle) == (0.5, None, False)
    assert Settings(mixup=0.3).apply(TINY).mixup == 0.3


def test_a_rate_that_decays_over_the_run_ends_alike_however_long_it_is(tmp_path):
    recipe = TINY.replace(decays=2, decay_steps=None)
    ends = [
        training.train(recipe.replace(epochs=epochs), tmp_path / str(epochs), SHORT, verbose=0).history[-1]
        for epochs in (1, 3)
    ]
    # The recorded rate is that of the next step.
    assert [row["learning_rate"] for row in ends] == pytest.approx([0.002 * 0.96**2] * 2)
    with pytest.raises(TrainingError, match="epochs 3, now 4: the learning rate falls over the whole run"):
        training.train(recipe.replace(epochs=4), tmp_path / "3", SHORT, resume=True)
    fixed = Settings(decay_steps=7).apply(recipe)
    assert (fixed.decays, fixed.decay_steps) == (None, 7)


def test_weights_of_every_epoch_are_kept_on_demand(tmp_path):
    settings = Settings(epochs=3, train_limit=64, test_limit=20, batch_size=16, keep_epochs=True)
    run = training.train("sabour2017-digits", tmp_path / "run", settings, verbose=0)
    assert training.RunFolder(run.folder).checkpoints() == [1, 2, 3]
    models = run.models(most=2)
    assert list(models) == ["epoch 1", "epoch 3"] and list(run.models()) == ["epoch 1", "epoch 2", "epoch 3"]
    last, first, best = (training.load_run(run.folder, which).model.get_weights() for which in ("last", 1, "best"))
    for kept, weights in ((models["epoch 3"], last), (models["epoch 1"], first)):
        assert all(np.array_equal(a, b) for a, b in zip(kept.get_weights(), weights, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, last, strict=True))
    with pytest.raises(TrainingError, match="weights of the epochs 1, 2, 3; --keep-epochs .* Received: 4"):
        training.load_run(run.folder, 4)
    with pytest.raises(TrainingError, match="keep_epochs True, now False"):
        training.train("sabour2017-digits", run.folder, dataclasses.replace(settings, keep_epochs=False), resume=True)
    plain = training.train("sabour2017-digits", tmp_path / "plain", Settings(epochs=1, train_limit=16), verbose=0)
    assert plain.models() == {"": plain.model}


def test_the_learning_rate_drops_at_shares_of_the_run(tmp_path):
    recipe = TINY.replace(optimizer=CoupledSGD, learning_rate=0.02, decay_steps=None, drops=(0.4, 0.7), epochs=3)
    run = training.train(recipe, tmp_path / "run", SHORT, verbose=0)  # 3 epochs of 3 batches
    assert [row["learning_rate"] for row in run.history] == pytest.approx([0.02, 0.002, 0.0002])
    with pytest.raises(TrainingError, match="epochs 3, now 4: a learning rate that drops .*; start a new run"):
        training.train(recipe.replace(epochs=4), run.folder, SHORT, resume=True)
    with pytest.raises(TrainingError, match="--decay-steps 9 and the drops of .* exclude each other"):
        training.train(recipe, tmp_path / "other", Settings(decay_steps=9))
    warmed = Settings(warmup=0.5).apply(recipe)
    assert (warmed.warmup, warmed.drops) == (0.5, ())


def test_iterations_are_those_of_every_routing_layer(tmp_path):
    recipe = Settings(iterations=2).apply(TINY)
    assert recipe.model_options == {**TINY.model_options, "iterations": 2}
    assert (
        recipe.model(image_shape=(8, 8, 1), **recipe.model_options).encoder.get_layer("class_capsules").iterations == 2
    )
    with pytest.raises(TrainingError, match="--iterations 2 is for networks that route; .* is BaselineCNN"):
        training.train(recipes.get("sabour2017-mnist-cnn"), tmp_path / "run", Settings(iterations=2))


def test_epochs_of_few_steps_are_told(tmp_path, capsys):
    settings = dataclasses.replace(SHORT, epochs=1, train_limit=60)
    training.train(TINY, tmp_path / "few", settings, verbose=2)
    assert "hint: an epoch is 2 steps of up to 50 examples; from so few a smaller" in capsys.readouterr().out
    training.train(TINY, tmp_path / "more", dataclasses.replace(settings, batch_size=12), verbose=2)
    assert "hint:" not in capsys.readouterr().out


def test_arguments_of_the_network_are_set_kept_and_told(tmp_path):
    settings = dataclasses.replace(SHORT, epochs=1, decay_steps=40, network={"dim": 5, "decoder_units": [6, 7]})
    trained = training.train(DIGITS, tmp_path / "run", settings, verbose=0)
    assert trained.model.encoder.get_layer("class_capsules").dim == 5
    assert [note for note in trained.result["note"].split("; ") if note.startswith("network ")] == [
        "network decoder_units=6,7",
        "network dim=5",
    ]
    again = training.load_run(tmp_path / "run")
    assert again.model.count_params() == trained.model.count_params()
    once = training.load_run(tmp_path / "run", iterations=1, test_limit=20)
    assert once.model.encoder.get_layer("class_capsules").iterations == 1
    for a, b in zip(once.model.get_weights(), trained.model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    images, _ = once.examples(20)
    two = [one.model.encoder.predict(images, verbose=0)["activations"] for one in (once, again)]
    assert np.abs(two[0] - two[1]).max() > 1e-4
    for network, message in (
        ({"dims": 5}, "--network dims=5: CapsNet has no such argument .* it has .*dim, .*filters"),
        ({"classes": 5}, "--network classes=5: CapsNet has no such argument"),
        ({"dim": 0}, "dim"),
        ({"decoder_units": 5}, "can't be made with .*'decoder_units': 5"),
    ):
        with pytest.raises(TrainingError, match=message):
            training.train(TINY, tmp_path / "other", Settings(network=network))
    with pytest.raises(TrainingError, match="--network iterations=2: give --iterations 2"):
        training.train(TINY, tmp_path / "other", Settings(network={"iterations": 2}))


def test_the_margin_follows_all_steps_of_the_run(tmp_path, monkeypatch):
    run = training.train(SPREAD, tmp_path / "run", Settings(train_limit=450, test_limit=70), verbose=0)
    (margin,) = run.model.growing_margins  # 2 epochs of 9 batches
    assert (margin.schedule, margin.scale, int(keras.ops.convert_to_numpy(margin.steps))) == ("sigmoid", 3, 18)
    assert run.result["parameters"] == TINY.model((8, 8, 1), 10, **TINY.model_options).count_params()
    monkeypatch.setattr(recipes, "get", lambda name: SPREAD)
    assert training.load_run(run.folder).evaluate()["loss"] == pytest.approx(run.result["test_loss"], abs=1e-5)
    with pytest.raises(TrainingError, match="epochs 2, now 3: with a growing margin"):
        training.train(SPREAD.replace(epochs=3), run.folder, run.settings, resume=True)


def test_mixup_is_asked_of_the_training_stream_alone(tmp_path, monkeypatch):
    asked, load = {}, training.load_data

    def recorded(name, stream):
        return lambda **options: asked.update({name: options}) or stream(**options)

    def load_data(*arguments):
        data = load(*arguments)
        return dataclasses.replace(
            data, **{name: recorded(name, getattr(data, name)) for name in ("train", "validation")}
        )

    monkeypatch.setattr(training, "load_data", load_data)
    recipe, settings = (
        TINY.replace(model_options=dict(decoder_units=None), epochs=1),
        Settings(train_limit=50, test_limit=20),
    )
    mixed = training.train(recipe, tmp_path / "run", dataclasses.replace(settings, mixup=0.4), verbose=0)
    assert asked["train"]["mixup"] == (0.4, 10) and "mixup" not in asked["validation"]
    assert mixed.result["note"] == "mixup 0.4"
    # Both accuracies are of class numbers, for which Keras has a metric of its own.
    images, labels = mixed.examples(20)
    correct = keras.ops.convert_to_numpy(mixed.model(images)["activations"]).argmax(-1) == labels
    assert mixed.result["value"] == pytest.approx(correct.mean(), abs=1e-6)
    plain = training.train(recipe, tmp_path / "plain", settings, verbose=0)
    assert "mixup" not in asked["train"] and plain.history[0]["loss"] != mixed.history[0]["loss"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (Settings(strategy="mirrored", jit="on"), "--jit on does not work under --strategy mirrored"),
        (Settings(strategy="mirrored", devices=3), "--batch-size 50 can't be shared evenly by --devices 3"),
    ],
)
def test_bad_strategies_fail_before_anything_is_made(tmp_path, settings, message):
    if keras.backend.backend() != "tensorflow":
        message = "needs the TensorFlow backend"
    with pytest.raises(TrainingError, match=message):
        training.train(TINY, tmp_path / "run", settings)
    assert not (tmp_path / "run").exists()


def test_a_folder_with_a_run_is_not_overwritten_nor_resumed_with_other_settings(run):
    with pytest.raises(TrainingError, match="holds a run already. Add --resume"):
        training.train(TINY, run.folder, SHORT)
    other = Settings(train_limit=120, test_limit=70, seed=5)
    with pytest.raises(TrainingError, match="other settings: seed 0, now 5"):
        training.train(TINY, run.folder, other, resume=True)
    with pytest.raises(TrainingError, match="batch_size 50, now 40"):
        training.train(TINY.replace(batch_size=40), run.folder, SHORT, resume=True)


def test_epochs_of_a_part_are_tested_kept_and_named(tmp_path):
    settings = Settings(train_limit=120, test_limit=20, epoch_size=80)
    run = training.train(TINY.replace(epochs=3), tmp_path / "run", settings, verbose=0)
    assert run.result["train_examples"] == 80 and run.result["epochs"] == 3
    assert run.result["note"].endswith("epochs of 80 of 120 examples")
    rows = training.RunFolder(run.folder).history()
    shorter = training.train(TINY.replace(epochs=2), tmp_path / "other", settings, verbose=0)
    assert shorter.history[1]["loss"] == pytest.approx(rows[1]["loss"], rel=1e-4)
    resumed = training.train(TINY.replace(epochs=3), shorter.folder, settings, resume=True, verbose=0)
    assert resumed.history[2]["loss"] == pytest.approx(rows[2]["loss"], rel=1e-3)


def test_nothing_to_resume_is_said_and_a_new_run_starts(tmp_path, capsys):
    recipe, settings = TINY.replace(epochs=1), Settings(train_limit=50, test_limit=20)
    (tmp_path / "run").mkdir()
    run = training.train(recipe, tmp_path / "run", settings, resume=True, verbose=2)
    assert f"{run.folder} holds no finished epoch to resume: a new run starts" in capsys.readouterr().out.splitlines()
    assert len(training.train(recipe, run.folder, settings, resume=True, verbose=2).history) == 1
    assert "a new run starts" not in capsys.readouterr().out


def test_other_data_under_the_same_name_are_not_resumed_on(tmp_path):
    path, settings = tmp_path / "mine.npz", Settings(data=str(tmp_path / "mine.npz"), train_limit=50, test_limit=20)
    write_arrays(path)
    training.train(TINY.replace(epochs=1), tmp_path / "run", settings, verbose=0)
    write_arrays(path, 5)
    with pytest.raises(TrainingError, match="was trained on other data: class_names .*'3'], now .*'4']"):
        training.train(TINY, tmp_path / "run", settings, resume=True, verbose=0)


def test_a_folder_without_a_run_is_refused(tmp_path):
    (tmp_path / "letter.txt").write_text("keep me")
    with pytest.raises(TrainingError, match="holds other files already"):
        training.train(TINY, tmp_path, SHORT)
    with pytest.raises(TrainingError, match="not the folder of a run"):
        training.load_run(tmp_path)
    assert (tmp_path / "letter.txt").read_text() == "keep me"


class NotANumber(keras.losses.Loss):
    def call(self, y_true, y_pred):
        return keras.ops.sum(y_pred, axis=-1) * float("nan")


def test_a_loss_that_is_not_finite_stops_with_step_checkpoint_and_advice(tmp_path):
    good = training.train(TINY.replace(epochs=1), tmp_path / "run", SHORT, verbose=0)
    before = (good.folder / "last-0001.weights.h5").read_bytes()
    folder = training.RunFolder(good.folder)
    recorder = training.Recorder(folder, "accuracy", folder.history(), 1)
    model = good.model
    model.compile("sgd", NotANumber())
    batches = good.data.train(batch_size=50, training=True)
    with pytest.raises(TrainingError, match=r"nan at step 1 of epoch 2. .*last-0001.weights.h5. Try a smaller"):
        model.fit(batches, callbacks=[recorder], shuffle=False, verbose=0)
    assert (good.folder / "last-0001.weights.h5").read_bytes() == before


def test_killed_while_writing_leaves_the_last_checkpoint_whole(tmp_path, monkeypatch):
    recipe = RECTIFIED  # whose optimizer and schedule have the most to keep

    class Killed(BaseException):
        pass

    save, saved = keras.Model.save_weights, []

    def half_written(model, path, **kwargs):
        saved.append(path)
        if len(saved) > 2:  # the best and the last of the first epoch
            pathlib.Path(path).write_bytes(b"half")
            raise Killed
        save(model, path, **kwargs)

    done = training.train(recipe, tmp_path / "done", SHORT, verbose=0)
    with monkeypatch.context() as patch:
        patch.setattr(keras.Model, "save_weights", half_written)
        with pytest.raises(Killed):
            training.train(recipe, tmp_path / "run", SHORT, verbose=0)
    folder = training.RunFolder(tmp_path / "run")
    assert folder.checkpoints() == [1]
    resumed = training.train(recipe, tmp_path / "run", SHORT, resume=True, verbose=0)
    assert [row["epoch"] for row in folder.history()] == [1, 2]
    for a, b in zip(done.model.get_weights(), resumed.model.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_a_killed_process_resumes_to_the_weights_of_an_uninterrupted_one(tmp_path):
    script = f"""
import sys
sys.path[:0] = [{str(REPOSITORY)!r}, {str(REPOSITORY / "tests")!r}]
from test_training import SPREAD
from tf_capsules import training
recipe = SPREAD.replace(epochs=5)
settings = training.Settings(train_limit=230, test_limit=30, deterministic=True)
training.train(recipe, sys.argv[1], settings, resume=True, verbose=0)
"""

    def start(folder):
        return subprocess.Popen([sys.executable, "-c", script, str(folder)], stderr=subprocess.PIPE)

    whole = start(tmp_path / "whole")
    killed = start(tmp_path / "killed")
    deadline = time.monotonic() + 120
    while not list((tmp_path / "killed").glob("last-*.weights.h5")) and time.monotonic() < deadline:
        assert killed.poll() is None, killed.stderr.read().decode()
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    done = training.RunFolder(tmp_path / "killed").checkpoints()
    assert done and done[-1] < 5, "the process was not killed in the middle of its run"
    resumed = start(tmp_path / "killed")
    for process in (whole, resumed):
        _, errors = process.communicate()
        assert process.returncode == 0, errors.decode()
    from h5py import File

    with (
        File(tmp_path / "whole" / "last-0005.weights.h5") as a,
        File(tmp_path / "killed" / "last-0005.weights.h5") as b,
    ):
        compared = []

        def same(name, dataset):
            if hasattr(dataset, "shape"):
                compared.append(name)
                assert np.array_equal(dataset[()], b[name][()]), name

        a.visititems(same)
    assert len(compared) > 10 and any("optimizer" in name for name in compared)


def test_two_mirrored_devices_give_the_weights_of_one(tmp_path):
    if keras.backend.backend() != "tensorflow":
        pytest.skip("MirroredStrategy needs the TensorFlow backend")
    # 131 examples in batches of 50: the last batch has 31, an odd number, which two devices can't share evenly.
    script = f"""
import sys
sys.path[:0] = [{str(REPOSITORY)!r}, {str(REPOSITORY / "tests")!r}]
import keras, numpy as np
from test_training import RECTIFIED, SpreadLoss
from tf_capsules import training
recipe = RECTIFIED.replace(loss=SpreadLoss, margin_schedule="sigmoid", learning_rate=0.1)
options = dict(train_limit=131, test_limit=31)
mirrored = training.Settings(strategy="mirrored", devices=2, **options)
two = training.train(recipe, sys.argv[1] + "/two", mirrored, verbose=0)
one = training.train(recipe, sys.argv[1] + "/one", training.Settings(**options), verbose=0)
first = training.build_model(recipe, one.data.spec)
for a, b in zip(one.model.get_weights(), two.model.get_weights(), strict=True):
    np.testing.assert_allclose(a, b, atol=1e-5)
moved = max(np.abs(a - b).max() for a, b in zip(one.model.get_weights(), first.get_weights()))
assert moved > 1e-3, moved
assert one.result["value"] == two.result["value"], (one.result, two.result)
assert abs(one.result["test_loss"] / two.result["test_loss"] - 1) < 1e-4, (one.result, two.result)
"""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_results_are_appended_and_other_columns_refused(tmp_path, run):
    path = tmp_path / "deep" / "results.csv"
    training.append_row(path, run.result)
    training.append_row(path, run.result)
    lines = path.read_text().splitlines()
    assert len(lines) == 3 and lines[1] == lines[2] and lines[0].startswith("recipe,dataset,")
    with pytest.raises(TrainingError, match="has the columns"):
        training.append_row(path, {"other": 1})


def test_a_file_of_results_that_cannot_take_the_row_is_refused_before_training(tmp_path):
    (tmp_path / "other.csv").write_text("other\n1\n")
    bad = {
        "other.csv": "has the columns \\['other'\\], not",
        "other.csv/x.csv": "can't be written",
        "": "can't be written",
    }
    for name, message in bad.items():
        with pytest.raises(TrainingError, match=message):
            training.train(TINY, tmp_path / "run", SHORT, results=tmp_path / name)
    assert not (tmp_path / "run").exists() and (tmp_path / "other.csv").read_text() == "other\n1\n"
    training.train(TINY.replace(epochs=1), tmp_path / "run", SHORT, verbose=0, results=tmp_path / "deep" / "new.csv")
    assert (tmp_path / "deep" / "new.csv").read_text().count("\n") == 2


def test_a_recipe_on_texts_trains_resumes_and_is_loaded(tmp_path, monkeypatch):
    toy = ToyTransformer(write_checkpoint(tmp_path / "toy"))
    monkeypatch.setattr(text, "load", lambda name: toy)
    tiny = dict(dim=6, parts=5, pose=3)
    recipe = recipes.get("heinsen2019-sst2").replace(model_options=tiny, epochs=2, batch_size=4, figures=())
    settings = Settings(data_dir=str(write_trees(tmp_path / "trees")), cache=str(tmp_path / "cache"))
    whole = training.train(recipe, tmp_path / "whole", settings, verbose=0)
    assert [row["epoch"] for row in whole.history] == [1, 2]
    assert {"val_loss_std", "val_accuracy_std"} <= set(whole.history[0])
    # The test split is measured once; what the history has is the development split.
    assert whole.result["value"] == pytest.approx(whole.evaluate()["accuracy"], abs=1e-6)
    assert whole.result["test_examples"] == 7 and whole.result["best_value"] == ""
    texts, labels = whole.examples(3, raw=True)
    assert texts[0] == "bad0" and labels.tolist() == [0, 1, 0]
    assert whole.examples(3)[0]["embeddings"].shape[0] == 3

    class Killed(Exception):
        pass

    def kill(self, epoch, logs=None):
        if epoch == 1:
            raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(training.Recorder, "on_epoch_begin", kill, raising=False)
        patch.setattr(training.Recorder, "started", 0.0, raising=False)
        training.train(recipe, tmp_path / "cut", settings, verbose=0)
    cut = training.train(recipe, tmp_path / "cut", settings, resume=True, verbose=0)
    for a, b in zip(whole.model.get_weights(), cut.model.get_weights(), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-6)
    monkeypatch.setattr(recipes, "get", lambda name: recipe)
    loaded = training.load_run(whole.folder)
    assert loaded.trained_on.inputs == "3 hidden states of 4"
    assert loaded.evaluate()["accuracy"] == pytest.approx(whole.result["value"], abs=1e-6)


@pytest.fixture
def views(monkeypatch):
    """In place of the digits: noise, with a split of familiar viewpoints."""
    random = np.random.default_rng(0)
    splits = [
        Split({"image": random.integers(0, 256, (n, 9, 9, 1), dtype=np.uint8), "label": np.arange(n) % 10})
        for n in (60, 50, 40)
    ]
    toys = Dataset("toys", *splits[:2], tuple("abcdefghij"), "of noise", familiar=splits[2])
    recipe = TINY.replace(preprocess=(("shift", 1), ("crop", 8)), epochs=3)
    monkeypatch.setattr(datasets, "load", lambda *_, **__: toys)
    monkeypatch.setattr(recipes, "get", lambda name: recipe)
    return recipe


def test_training_stops_where_familiar_viewpoints_are_known_well_enough(views, tmp_path, capsys):
    results = tmp_path / "results.csv"
    first = training.train(views, tmp_path / "run", Settings(stop_at=0.001), verbose=0, results=results)
    assert len(first.history) == 1 and first.history[0]["val_accuracy"] >= 0.001
    assert first.history[0]["val_accuracy"] == pytest.approx(first.evaluate("validation")["accuracy"], abs=1e-6)
    assert first.result["value"] == pytest.approx(first.evaluate()["accuracy"], abs=1e-6)
    with results.open(newline="") as file:
        familiar, novel = csv.DictReader(file)
    assert novel == {key: str(value) for key, value in first.result.items()} and novel["test_examples"] == "50"
    assert novel["note"] == "of noise; novel viewpoints; stop_at 0.001" and familiar["test_examples"] == "40"
    assert familiar["note"] == "of noise; familiar viewpoints; stop_at 0.001"
    assert float(familiar["value"]) == pytest.approx(first.history[0]["val_accuracy"], abs=1e-6)
    again = training.train(views, tmp_path / "run", Settings(stop_at=0.001), resume=True)
    said = capsys.readouterr().out
    assert "50 for testing at novel and 40 at familiar viewpoints" in said
    assert "has reached --stop-at after epoch 1: nothing is left to train" in said
    assert again.history == first.history and again.result["value"] == first.result["value"]
    longer = training.train(views, tmp_path / "run", Settings(stop_at=1.0), resume=True, verbose=0)
    assert [row["epoch"] for row in longer.history] == [1, 2, 3]


def test_probabilities_are_summed_over_random_crops(views, tmp_path):
    run = training.train(views.replace(epochs=1), tmp_path / "run", verbose=0)
    scores, labels = 0, None
    for crop in range(3):
        batches = list(run.data.test(batch_size=64, crop=crop))
        scores = scores + keras.ops.convert_to_numpy(run.model(batches[0][0])["activations"])
        labels = np.asarray(batches[0][1])
    accuracy = (scores.argmax(-1) == labels).mean()
    measured = [training.evaluate_ensemble([run], crops=3)["accuracy"] for _ in range(2)]
    assert measured[0] == measured[1] == pytest.approx(accuracy, abs=1e-6)
    assert training.evaluate_ensemble([run])["accuracy"] == pytest.approx(run.evaluate()["accuracy"], abs=1e-6)
    assert training.evaluate_ensemble([run, run], "validation", 2).keys() == {"accuracy"}


def test_the_history_tells_how_far_batches_differ(tmp_path, monkeypatch):
    run = training.train(TINY.replace(epochs=1, batch_size=10), tmp_path / "run", SHORT, verbose=0)
    accuracies = []
    for images, labels in run.data.test(batch_size=10):
        lengths = keras.ops.convert_to_numpy(run.model(images)["activations"])
        accuracies.append((lengths.argmax(-1) == np.asarray(labels)).mean())
    assert run.history[0]["val_accuracy_std"] == pytest.approx(np.std(accuracies), abs=1e-5) and np.std(accuracies) > 0
