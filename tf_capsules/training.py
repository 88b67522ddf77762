"""Training a recipe: data, strategy, checkpoints, resuming, and what a run folder holds.

A run folder holds `config.json` (what was asked for, and what the data look like), `history.csv` (a row an epoch),
`last-NNNN.weights.h5` (weights and optimizer after epoch NNNN, on demand of every epoch), `best.weights.h5`,
`tensorboard/`, `result.json`, where they are asked for `diagnostics.csv`, and what the command line adds: `figures/`
and `saved_model/`.
"""

import contextlib
import csv
import dataclasses
import functools
import importlib.util
import json
import math
import os
import pathlib
import platform
import sys
import time
from collections.abc import Callable

import keras
import numpy as np

from tf_capsules import machines, recipes
from tf_capsules.data import DataSpec, load_data
from tf_capsules.datasets.augment import FIXED_CROPS
from tf_capsules.files import read_csv, reading
from tf_capsules.losses import SpreadMargin
from tf_capsules.metrics import ExactMatch
from tf_capsules.models import CapsuleClassifier, class_probabilities
from tf_capsules.models.weights import fill, find, seal
from tf_capsules.optimizers import FlooredExponentialDecay, RAdam, one_cycle
from tf_capsules.settings import Settings, TrainingError
from tf_capsules.version import __version__


