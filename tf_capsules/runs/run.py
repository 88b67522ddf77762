"""A trained model and its origin: a run that is loaded from its folder, or made of published weights."""

import contextlib
import dataclasses
import functools
import inspect
import pathlib
import warnings
from collections.abc import Callable

import keras
import numpy as np

from tf_capsules import recipes
from tf_capsules.arguments import one_of
from tf_capsules.datasets import augment
from tf_capsules.files import reading
from tf_capsules.models.weights import find
from tf_capsules.models.weights.keras_file import has_decoder, saved_epoch
from tf_capsules.runs.compiling import build_model, compile_learner, compile_model, for_model, load_checkpoint
from tf_capsules.runs.configuration import recorded_recipe, recorded_settings
from tf_capsules.runs.data import load_data
from tf_capsules.runs.data_spec import DataSpec
from tf_capsules.runs.errors import TrainingError, reported
from tf_capsules.runs.folder import OTHER_VERSION, RunFolder
from tf_capsules.runs.settings import Settings

BEST = "weights with the best validation"


@dataclasses.dataclass(frozen=True)
class Run:
    """A trained model and its origin. If several processes trained, each has a `Run`; process 0 alone has the folder.

    Attributes:
        folder: where its files are.
        recipe, settings: as they apply now. For an evaluation they may have other data or batches than for training.
        trained: the recipe as it applied to the training.
        trained_on: the `DataSpec` of the training.
        load: a function that returns the `Data` that `data` keeps.
        model: compiled, without feedback units.
        history: a dict for each epoch; [] for published weights.
        result: the row of results.
        epoch: the epoch after which the model had these weights; None: the last of the history.
        remark: how weights, iterations or data differ from those of the training; "" if they don't.
    """

    folder: pathlib.Path
    recipe: recipes.Recipe
    settings: Settings
    trained: recipes.Recipe
    trained_on: DataSpec
    load: Callable
    model: keras.Model
    history: list
    result: dict
    epoch: int | None = None
    remark: str = ""

    @functools.cached_property
    def data(self):
        """The `Data`, loaded at their first use; a TrainingError if they are absent or do not fit the model."""
        data = reported(self.load)
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
        one_of("part", part, ("test", "validation"))
        batches = for_model(self.model, getattr(self.data, part)(batch_size=self.recipe.batch_size))
        return self.model.evaluate(batches, verbose=0, return_dict=True)

    def models(self, most=4):
        """The model after at most `most` kept epochs, the first and the last among them, in a dict by "epoch N".

        If only the last weights were kept, or the run has no history, the dict is `{"": model}`.
        """
        kept = RunFolder(self.folder).checkpoints() if self.history else []
        if len(kept) < 2 or most < 2:
            return {"": self.model}
        chosen = sorted({kept[round(i)] for i in np.linspace(0, len(kept) - 1, most)})
        same = {name: getattr(self.settings, name) for name in ("iterations", "network", "dtype", "jit")}
        return {f"epoch {epoch}": load_run(self.folder, epoch, self.trained, **same).model for epoch in chosen}

    def examples(self, count, raw=False):
        """The first `count` test examples as NumPy arrays: inputs, and labels or a dict of several targets.

        With `raw` the inputs are as a server gets them: images before the recipe's preprocessing, or texts.
        """
        if raw and self.data.transformer is not None:
            return tuple(part[:count] for part in self.data.test_split)
        options = {"preprocess": ()} if raw else {}
        examples = next(iter(self.data.test(batch_size=count, limit=count, **options)))
        return keras.tree.map_structure(keras.ops.convert_to_numpy, examples)


# Settings of a training that no evaluation can change.
_OF_TRAINING = "epochs learning_rate decay_steps warmup momentum_cycle mixup stop_at feedback loss seed".split()
_OF_TRAINING += ["train_limit", "epoch_size"]


