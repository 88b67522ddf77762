import csv
import dataclasses
import json
import signal
import warnings

import keras
import numpy as np
import pytest
from backend import untraced_steps
from processes import run_script
from small_runs import DIGITS, RECTIFIED, SHORT, TINY, plain_network, write_arrays
from toys import ToyTransformer, write_checkpoint, write_trees

from tf_capsules import datasets, recipes, text
from tf_capsules.datasets.pipeline import Dataset, Split
from tf_capsules.models import CapsuleClassifier, li2018, li2018_feedback
from tf_capsules.runs import RunFolder, Settings, TrainingError, load_run, train, training
from tf_capsules.runs.callbacks import Recorder


def test_a_run_folder_holds_config_history_weights_and_result(run):
    assert json.loads((run.folder / "config.json").read_text())["settings"]["train_limit"] == 120
    history = RunFolder(run.folder).history()
    assert [row["epoch"] for row in history] == [1, 2]
    assert {"loss", "accuracy", "val_loss", "val_accuracy", "learning_rate", "seconds"} <= set(history[0])
    assert (run.folder / "last-0002.weights.h5").exists() and (run.folder / "best.weights.h5").exists()
    assert not (run.folder / "last-0001.weights.h5").exists()
    if keras.backend.backend() == "tensorflow":
        assert list((run.folder / "tensorboard").rglob("events*"))
    result = json.loads((run.folder / "result.json").read_text())
    assert result["value"] == pytest.approx(history[-1]["val_accuracy"], abs=1e-6)
    assert result["train_examples"] == 120 and result["test_examples"] == 70 and result["seed"] == 0


@pytest.mark.long
def test_feedback_units_train_along_and_are_left_behind(eager, tmp_path, monkeypatch):
    options = dict(types=3, layers=(1,), coefficients=None)
    recipe = DIGITS.replace(
        model=li2018.EncapNet,
        feedback=li2018_feedback.feedback,
        feedback_options=dict(divergence="kl"),  # faster to trace than Sinkhorn's
        batch_size=20,
        decays=None,
        figures=(),
    )
    recipe = dataclasses.replace(recipe, model_options=options)
    monkeypatch.setattr(recipes, "get", lambda name: recipe)
    short = Settings(train_limit=20, test_limit=20, epochs=1)
    train(recipe, tmp_path / "run", short, verbose=0)
    run = train(recipe, tmp_path / "run", dataclasses.replace(short, epochs=2), resume=True, verbose=0)
    whole = train(recipe, tmp_path / "whole", dataclasses.replace(short, epochs=2), verbose=0)
    assert type(run.model) is CapsuleClassifier and run.result["parameters"] == run.model.count_params()
    loaded = load_run(run.folder)
    assert loaded.evaluate()["accuracy"] == pytest.approx(run.result["value"], abs=1e-6)
    for weight, other, again in zip(run.model.weights, whole.model.weights, loaded.model.weights, strict=True):
        np.testing.assert_allclose(weight, other, atol=1e-4)
        np.testing.assert_array_equal(weight, again)
    assert all(row["feedback"] > 0 for row in run.history)


@pytest.mark.long
def test_the_same_seed_gives_the_same_run_and_another_seed_another(run, tmp_path):
    def first_loss(seed):
        settings = dataclasses.replace(SHORT, seed=seed)
        return train(TINY.replace(epochs=1), tmp_path / str(seed), settings, verbose=0).history[0]["loss"]

    assert first_loss(0) == pytest.approx(run.history[0]["loss"], rel=1e-5)
    assert first_loss(4) != pytest.approx(run.history[0]["loss"], rel=3e-5)


def test_a_step_is_traced_once(tmp_path, monkeypatch):
    if keras.backend.backend() != "tensorflow":
        pytest.skip("other backends trace by themselves")
    traced, compute_loss = [], CapsuleClassifier.compute_loss

    def recorded(self, *arguments, training=True, **options):
        traced.append(training)
        return compute_loss(self, *arguments, training=training, **options)

    monkeypatch.setattr(CapsuleClassifier, "compute_loss", recorded)
    train(TINY, tmp_path / "run", Settings(train_limit=100, test_limit=50), verbose=0)
    assert traced == [True, False]