def build_model(recipe, spec, dtype="float32"):
    """The recipe's network for the inputs and classes of a `DataSpec`, in a dtype policy, not compiled."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(dtype)
    try:
        return recipe.model(**spec.model_arguments, **recipe.model_options)
    except TypeError as error:  # of a value of another kind
        raise ValueError(f"{recipe.model.__name__} can't be made with {recipe.model_options}: {error}") from error
    finally:
        keras.config.set_dtype_policy(before)


def for_model(model, batches):
    """The batches as the model takes them: of several targets a plain classifier gets the labels alone."""
    targets = batches.element_spec[1] if hasattr(batches, "element_spec") else None
    if isinstance(model, CapsuleClassifier) or not isinstance(targets, dict):
        return batches
    return batches.map(lambda images, targets, *weights: (images, targets["label"], *weights))


def compile_model(model, recipe, spec, jit="auto"):
    """Compiles a model with the recipe's loss, metric and schedules; its optimizer gets its variables at once.

    Raises:
        ValueError: the recipe asks for what its model or optimizer can't do.
    """
    if recipe.mixup is not None and (not isinstance(model, CapsuleClassifier) or model.decoder is not None):
        kind = "a plain one" if not isinstance(model, CapsuleClassifier) else "one with a decoder"
        raise ValueError(f"mixup {recipe.mixup} is for capsule networks without a decoder. Received: {kind}")
    rate, options = recipe.learning_rate, {}
    steps = recipe.epochs * -(-spec.train_size // recipe.batch_size)
    if recipe.warmup is not None:
        rate = one_cycle(1e-5, rate, steps, recipe.warmup)
        options = {"beta_1": one_cycle(0.81, 0.9, steps, recipe.warmup, inverted=True)} if recipe.momentum_cycle else {}
    elif recipe.drops:
        values = [rate * 0.1**count for count in range(len(recipe.drops) + 1)]
        boundaries = [round(drop * steps) for drop in recipe.drops]
        rate = keras.optimizers.schedules.PiecewiseConstantDecay(boundaries, values)
    elif recipe.decays is not None:
        rate = FlooredExponentialDecay(rate, steps / recipe.decays, floor=recipe.lowest_rate)
    elif recipe.decay_steps is not None:
        rate = FlooredExponentialDecay(rate, recipe.decay_steps, floor=recipe.lowest_rate)
    optimizer = recipe.optimizer(rate, **options)
    if recipe.momentum_cycle and not isinstance(optimizer, RAdam):
        raise ValueError(f"momentum_cycle needs the optimizer RAdam. Received: {type(optimizer).__name__}")
    margin = () if recipe.margin_schedule is None else (SpreadMargin.over(steps, recipe.margin_schedule),)
    model.compile(
        optimizer,
        loss=recipe.loss(*margin),
        weighted_metrics=[_metric(recipe)],
        jit_compile={"auto": "auto", "on": True, "off": False}[jit],
    )
    model.optimizer.build(model.trainable_variables)


def _metric(recipe):
    # By its name Keras would choose one by the labels, which mixed examples have as rows, and make it in the middle of
    # tracing the first step, which would be traced a second time.
    if recipe.metric == "exact_match":
        return ExactMatch(recipe.threshold)
    if recipe.metric == "top_5":
        return keras.metrics.SparseTopKCategoricalAccuracy(5, recipe.metric)
    return keras.metrics.SparseCategoricalAccuracy(recipe.metric)


def compile_learner(model, recipe, spec, jit="auto"):
    """What is trained, compiled as the model is: the model, or where the recipe says so the model with feedback units.

    Raises:
        ValueError: the recipe asks for what its model or optimizer can't do.
    """
    compile_model(model, recipe, spec, jit)
    if recipe.feedback is None:
        return model
    learner = recipe.feedback(model, **recipe.feedback_options)
    compile_model(learner, recipe, spec, jit)
    return learner


def mirrored(devices):
    """A MirroredStrategy over so many GPUs, or logical CPU devices where there is no GPU.

    Raises:
        TrainingError: more GPUs asked for than there are, or TensorFlow has already been started with fewer devices.
    """
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        if devices and devices > len(gpus):
            raise TrainingError(f"--devices {devices}, but this machine has {len(gpus)} GPU.")
        return tf.distribute.MirroredStrategy([f"GPU:{i}" for i in range(devices or len(gpus))])
    count = devices or 1
    cpu = tf.config.list_physical_devices("CPU")[0]
    try:
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
    except RuntimeError as error:
        if len(tf.config.list_logical_devices("CPU")) < count:
            raise TrainingError(
                f"TensorFlow runs already, with fewer than {count} CPU devices: start a new process."
            ) from error
    return tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(count)])


_OTHER_VERSION = "is not of a run that this version can load"
_HISTORY = "is no history of a run"


class RunFolder:
    """The files of a run, each written so that a process killed at any moment leaves the old or the new one whole."""

    def __init__(self, path):
        self.path = pathlib.Path(path)

    def write(self, name, text):
        part = self.path / f".{name}.part"
        part.write_text(text)
        os.replace(part, self.path / name)

    def read_json(self, name):
        """The dict in a JSON file."""
        path = self.path / name
        if not path.is_file():
            exported = " It is an exported model." if (self.path / "saved_model.pb").exists() else ""
            raise TrainingError(f"{self.path} is not the folder of a run: it has no {name}.{exported}")
        with reading(path, "can't be read"):
            values = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(values, dict):
                raise ValueError(f"it holds no dict but {values!r}")
        return values

    def config(self):
        """What config.json says: the recipe's name, the settings, and what these and the data are in full."""
        config = self.read_json("config.json")
        with reading(self.path / "config.json", _OTHER_VERSION):
            for part, kind in {"recipe": str, "settings": dict, "resolved": dict, "data": dict}.items():
                if not isinstance(config.get(part), kind):
                    raise ValueError(f"its {part!r} is {config.get(part)!r}")
            Settings(**config["settings"])
            DataSpec.from_json(config["data"])
        return config

    def save_weights(self, model, name):
        part = self.path / f".part.{name}"
        model.save_weights(part)
        seal(part)
        os.replace(part, self.path / name)

    def checkpoints(self):
        """Finished epochs with a checkpoint, ascending."""
        return sorted(int(path.name[5:9]) for path in self.path.glob("last-[0-9][0-9][0-9][0-9].weights.h5"))

    def weights(self, which="last"):
        """Path of the weights of the last or the best epoch, or of one that was kept, by its number."""
        epochs = self.checkpoints()
        if isinstance(which, int):
            if which not in epochs:
                there = ", ".join(map(str, epochs)) or "none"
                raise TrainingError(
                    f"{self.path} has weights of the epochs {there}; --keep-epochs keeps all of them. Received: {which}"
                )
            return self.path / f"last-{which:04d}.weights.h5"
        if which == "last" and epochs:
            return self.path / f"last-{epochs[-1]:04d}.weights.h5"
        best = self.path / "best.weights.h5"
        if which == "best" and best.exists():
            return best
        raise TrainingError(f"{self.path} holds no {which} weights: no epoch has been finished.")

    def history(self, metric=None):
        """Rows of history.csv as dicts of numbers, that of a validation metric among them."""
        path = self.path / "history.csv"
        if not path.exists():
            return []
        columns = ["epoch", "learning_rate", "seconds", "loss", "val_loss"]
        columns += [] if metric is None else [f"val_{metric}"]
        with reading(path, _HISTORY):
            rows = [{key: float(value) for key, value in row.items()} for row in read_csv(path, columns, _HISTORY)]
            return [{**row, "epoch": int(row["epoch"])} for row in rows]

    def write_history(self, rows):
        self.write("history.csv", csv_text(rows))


def csv_text(rows):
    """Dicts with the same keys as the text of a CSV file."""
    lines = [",".join(rows[0])] + [",".join(str(value) for value in row.values()) for row in rows]
    return "\n".join(lines) + "\n"