def load_run(folder, weights="last", recipe=None, **changes):
    """Loads a run, with a compiled model. Its data are loaded at their first use.

    Args:
        folder: the run folder.
        weights: "last" or "best"; or the number of an epoch whose weights were kept.
        recipe: the `Recipe` that was trained, if it is none of the package's own.
        changes: other values of `Settings`, such as `iterations`, or another data set to evaluate on, which replaces
            the run's. Settings of the training itself, such as `seed`, can't be changed.

    Raises:
        ValueError: the folder is not that of a run, is damaged or of another version, or has no such weights; a changed
            value of the training.
    """
    folder = RunFolder(folder)
    config = folder.config()
    trained_on = DataSpec.from_json(config["data"])
    with reading(folder.path / "config.json", OTHER_VERSION):
        trained = recorded_recipe(config, recipe)
        before = Settings(**{**recorded_settings(config), "strategy": "none", "devices": None, "download": False})
        before.check(trained)
    for name in _OF_TRAINING:
        if name in changes and changes[name] != getattr(before, name):
            given = f"{name} {getattr(before, name)}. Received: {changes[name]}"
            raise TrainingError(f"{folder.path} was trained with {given}")
    settings = _for_evaluation(before, changes)
    settings.check(trained)
    settings = settings.with_absolute_paths()
    recipe = settings.apply(trained)
    named = [pathlib.Path(one.transformer or "").name for one in (trained, recipe)]
    if named[0] != named[1]:
        raise TrainingError(f"--transformer {named[1]}: {folder.path} was trained on hidden states of {named[0]}.")
    folder.weights(weights)  # a missing file is told before the network is built
    own_network = recipe.model_options == trained.model_options
    with reading(folder.path / "config.json", OTHER_VERSION) if own_network else contextlib.nullcontext():
        named = trained.replace(model_options=recipe.model_options)
        model = build_model(named, trained_on, settings.dtype, initial_weights=False)
        learner = compile_learner(model, trained, trained_on, settings.jit)
    number, epoch = _load_weights(learner, folder, weights, own_network)
    history = folder.history(trained.metric)
    if len(history) < (number or 0):
        raise TrainingError(f"{folder.path}/history.csv has {len(history)} epochs, fewer than the weights ({number}).")
    if epoch is None:  # best weights of a version that did not save it
        best = max(history, key=lambda row: (row[f"val_{recipe.metric}"], row["epoch"]), default={"epoch": None})
        epoch = best["epoch"]
    last = number if weights == "last" else max(folder.checkpoints(), default=None)
    history = history[:last]  # history is written before the weights
    remarks = [BEST] if number is None else [f"weights of epoch {number}"] if number != last else []
    if (count := recipe.model_options.get("iterations")) != trained.model_options.get("iterations"):
        remarks.append(f"evaluated with {count} iteration{'s' * (count != 1)}")
    other_data = (recipe.dataset, settings.data) != (trained.dataset, before.data)
    if other_data or (recipe.dataset == "folder" and settings.data_dir != before.data_dir):
        remarks.append(f"trained on {before.data or trained_on.name}")
        # They are for tests: the length of an epoch is not theirs.
        load = functools.partial(load_data, recipe, dataclasses.replace(settings, epoch_size=None), trained_on)
    else:
        load = functools.partial(_own_data, recipe, settings, trained_on, settings.test_limit == before.test_limit)
    remark, result = "; ".join(remarks), folder.result()
    return Run(folder.path, recipe, settings, trained, trained_on, load, model, history, result, epoch, remark)


def _load_weights(learner, folder, weights, own_network):
    """Loads a run's weights; returns the number of their checkpoint, None for the best, and that of their epoch."""
    # A training that goes on meanwhile removes each checkpoint when it has the next, and replaces the best weights.
    other = folder.path / "best.weights.h5"
    while True:
        path = folder.weights(weights)
        number, there = folder.epoch_of(path), own_network and other.exists() and path != other
        try:
            epoch = saved_epoch(path) if number is None else number
            load_checkpoint(learner, path, f". {other.name} is there, too: --weights best." if there else "")
            if number is not None or saved_epoch(path) == epoch:
                return number, epoch
        except FileNotFoundError:
            if path == folder.weights(weights):
                raise