@pytest.mark.long
@pytest.mark.parametrize("name", ["sabour2017-multimnist", "sabour2017-multimnist-cnn"])
def test_capsule_networks_and_plain_classifiers_train_on_several_targets(eager, tmp_path, name):
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
    run = train(recipe, tmp_path / "run", Settings(train_limit=20, test_limit=11), verbose=0)
    assert run.evaluate()["exact_match"] == pytest.approx(run.result["value"])
    assert run.result["metric"] == "exact_match" and run.result["dataset"] == "multimnist"


def test_arrays_train_without_a_data_set(run_on_arrays, tmp_path):
    run, (x, _) = run_on_arrays, write_arrays(tmp_path / "mine.npz")
    assert run.model.image_shape == (10, 12, 2) and run.result["dataset"] == "mine.npz"
    assert run.model(x[:5] / 255)["activations"].shape == (5, 4)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1, -1, 2], "training set of odd has the label -1; 3 classes have labels 0 to 2"),
        ([0, 3, 1, 2], "training set of odd has the label 3; 3 classes have labels 0 to 2"),
        ([0, 1.5, 1, 2], "training set of odd has the label 1.5; 3 classes have"),
        (["a", "b", "c", "a"], "labels in the training set of odd are <U1, not whole numbers"),
    ],
)
def test_labels_that_are_no_class_are_refused_before_training(tmp_path, monkeypatch, labels, message):
    images = np.zeros((4, 8, 8, 1), np.uint8)
    known, new = (Split({"image": images, "label": np.array(y)}) for y in (labels, [0, 1, 2, 0]))
    monkeypatch.setattr(datasets, "load", lambda *_, **__: Dataset("odd", known, new, ("a", "b", "c")))
    with pytest.raises(TrainingError, match=message):
        train(TINY, tmp_path / "run", SHORT)
    assert not (tmp_path / "run").exists()


def test_a_failed_start_leaves_the_folder_free(tmp_path):
    (tmp_path / "bad.npz").write_bytes(b"not an archive")
    with pytest.raises(TrainingError, match="bad.npz is not a data set"):
        train(TINY, tmp_path / "run", Settings(data=str(tmp_path / "bad.npz")))
    with pytest.raises(TrainingError, match="nope"):
        train("nope", tmp_path / "run")
    with pytest.raises(TrainingError, match="for several classes an image, the data digits have one class"):
        train(TINY.replace(metric="exact_match"), tmp_path / "run", SHORT)
    with pytest.raises(TrainingError, match="--decay-steps 9 and the warm-up of .* exclude each other"):
        train(RECTIFIED, tmp_path / "run", Settings(decay_steps=9))
    with pytest.raises(TrainingError, match="momentum_cycle needs the optimizer RAdam. Received: Adam"):
        train(RECTIFIED.replace(optimizer=keras.optimizers.Adam), tmp_path / "run", SHORT)
    plain = TINY.replace(model=plain_network, model_options={}, mixup=0.2)
    for recipe, message in (
        (TINY.replace(mixup=0.2), "mixup 0.2 needs a network without a decoder. Received: 'capsnet' with a decoder"),
        (plain.replace(loss=keras.losses.Poisson), "mixup 0.2 needs SparseCat.* Received: Poisson {'name'"),
        (
            plain.replace(loss=keras.losses.SparseCategoricalCrossentropy, loss_options={"ignore_class": 1}),
            "mixup 0.2 needs .* without ignore_class.* 'ignore_class': 1",
        ),
    ):
        with pytest.raises(TrainingError, match=message):
            train(recipe, tmp_path / "run", SHORT)
    assert not (tmp_path / "run").exists()