class Recorder(keras.callbacks.Callback):
    """After each epoch writes the history, the best and the last weights, in this order; stops at a loss that is not
    finite.

    To what Keras logs the history adds how far validation differs from batch to batch, `val_loss_std` and one such
    column for the metric (Heinsen 2019, figure 8). Training ends when validation's metric reaches `stop_at`. With
    `keep` the weights of all epochs stay. Without a folder nothing is written.
    """

    def __init__(self, folder, monitor, history, initial_epoch, stop_at=None, keep=False):
        super().__init__()
        self.folder, self.monitor, self.rows, self.keep = folder, f"val_{monitor}", history[:initial_epoch], keep
        self.stop_at = math.inf if stop_at is None else stop_at
        self.step, self.batches = 0, []

    def on_epoch_begin(self, epoch, logs=None):
        self.started = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        self.step = batch + 1
        if not math.isfinite(logs["loss"]):
            done = self.folder.checkpoints() if self.folder else []
            good = f"The last good checkpoint is {self.folder.weights()}." if done else "No epoch was finished before."
            raise TrainingError(
                f"The loss is {logs['loss']} at step {self.step} of epoch {len(self.rows) + 1}. {good} Try a smaller "
                "--learning-rate, a larger --batch-size, or --dtype float32; --resume goes on from the checkpoint."
            )

    def on_test_begin(self, logs=None):
        self.batches = []

    def on_test_batch_end(self, batch, logs=None):
        self.batches.append({name: float(value) for name, value in logs.items()})

    def _deviation(self, name):
        """The standard deviation over batches of what Keras logs as the mean over all batches so far."""
        sums = np.arange(1, len(self.batches) + 1) * [batch[name] for batch in self.batches]
        return float(np.diff(sums, prepend=0.0).std())

    def on_epoch_end(self, epoch, logs=None):
        row = {"epoch": epoch + 1, "learning_rate": float(self.model.optimizer.learning_rate)}
        row |= {"seconds": round(time.perf_counter() - self.started, 3)} | {k: float(v) for k, v in logs.items()}
        row |= {f"val_{name}_std": self._deviation(name) for name in ("loss", self.monitor.removeprefix("val_"))}
        self.rows.append(row)
        if self.folder is not None:
            with machines.alone():
                self._keep(row)
        self.model.stop_training = row[self.monitor] >= self.stop_at

    def _keep(self, row):
        self.folder.write_history(self.rows)
        if row[self.monitor] == max(r[self.monitor] for r in self.rows):
            self.folder.save_weights(self.model, "best.weights.h5")
        self.folder.save_weights(self.model, f"last-{row['epoch']:04d}.weights.h5")
        for old in () if self.keep else self.folder.checkpoints()[:-1]:
            (self.folder.path / f"last-{old:04d}.weights.h5").unlink()


class Progress(keras.callbacks.Callback):
    """Says once a minute where training is and when it will be done, for where no progress bar can be drawn."""

    def __init__(self, steps, seconds=60):
        super().__init__()
        self.steps, self.seconds, self.epoch, self.done = steps, seconds, 0, 0

    def on_train_begin(self, logs=None):
        self.started = self.told = time.perf_counter()

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        now, self.done = time.perf_counter(), self.done + 1
        if now - self.told >= self.seconds:
            self.told = now
            left = (self.params["epochs"] - self.epoch) * self.steps - batch - 1
            minutes = left * (now - self.started) / self.done / 60
            values = ", ".join(f"{name} {float(value):.4f}" for name, value in logs.items())
            where = f"epoch {self.epoch + 1}, step {batch + 1:,} of {self.steps:,}"
            print(f"{where}: {values}, about {minutes:,.0f} minutes left", flush=True)