def _for_evaluation(settings, changes):
    """A run's settings with other values. With other data, what belongs to the replaced ones goes."""
    changes = {name: value for name, value in changes.items() if value is not None or name not in ("dataset", "data")}
    gone = ["dataset", "data", "image_size", "class_list", "box_file"] if {"dataset", "data"} & set(changes) else []
    if changes.get("data") is not None:
        gone.append("data_dir")
    return dataclasses.replace(settings, **{**dict.fromkeys(gone), **changes})


def _own_data(recipe, settings, trained_on, same_test):
    """The data that a run was trained on; a warning if a user's own files hold others since."""
    data = load_data(recipe, settings, trained_on)
    if trained_on.contents:
        changed = data.spec.contents != trained_on.contents
    else:  # a run of an earlier version. `same_test`: the test split is limited as it was for the training.
        sizes = [(spec.train_size, spec.test_size if same_test else 0) for spec in (data.spec, trained_on)]
        changed = trained_on.name == "folder" and sizes[0] != sizes[1]
    if changed:
        told = f"{settings.data or settings.data_dir} holds other examples or labels than the run was trained on."
        if trained_on.name == "folder":
            told += " Unless it holds train and test, it was split anew, and training images are among the test images."
        warnings.warn(told)
    return data


def run_of_weights(recipe, weights, **changes):
    """A recipe's network with weights from elsewhere, as a run without a history.

    Args:
        recipe: a `Recipe`, or the name of one.
        weights: a file, or the name of a shipped set. If it has none of a decoder, the network is built without one.
        changes: values of `Settings`.

    Its pictures and exports belong to runs/RECIPE-weights. Raises a TrainingError for unusable data or weights.
    """
    settings = Settings(**changes).with_absolute_paths()
    published = reported(recipes.get, recipe) if isinstance(recipe, str) else recipe
    settings.check(published)
    recipe = settings.apply(published)
    options = dict(weights=weights)
    if not has_decoder(reported(find, weights)):
        options |= dict.fromkeys({"decoder", "decoder_units"} & set(inspect.signature(recipe.model).parameters))
    data = reported(load_data, recipe, settings)
    spec = data.spec.noted(f"weights {pathlib.Path(weights).name}", train_size=0)
    data = dataclasses.replace(data, spec=spec)
    model = reported(build_model, recipe.replace(model_options=options), spec, settings.dtype)
    reported(compile_model, model, recipe, dataclasses.replace(spec, train_size=1), settings.jit)
    folder = pathlib.Path("runs") / f"{recipe.name}-weights"
    trained = recipe.replace(batch_size=published.batch_size)
    return Run(folder, recipe, settings, trained, spec, lambda: data, model, [], {})


def find_run(name, weights="last", **changes):
    """The run in the folder of this name (see `load_run`), or of the recipe of this name (see `run_of_weights`).

    Raises a ValueError for weights that don't go with what is named.
    """
    weights = str(weights)
    if pathlib.Path(name).exists() or name not in recipes.names():
        if weights not in ("last", "best") and not weights.isdecimal():
            if not pathlib.Path(name).exists():
                reported(recipes.get, name)
            raise ValueError(f"--weights of a run folder is last, best or an epoch. Received: {weights} for {name}")
        return load_run(name, int(weights) if weights.isdecimal() else weights, **changes)
    if weights in ("last", "best"):
        raise ValueError(f"{name} is a recipe, without weights: give --weights FILE, or name a run folder.")
    return run_of_weights(name, weights, **changes)


def check_same_inputs(runs, purpose):
    """Raises a ValueError unless runs have inputs, preprocessing, classes and metric in common."""
    kinds = []
    for run in runs:
        recipe, spec = run.recipe, run.trained_on
        transformer = (pathlib.Path(recipe.transformer).name,) if recipe.transformer else ()
        steps = augment.in_evaluation(recipe.preprocess)
        kinds.append((spec.inputs, steps, spec.class_names, recipe.metric, *transformer))
    if any(kind != kinds[0] for kind in kinds):
        raise ValueError(f"{purpose} need the same inputs, preprocessing, classes and metric. Received: {kinds}")