def test_xla_that_can_not_train_is_refused_and_a_run_of_before_is_loaded(tmp_path, monkeypatch):
    if keras.backend.backend() != "tensorflow":
        pytest.skip("JAX compiles every step")

    def chunked(image_shape, classes, **options):
        model = TINY.model(image_shape, classes, **options)
        model.encoder.get_layer("class_capsules").supports_jit = False
        return model

    recipe = TINY.replace(model=chunked, model_options=TINY.model_options, epochs=1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Model doesn't support `jit_compile=True`")
        with pytest.raises(TrainingError, match="--jit on does not go with a layer that TensorFlow's XLA can't train"):
            train(recipe, tmp_path / "run", dataclasses.replace(SHORT, jit="on"), verbose=0)
        assert not (tmp_path / "run").exists()
        with untraced_steps():
            run = train(recipe, tmp_path / "run", SHORT, verbose=0)
        config = json.loads((run.folder / "config.json").read_text())
        config["settings"]["jit"] = "on"
        (run.folder / "config.json").write_text(json.dumps(config))
        monkeypatch.setattr(recipes, "get", lambda name: recipe)
        assert load_run(run.folder).settings.jit == "on"


def test_epochs_of_few_steps_are_told(eager, tmp_path, capsys):
    settings = dataclasses.replace(SHORT, epochs=1, train_limit=60)
    train(TINY, tmp_path / "few", settings, verbose=2)
    assert "hint: an epoch has only 2 steps of up to 50 examples; a smaller" in capsys.readouterr().out
    train(TINY, tmp_path / "more", dataclasses.replace(settings, batch_size=12), verbose=2)
    assert "hint: an epoch has" not in capsys.readouterr().out


@pytest.mark.long
def test_epochs_of_a_part_are_tested_kept_and_named(eager, tmp_path):
    settings = Settings(train_limit=120, test_limit=20, epoch_size=80)
    run = train(TINY.replace(epochs=3), tmp_path / "run", settings, verbose=0)
    assert run.result["train_examples"] == 80 and run.result["epochs"] == 3
    assert run.result["note"] == "epochs of 80 of 120 examples; 20 of 360 test examples"
    assert run.result["settings"] == "train_limit 120; epoch_size 80"
    rows = RunFolder(run.folder).history()
    shorter = train(TINY.replace(epochs=2), tmp_path / "other", settings, verbose=0)
    assert shorter.history[1]["loss"] == pytest.approx(rows[1]["loss"], rel=1e-4)
    resumed = train(TINY.replace(epochs=3), shorter.folder, settings, resume=True, verbose=0)
    assert resumed.history[2]["loss"] == pytest.approx(rows[2]["loss"], rel=1e-3)


@pytest.mark.long
def test_a_killed_process_resumes_to_the_weights_of_an_uninterrupted_one(tmp_path):
    script = """
import os, signal, sys
import keras
from small_runs import SPREAD
from tf_capsules.runs import Settings, train, training

class Killed(training.Recorder):
    def on_train_batch_end(self, batch, logs=None):
        if (len(self.rows), batch) == (1, 1):  # in the middle of the second epoch
            os.kill(os.getpid(), signal.SIGKILL)
        super().on_train_batch_end(batch, logs)

def dropping(image_shape, **options):
    images = keras.Input(image_shape)
    backbone = keras.Model(images, keras.layers.Dropout(0.5)(images))
    replaced = dict(filters=256, kernel_size=9)
    return SPREAD.model(image_shape, backbone=backbone, **options | replaced | dict(primary_kernel_size=3))

if sys.argv.pop(1) == "kill":
    training.Recorder = Killed
settings = Settings(train_limit=130, test_limit=30, deterministic=True)
for folder in sys.argv[1:]:
    recipe = SPREAD.replace(model=dropping, model_options=SPREAD.model_options, epochs=3)
    train(recipe, folder, settings, resume=True, verbose=0)
"""
    killed = run_script(script, "kill", tmp_path / "killed")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert RunFolder(tmp_path / "killed").checkpoints() == [1]
    resumed = run_script(script, "resume", tmp_path / "killed", tmp_path / "whole")
    assert resumed.returncode == 0, resumed.stderr
    from h5py import File

    with (
        File(tmp_path / "whole" / "last-0003.weights.h5") as a,
        File(tmp_path / "killed" / "last-0003.weights.h5") as b,
    ):
        compared = []

        def same(name, dataset):
            if hasattr(dataset, "shape"):
                compared.append(name)
                assert np.array_equal(dataset[()], b[name][()]), name

        a.visititems(same)
    assert len(compared) > 10 and any("optimizer" in name for name in compared)


@pytest.mark.long
def test_two_mirrored_devices_give_the_weights_of_one(tmp_path):
    if keras.backend.backend() != "tensorflow":
        pytest.skip("MirroredStrategy needs the TensorFlow backend")
    # A run has 131 examples in batches of 50: the last has 31, which two devices can't share evenly.
    # With feedback units both devices get the same images: each computes its own normalization and divergences.
    script = """
import contextlib
import sys
import keras
import numpy as np
import tensorflow as tf
from backend import untraced_steps
from models.test_feedback import IMAGES, LABELS, WEIGHTS, tiny
from small_runs import RECTIFIED
from tf_capsules.losses import PairedKLDivergence, SpreadLoss
from tf_capsules.optimizers import Adam
from tf_capsules.runs import Settings, train
from tf_capsules.runs.compiling import build_model
recipe = RECTIFIED.replace(loss=SpreadLoss, margin_schedule="sigmoid", learning_rate=0.1)
options = dict(train_limit=131, test_limit=31)
mirrored = Settings(strategy="mirrored", devices=2, **options)
two = train(recipe, sys.argv[1] + "/two", mirrored, verbose=0)
with untraced_steps():
    one = train(recipe, sys.argv[1] + "/one", Settings(**options), verbose=0)
first = build_model(recipe, one.data.spec)
for a, b in zip(one.model.get_weights(), two.model.get_weights(), strict=True):
    np.testing.assert_allclose(a, b, atol=1e-5)
moved = max(np.abs(a - b).max() for a, b in zip(one.model.get_weights(), first.get_weights()))
assert moved > 1e-3, moved
assert one.result["value"] == two.result["value"], (one.result, two.result)
assert abs(one.result["test_loss"] / two.result["test_loss"] - 1) < 1e-4, (one.result, two.result)

def trained_with_feedback(scope, repeats, eager):
    keras.utils.set_random_seed(0)
    with scope:
        options = dict(divergence=PairedKLDivergence(), eager=eager)  # faster to trace than Sinkhorn's
        model = tiny(optimizer=keras.optimizers.SGD(0.05), **options)
    data = tf.data.Dataset.from_tensors(tuple(np.concatenate([x] * repeats) for x in (IMAGES, LABELS, WEIGHTS)))
    history = model.fit(data.repeat(2), steps_per_epoch=2, epochs=1, verbose=0).history
    return history, model.evaluate(data, verbose=0, return_dict=True), model.get_weights()

def trained_by_adam(scope):
    with scope:
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, kernel_initializer="ones")])
        model.compile(Adam(0.1), "mse")
    x = np.sin(np.arange(32.0)).reshape(8, 4)
    model.fit(x, x[:, 1:] ** 2, batch_size=8, epochs=3, verbose=0)
    return model.get_weights()

# The same strategy: a second one in a process mixes up its sums with those of the first.
for a, b in zip(
    trained_by_adam(two.model.distribute_strategy.scope()), trained_by_adam(contextlib.nullcontext()), strict=True
):
    np.testing.assert_allclose(a, b, atol=1e-5)
two = trained_with_feedback(two.model.distribute_strategy.scope(), 2, eager=False)
one = trained_with_feedback(contextlib.nullcontext(), 1, eager=True)
for a, b in zip(one[:2], two[:2]):
    assert a.keys() == b.keys(), (a, b)
    for name, value in a.items():
        np.testing.assert_allclose(b[name], value, rtol=1e-4, err_msg=name)
for a, b in zip(one[2], two[2], strict=True):
    np.testing.assert_allclose(b, a, atol=1e-5)
"""
    done = run_script(script, tmp_path, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture
def on_texts(tmp_path, monkeypatch):
    """A recipe on texts, and settings with data and a transformer for it."""
    toy = ToyTransformer(write_checkpoint(tmp_path / "toy"))
    monkeypatch.setattr(text, "load", lambda name: toy)
    tiny = dict(dim=6, parts=5, pose=3, iterations=2)
    recipe = recipes.get("heinsen2019-sst2").replace(model_options=tiny, epochs=2, batch_size=4, figures=())
    return recipe, Settings(data_dir=str(write_trees(tmp_path / "trees", sentences=4)), cache=str(tmp_path / "cache"))


@pytest.mark.long
def test_a_recipe_on_texts_trains_and_is_loaded(eager, on_texts, tmp_path, monkeypatch):
    recipe, settings = on_texts
    whole = train(recipe, tmp_path / "whole", settings, verbose=0)
    assert [row["epoch"] for row in whole.history] == [1, 2]
    assert {"val_loss_std", "val_accuracy_std"} <= set(whole.history[0])
    # Training measures the test split once; the history has the development split.
    assert whole.result["value"] == pytest.approx(whole.evaluate()["accuracy"], abs=1e-6)
    assert whole.result["test_examples"] == 7 and whole.result["best_value"] == ""
    texts, labels = whole.examples(3, raw=True)
    assert texts[0] == "bad0" and labels.tolist() == [0, 1, 0]
    assert whole.examples(3)[0]["embeddings"].shape[0] == 3
    monkeypatch.setattr(recipes, "get", lambda name: recipe)
    loaded = load_run(whole.folder)
    assert loaded.trained_on.inputs == "3 hidden states of 4"
    assert loaded.evaluate()["accuracy"] == pytest.approx(whole.result["value"], abs=1e-6)


@pytest.mark.long
def test_a_recipe_on_texts_is_resumed_to_the_weights_of_an_uninterrupted_run(eager, on_texts, tmp_path, monkeypatch):
    recipe, settings = on_texts
    whole = train(recipe, tmp_path / "whole", settings, verbose=0)

    class Killed(Exception):
        pass

    def kill(self, epoch, logs=None):
        if epoch == 1:
            raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Recorder, "on_epoch_begin", kill, raising=False)
        patch.setattr(Recorder, "started", 0.0, raising=False)
        patch.chdir(tmp_path)
        train(recipe, tmp_path / "cut", dataclasses.replace(settings, transformer="toy"), verbose=0)
    # The configuration keeps a relative path as an absolute one.
    settings = dataclasses.replace(settings, transformer=str(tmp_path / "toy"))
    cut = train(recipe, tmp_path / "cut", settings, resume=True, verbose=0)
    for a, b in zip(whole.model.get_weights(), cut.model.get_weights(), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-6)


@pytest.mark.long
def test_training_stops_where_familiar_viewpoints_are_known_well_enough(eager, views, tmp_path, capsys):
    results = tmp_path / "results.csv"
    first = train(views, tmp_path / "run", Settings(stop_at=0.001), verbose=0, results=results)
    assert len(first.history) == 1 and first.history[0]["val_accuracy"] >= 0.001
    assert first.history[0]["val_accuracy"] == pytest.approx(first.evaluate("validation")["accuracy"], abs=1e-6)
    assert first.result["value"] == pytest.approx(first.evaluate()["accuracy"], abs=1e-6)
    with results.open(newline="") as file:
        familiar, novel = csv.DictReader(file)
    assert novel == {key: str(value) for key, value in first.result.items()} and novel["test_examples"] == "50"
    assert novel["note"] == "of noise; novel viewpoints" and familiar["test_examples"] == "40"
    assert familiar["note"] == "of noise; familiar viewpoints" and familiar["settings"] == "stop_at 0.001"
    assert float(familiar["value"]) == pytest.approx(first.history[0]["val_accuracy"], abs=1e-6)
    again = train(views, tmp_path / "run", Settings(stop_at=0.001), resume=True)
    said = capsys.readouterr().out
    assert "50 for testing at novel and 40 at familiar viewpoints" in said
    assert "has reached --stop-at after epoch 1: nothing is left to train" in said
    assert again.history == first.history and again.result["value"] == first.result["value"]
    longer = train(views, tmp_path / "run", Settings(stop_at=1.0), resume=True, verbose=0)
    assert [row["epoch"] for row in longer.history] == [1, 2, 3]


def test_a_run_that_another_process_has_trained_further_is_left_alone(tmp_path, eager, monkeypatch):
    check = training.check_folder

    def check_and_be_overtaken(folder, *rest):
        result = check(folder, *rest)
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "last-0001.weights.h5").touch()
        return result

    monkeypatch.setattr(training, "check_folder", check_and_be_overtaken)
    with pytest.raises(TrainingError, match="Another process has trained in .*run since this one began"):
        train(TINY, tmp_path / "run", SHORT, verbose=0)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["last-0001.weights.h5"]