@dataclasses.dataclass(frozen=True)
class Run:
    """A trained model with where it came from.

    `trained_on` is the `DataSpec` of its training, `load` gives the `Data` that `data` keeps. Where several processes
    trained, each has such a run, and process 0 alone its folder.
    """

    folder: pathlib.Path
    recipe: recipes.Recipe
    settings: Settings
    trained_on: DataSpec
    load: Callable
    model: keras.Model
    history: list
    result: dict

    @functools.cached_property
    def data(self):
        """The `Data`, loaded when they are first asked for.

        Raises:
            TrainingError: they are absent, or of other inputs or classes than the model.
        """
        data = _reported(self.load)
        specs = self.trained_on, data.spec
        wanted, given = (f"{spec.inputs} of {len(spec.class_names)} classes" for spec in specs)
        if given == wanted:
            pairs = enumerate(zip(*(spec.class_names for spec in specs), strict=True))
            wanted, given = next(((f"{a!r}, class {i}", repr(b)) for i, (a, b) in pairs if a != b), (None, None))
        if given != wanted:
            raise TrainingError(f"{data.spec.name} has {given}; {self.folder} was trained on {wanted}.")
        return data

    def evaluate(self, part="test"):
        """Loss and metric of the model on the test split, or on the "validation" split, as a dict."""
        batches = for_model(self.model, getattr(self.data, part)(batch_size=self.recipe.batch_size))
        return self.model.evaluate(batches, verbose=0, return_dict=True)

    def models(self, most=4):
        """The model after the first, the last and some epochs between, at most so many, that were kept: by "epoch N".

        The one model by "" where no weights but the last were kept, or the run has no history of its own.
        """
        kept = RunFolder(self.folder).checkpoints() if self.history else []
        if len(kept) < 2 or most < 2:
            return {"": self.model}
        chosen = sorted({kept[round(i)] for i in np.linspace(0, len(kept) - 1, most)})
        return {f"epoch {epoch}": load_run(self.folder, epoch).model for epoch in chosen}

    def examples(self, count, raw=False):
        """The first `count` test examples as NumPy arrays: inputs, and labels or a dict of several targets.

        With `raw` the inputs are as a server gets them: images before the recipe's preprocessing, or texts.
        """
        if raw and self.data.transformer is not None:
            texts, labels = self.data.test_split
            return texts[:count], labels[:count]
        options = {"preprocess": ()} if raw else {}
        examples = next(iter(self.data.test(batch_size=count, limit=count, **options)))
        return keras.tree.map_structure(keras.ops.convert_to_numpy, examples)


def train(recipe, output, settings=None, resume=False, verbose="auto", results=None):
    """Trains a recipe and keeps all of it in a run folder.

    Args:
        recipe: a `Recipe`, or the name of one.
        output: the run folder; made where it is absent.
        settings: `Settings`; None for the recipe's own values.
        resume: go on with the run in the folder, from its last finished epoch; the settings must be the same, but for
            the places where data and caches are, how many processes train, and the number of epochs where no schedule
            hangs on it. Weights end up the same as those of an uninterrupted run (bitwise with `deterministic`). Where
            there is nothing to resume a line says so and a new run starts; where all epochs are done, nothing is
            trained.
        verbose: as for `fit`: "auto" shows a progress bar on a terminal; elsewhere a line an epoch, and one a minute
            with the time left.
        results: a CSV file to which the row of results is appended; None for none.

    Returns:
        A `Run`.

    Raises:
        TrainingError: what was asked for can't work, the folder holds another run, or the loss is not finite.
    """
    settings = settings or Settings()
    recipe = recipes.get(recipe) if isinstance(recipe, str) else recipe
    settings.check(recipe)
    recipe = _reported(settings.apply, recipe)
    settings = settings.with_absolute_paths()
    folder = RunFolder(output)
    team = machines.join(settings, recipe.batch_size)
    asked = _configuration(recipe, settings)
    shared = {name: value for name, value in asked["settings"].items() if name not in _PLACES}
    team.check_equal(recipe=asked["recipe"], settings=shared, resolved=asked["resolved"])
    config, initial_epoch = team.from_first(_check_folder, folder, asked, recipe, resume)
    strategy = mirrored(settings.devices) if settings.strategy == "mirrored" else None
    if strategy is not None and recipe.batch_size % strategy.num_replicas_in_sync:
        count = strategy.num_replicas_in_sync
        raise TrainingError(f"--batch-size {recipe.batch_size} can't be shared evenly by {count} devices.")
    keras.utils.set_random_seed(settings.seed)
    if settings.deterministic and keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.config.experimental.enable_op_determinism()
    data = team.together(_reported, load_data, recipe, settings)
    spec, described = data.spec, data.spec.to_json()
    # Where TensorFlow is installed, it makes the batches, in another random order.
    team.check_equal(data=described, packages={"tensorflow": importlib.util.find_spec("tensorflow") is not None})
    verbose = verbose if team.index == 0 else 0
    if verbose:
        each = "for training" if settings.epoch_size is None else "an epoch"
        sizes = f"{spec.train_size:,} examples {each}, {spec.test_size:,} for testing"
        if data.familiar_size:
            sizes += f" at novel and {data.familiar_size:,} at familiar viewpoints"
        print(f"run folder: {folder.path}")
        print(f"data: {spec.name}, {sizes}, {spec.inputs}, {len(spec.class_names)} classes", flush=True)
        steps = -(-spec.train_size // recipe.batch_size)
        if steps < _FEW_STEPS and settings.epoch_size is None:
            few = f"{steps} step{'s' * (steps > 1)} of up to {recipe.batch_size} examples"
            print(f"hint: an epoch is {few}; from so few a smaller --batch-size learns more", flush=True)
    before = config.get("data", described)
    if settings.data is not None:
        before = before | {"name": spec.name}  # a file may be renamed
    if initial_epoch and before != described:
        changed = [f"{key} {before.get(key)}, now {now}" for key, now in described.items() if before.get(key) != now]
        raise TrainingError(f"--resume: {folder.path} was trained on other data: {'; '.join(changed)}.")
    history = team.from_first(folder.history)[:initial_epoch]
    reached = bool(history) and settings.stop_at is not None and history[-1][f"val_{recipe.metric}"] >= settings.stop_at
    if resume and verbose:
        _report_resumed(folder, initial_epoch, recipe.epochs, reached)
    config["data"] = described
    with team.scope(), strategy.scope() if strategy else contextlib.nullcontext():
        model = _reported(build_model, recipe, spec, settings.dtype)
        learner = _reported(compile_learner, model, recipe, spec, settings.jit)
        if initial_epoch:
            with team.weights_from_first(folder.weights() if team.index == 0 else None) as path:
                _load_checkpoint(learner, path)
    if results is not None:
        team.from_first(check_row, results, describe_result(recipe, settings, spec, model, []))
    steps = -(-spec.train_size // recipe.batch_size)
    # The batches of evaluation are made anew for each one and are the same each time.
    options = dict(batch_size=recipe.batch_size)
    options |= {"pad": True, "part": team.part} if team.part else {"pad": strategy is not None}
    unfinished = initial_epoch < recipe.epochs and not reached
    if unfinished:
        mixup = {} if recipe.mixup is None else {"mixup": (recipe.mixup, len(spec.class_names))}
        epochs = dict(epochs=recipe.epochs, initial_epoch=initial_epoch)
        training = for_model(model, data.train(training=True, seed=settings.seed, **epochs, **mixup, **options))
        validation = for_model(model, data.validation(**options))
        extra = _diagnostics(folder, model, data) if settings.diagnostics else []
    # The folder is taken only now that data and model are there, so that a failed start leaves nothing behind.
    writes = team.index == 0
    if writes:
        folder.path.mkdir(parents=True, exist_ok=True)
        folder.write("config.json", json.dumps(config, indent=1) + "\n")
    measured = None
    with team.scope():
        if unfinished:
            stops = settings.stop_at, settings.keep_epochs
            recorder = Recorder(folder if writes else None, recipe.metric, history, initial_epoch, *stops)
            quiet = verbose == "auto" and not sys.stdout.isatty()
            extra += [Progress(steps)] if quiet else []
            extra += _tensorboard(folder) if writes else []
            learner.fit(
                training,
                steps_per_epoch=steps,
                **epochs,
                validation_data=validation,
                shuffle=False,
                callbacks=[recorder, *extra],
                verbose=(2 if quiet else 1) if verbose == "auto" else verbose,
            )
            history = recorder.rows
        if data.validation is not data.test:
            measured = model.evaluate(for_model(model, data.test(**options)), verbose=0, return_dict=True)
    if team.part:
        model = _of_this_process(model, recipe, settings, spec)
    rows = [
        describe_result(recipe, settings, tested, model, history, measured if part == "test" else None)
        for part, tested in data.evaluated
    ]
    result = rows[-1]
    if writes:
        folder.write("result.json", json.dumps(result, indent=1) + "\n")
        for row in rows if results is not None else ():
            append_row(results, row)
    return Run(folder.path, recipe, settings, spec, lambda: data, model, history, result)


def _of_this_process(model, recipe, settings, spec):
    """A copy of a model that several processes have trained, which one of them can call by itself."""
    own = build_model(recipe, spec, settings.dtype)
    compile_model(own, recipe, spec, settings.jit)
    own.set_weights(model.get_weights())
    return own


def _reported(function, *args):
    """Calls a function; what it finds wrong with the user's values is raised as a TrainingError."""
    try:
        return function(*args)
    except (ValueError, FileNotFoundError) as error:
        raise TrainingError(str(error)) from error
    except ModuleNotFoundError as error:
        raise TrainingError(f"This needs the Python package {error.name}, which is not installed.") from error


def _report_resumed(folder, done, epochs, reached):
    if not done:
        print(f"{folder.path} holds no finished epoch to resume: a new run starts", flush=True)
    elif reached:
        print(f"{folder.path} has reached --stop-at after epoch {done}: nothing is left to train", flush=True)
    elif done == epochs:
        print(f"all {done} epochs of {folder.path} are done: nothing is left to train", flush=True)
    else:
        print(f"{folder.path} goes on after epoch {done} of {epochs}", flush=True)


def _load_checkpoint(model, path):
    try:
        fill(model, path)
    except ValueError as error:
        other = path.with_name("best.weights.h5")
        hint = f". {other.name} is there, too: --weights best." if other.exists() and path != other else ""
        raise TrainingError(f"{error}{hint}") from error


def _configuration(recipe, settings):
    """What was asked for, as plain JSON values."""
    config = {
        "recipe": recipe.name,
        "settings": dataclasses.asdict(settings),
        "resolved": {
            "model": f"{recipe.model.__module__}.{recipe.model.__name__}",
            "loss": recipe.loss.__name__,
            "optimizer": recipe.optimizer.__name__,
            "feedback": None if recipe.feedback is None else recipe.feedback.__name__,
            **{
                field.name: getattr(recipe, field.name)
                for field in dataclasses.fields(recipe)
                if field.name not in ("model", "loss", "optimizer", "feedback", *_WORDS)
            },
        },
    }
    return json.loads(json.dumps(config))


def _check_folder(folder, config, recipe, resume):
    """Checks that the run fits into its folder; returns its configuration and how many epochs are done."""
    if resume and (folder.path / "config.json").exists():
        before = folder.config()
        config |= {"data": before["data"]}
        changed = _differences(before, config)
        if changed:
            raise TrainingError(f"--resume: {folder.path} holds a run with other settings: {'; '.join(changed)}.")
        done = (folder.checkpoints() or [0])[-1]
        if done > recipe.epochs:
            raise TrainingError(f"--resume: {folder.path} has finished {done} epochs, more than {recipe.epochs}.")
        if len(folder.history(recipe.metric)) < done:
            raise TrainingError(f"--resume: {folder.path}/history.csv has fewer epochs than the checkpoint ({done}).")
        return config, done
    if folder.path.exists() and any(folder.path.iterdir()):
        hint = "Add --resume to go on with it, or choose another --output."
        kind = "a run" if (folder.path / "config.json").exists() else "other files"
        raise TrainingError(f"{folder.path} holds {kind} already. {hint if kind == 'a run' else 'Choose another.'}")
    return config, 0


# What a recipe says about itself.
_WORDS = ("name", "title", "source", "published", "device", "note")

# Where things are, how many processes share the work, and what is measured beside the training, is no part of what a
# run is; what the data look like is compared by itself.
_PLACES = (
    *("data", "data_dir", "download", "cache", "cache_limit", "diagnostics"),
    *("processes", "process", "coordinator"),
)

# Of a run that several processes shared.
_ALONE = {"processes": None, "process": None, "coordinator": None}

_FEW_STEPS = 5  # an epoch

_OVER_THE_WHOLE_RUN = {
    "decays": "the learning rate falls over the whole run, so that it depends on the number of epochs; start a new run",
    "warmup": "with a warm-up every epoch's learning rate depends on their number; start a new run",
    "drops": "a learning rate that drops does so at shares of all epochs; start a new run",
    "margin_schedule": "with a growing margin every epoch's margin depends on their number; start a new run",
}


def _differences(before, after):
    if before["recipe"] != after["recipe"]:
        return [f"recipe {before['recipe']}, now {after['recipe']}"]
    changed = {}
    for part in ("settings", "resolved"):  # what is in both is told as resolved
        for key, value in after[part].items():
            if key not in ("epochs", "stop_at", *_PLACES) and before[part].get(key) != value:
                changed[key] = f"{key} {before[part].get(key)!r}, now {value!r}"
    changed = list(changed.values())
    epochs = [config["resolved"].get("epochs") for config in (before, after)]
    if epochs[0] != epochs[1]:
        for part, reason in _OVER_THE_WHOLE_RUN.items():
            if after["resolved"][part]:
                changed.append(f"epochs {epochs[0]}, now {epochs[1]}: {reason}")
    return changed


def _tensorboard(folder):
    """TensorBoard events, where TensorFlow is there to write them."""
    if importlib.util.find_spec("tensorflow") is None:
        return []
    return [keras.callbacks.TensorBoard(folder.path / "tensorboard", write_graph=False)]


def _diagnostics(folder, model, data):
    """The callback that measures routing, in a list."""
    from tf_capsules.analysis import RoutingDiagnostics, measure_couplings

    inputs = next(iter(data.validation(batch_size=50, limit=50)))[0]
    _reported(measure_couplings, model, inputs)
    logs = folder.path / "tensorboard" if importlib.util.find_spec("tensorflow") else None
    return [RoutingDiagnostics(inputs, folder.path / "diagnostics.csv", logs)]


def as_before(folder, **given):
    """What a run was asked for, to go on with it.

    Args:
        folder: the run folder.
        given: values of `Settings` that take the place of the run's own.

    Returns:
        The recipe's name and the `Settings`, of a single process unless more are given; of a folder without a run None
        and what is given.

    Raises:
        TrainingError: a damaged run, or one of another version.
    """
    folder = RunFolder(folder)
    if not (folder.path / "config.json").exists():
        return None, Settings(**given)
    config = folder.config()
    return config["recipe"], Settings(**{**config["settings"], **_ALONE, **given})


def load_run(folder, weights="last", **changes):
    """A run as it was left, its model compiled; its data are loaded when they are asked for.

    Args:
        folder: the run folder.
        weights: "last" or "best"; or the number of an epoch whose weights were kept.
        changes: other values of `Settings`, for instance another data set to evaluate on, which takes the place of
            the run's own, or another number of routing iterations.

    Raises:
        ValueError: not a run folder, or one that is damaged, of another version, or holds no such weights.
    """
    folder = RunFolder(folder)
    config = folder.config()
    trained_on = DataSpec.from_json(config["data"])
    kept = {**config["settings"], **_ALONE, "strategy": "none", "devices": None}
    with reading(folder.path / "config.json", _OTHER_VERSION):
        recipe, trained = recipes.get(config["recipe"]), Settings(**kept)
        trained.check(recipe)
    if {"dataset", "data"} & set(changes):
        kept |= {"dataset": None, "data": None, "image_size": None, "class_list": None, "box_file": None}
    settings = Settings(**{**kept, **changes})
    settings.check(recipe)
    path = folder.weights(weights)
    with reading(folder.path / "config.json", _OTHER_VERSION):
        trained, recipe = trained.apply(recipe), settings.apply(recipe)
        model = build_model(trained.replace(model_options=recipe.model_options), trained_on, settings.dtype)
        learner = compile_learner(model, trained, trained_on, settings.jit)
    _load_checkpoint(learner, path)
    result = folder.read_json("result.json") if (folder.path / "result.json").exists() else {}
    load = functools.partial(load_data, recipe, settings, trained_on)
    return Run(folder.path, recipe, settings, trained_on, load, model, folder.history(recipe.metric), result)


def run_of_weights(recipe, weights, folder=None, **changes):
    """A recipe's network with weights from elsewhere, as a run without a history.

    Args:
        recipe: a `Recipe`, or the name of one.
        weights: what the network's `weights` argument takes: a file, or the name of a shipped set.
        folder: where its pictures and exports belong; None: runs/RECIPE.
        changes: values of `Settings`.

    Raises:
        TrainingError: unusable data or weights.
    """
    settings = Settings(**changes)
    recipe = _reported(recipes.get, recipe) if isinstance(recipe, str) else recipe
    settings.check(recipe)
    recipe = _reported(settings.apply, recipe)
    _reported(find, weights)
    data = _reported(load_data, recipe, settings)
    note = "; ".join(filter(None, [data.spec.note, f"weights {pathlib.Path(weights).name}"]))
    spec = dataclasses.replace(data.spec, note=note, train_size=0)
    data = dataclasses.replace(data, spec=spec)
    model = _reported(build_model, recipe.replace(model_options=dict(weights=weights)), spec, settings.dtype)
    _reported(compile_model, model, recipe, dataclasses.replace(spec, train_size=1), settings.jit)
    folder = pathlib.Path(folder or pathlib.Path("runs") / recipe.name)
    return Run(folder, recipe, settings, spec, lambda: data, model, [], {})


def evaluate_ensemble(runs, part="test", crops=None):
    """The metric of several runs together, or of one on several crops of each image: class probabilities are summed.

    Sources: the released code of Sabour et al. 2017 (CIFAR-10: seven networks); Hinton et al. 2018, section 4 (several
    crops), as Li et al. 2018 do too.

    Args:
        runs: one `Run` or more; they are evaluated on the data of the first.
        part: the "test" or the "validation" split.
        crops: how many random crops of each image, always the same ones, take the place of the central one; "fixed"
            for ten, the four corners, the central one, and these mirrored (Li et al. 2018, released code); None for
            the central one.

    Returns:
        A dict of the metric.

    Raises:
        TrainingError: see `check_crops`.
    """
    recipe = runs[0].recipe
    check_crops(recipe, crops)
    data = runs[0].data
    metric = _metric(recipe)
    windows = FIXED_CROPS if crops == "fixed" else range(crops or 0)
    options = [{}] if crops is None else [{"crop": window} for window in windows]
    streams = [getattr(data, part)(batch_size=recipe.batch_size, **one) for one in options]
    for views in zip(*streams, strict=True):
        labels = views[0][1]
        outputs = ((run.model, run.model.predict_on_batch(images)) for run in runs for images, _ in views)
        scores = sum(class_probabilities(*pair) for pair in outputs) / (len(runs) * len(views))
        metric.update_state(labels["label"] if isinstance(labels, dict) else labels, scores)
    return {recipe.metric: float(metric.result())}


def check_crops(recipe, crops):
    """Raises a TrainingError where so many crops are none, or the recipe has no step that crops images."""
    if crops is not None and crops != "fixed" and (not isinstance(crops, int) or crops < 1):
        raise TrainingError(f"--crops must be fixed, or a whole number of at least 1. Received: {crops}")
    if crops is not None and not any(step[0] == "crop" for step in recipe.preprocess):
        steps = ", ".join(step[0] for step in recipe.preprocess) or "none"
        raise TrainingError(f"--crops {crops} needs a recipe with the step 'crop'; {recipe.name} has: {steps}.")


def describe_result(recipe, settings, spec, model, history, measured=None):
    """One row of results: what was measured, on what, with what.

    Args:
        recipe, settings, spec, model, history: of the run, `spec` being its `DataSpec`.
        measured: loss and metric on the test split; None where the validation figures of the history are just that,
            which without a history are "".
    """
    metric = recipe.metric
    asked = ((name, getattr(settings, name)) for name in ("warmup", "mixup", "stop_at", "iterations"))
    asked = [f"{name} {value}" for name, value in asked if value is not None]
    asked += [f"network {text}" for text in settings.network_as_text()]
    asked += [] if settings.jit == "auto" else [f"jit {settings.jit}"]
    values = [row[f"val_{metric}"] for row in history]
    last = {metric: values[-1], "loss": history[-1]["val_loss"]} if history else {}
    last, best = (last, max(values, default="")) if measured is None else (measured, "")
    return {
        "recipe": recipe.name,
        "dataset": spec.name,
        "note": "; ".join(filter(None, [spec.note, *asked])),
        "train_examples": spec.train_size,
        "test_examples": spec.test_size,
        "epochs": len(history),
        "batch_size": recipe.batch_size,
        "learning_rate": recipe.learning_rate,
        "decay_steps": recipe.decay_steps,
        "seed": settings.seed,
        "dtype": settings.dtype,
        "strategy": _strategy_of(settings),
        "parameters": model.count_params(),
        "metric": metric,
        "value": round(last[metric], 6) if last else "",
        "best_value": round(best, 6) if best != "" else "",
        "test_loss": round(last["loss"], 6) if last else "",
        "seconds": round(sum(row["seconds"] for row in history), 1),
        "peak_memory_mb": peak_memory_mb(),
        **environment(),
    }


def _strategy_of(settings):
    if settings.processes is not None:
        return f"processes x {settings.processes}"
    return settings.strategy if settings.strategy == "none" else f"mirrored x {settings.devices or 'all'}"


def peak_memory_mb():
    """Largest resident size of this process so far, in MiB (Linux and macOS)."""
    status = pathlib.Path("/proc/self/status")
    if status.exists():  # Linux, where getrusage begins with the size of the process that started this one
        peak = next((line for line in status.read_text().splitlines() if line.startswith("VmHWM:")), None)
        if peak is not None:
            return round(int(peak.split()[1]) / 2**10)
    try:
        import resource
    except ImportError:  # Windows
        return ""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(size / (2**20 if sys.platform == "darwin" else 2**10))


def environment():
    """Device and versions, for a row of results."""
    backend = keras.backend.backend()
    module = sys.modules.get("jax" if backend == "jax" else backend)
    return {
        "device": device_name(),
        "python": platform.python_version(),
        "backend": f"{backend} {getattr(module, '__version__', '')}".strip(),
        "keras": keras.__version__,
        "tf_capsules": __version__,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def device_name():
    """The accelerators that Keras sees, or the number of CPU cores."""
    accelerators = [d for d in keras.distribution.list_devices() if not d.startswith("cpu")]
    if accelerators:
        return f"{len(accelerators)} x {accelerators[0].split(':')[0]}"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cores} CPU core{'s' * (cores != 1)} ({platform.machine()})"


def check_row(path, row):
    """Raises a TrainingError where `append_row` could not append the row: no such file can be written, or it has other
    columns."""
    path = pathlib.Path(path).absolute()
    there = next(one for one in (path, *path.parents) if one.exists())
    fits = there.is_file() if there == path else there.is_dir()
    if not fits or not os.access(there, os.W_OK):
        raise TrainingError(f"{path} can't be written as a file of results.")
    if there == path and path.stat().st_size:
        with reading(path, "can't be read as a file of results"), path.open(newline="", encoding="utf-8") as file:
            header = next(csv.reader(file), [])
        if header != list(row):
            raise TrainingError(f"{path} has the columns {header}, not {list(row)}.")


def append_row(path, row):
    """Appends a row to a CSV file of results, which is made with a header where it is absent.

    Raises:
        TrainingError: see `check_row`.
    """
    check_row(path, row)
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(row), lineterminator="\n")
        if not path.stat().st_size:
            writer.writeheader()
        writer.writerow(row)
