"""What a user may set for a run, declared once and checked before anything is loaded."""

import dataclasses
import inspect
import os
import pathlib
import re

import keras

from tf_capsules import datasets, models
from tf_capsules.runs.errors import TrainingError, check_shared, reported
from tf_capsules.runs.option import (
    ABOVE_0,
    AT_LEAST_1,
    BETWEEN_0_AND_1,
    SEED,
    SHARE,
    assignments,
    check_arguments,
    declared,
    documented,
    one_of,
    option,
)

OptionalPath = str | os.PathLike | None

_OF_IMAGENET = ("imagenet", "h_imagenet")
# What a row of results states, if it was set; its other columns have the rest.
_STATED = "weights warmup momentum_cycle mixup stop_at iterations network feedback loss data image_size".split()
_STATED += "class_list box_file train_limit epoch_size jit".split()


@documented
@dataclasses.dataclass(frozen=True)
class Settings:
    """What a user may set for a run. None leaves the recipe's own value.

    Errors name an option as on the command line: `--batch-size` is `batch_size` here.
    """

    # fmt: off
    epochs: int | None = option("passes over the training examples", AT_LEAST_1, fixed=False)
    batch_size: int | None = option("examples a step, over all devices", AT_LEAST_1)
    learning_rate: float | None = option("at the start, or at the top of a warm-up", ABOVE_0)
    decay_steps: int | None = option("steps after which the learning rate has fallen by 4 percent", AT_LEAST_1)
    warmup: float | None = option(
        "share of all steps in which the learning rate rises; then it falls as a half cosine. This replaces the "
        "recipe's decay", BETWEEN_0_AND_1)
    momentum_cycle: bool | None = option(
        "with a warm-up: beta_1 falls while the learning rate rises, and rises while it falls. The recipes of Heinsen "
        "2019 do this; it is in the author's code, not in the paper")
    mixup: float | None = option("mix pairs of training examples in shares from Beta(MIXUP, MIXUP)", ABOVE_0)
    stop_at: float | None = option(
        "stop after the epoch whose validation reaches this accuracy, such as 0.95", SHARE, fixed=False)
    weights: OptionalPath = option(
        "to start from: a weights file, or the name of a shipped set (default: random ones)",
        metavar="FILE", recipe="model_options")
    iterations: int | None = option("of each routing layer of the network", AT_LEAST_1, recipe="model_options")
    network: dict | None = option(
        "argument of the network, such as types=16 or layers=1,1 (a list; of one entry: layers=1,); may be repeated",
        recipe="model_options")
    feedback: dict | None = option(
        "argument of the feedback units, such as weight=5; may be repeated", recipe="feedback_options")
    loss: dict | None = option("argument of the loss, such as variant=code; may be repeated", recipe="loss_options")
    seed: int = option("of weights, order and augmentation", SEED, default=0)
    dataset: str | None = option("another data set (tf-capsules list datasets)")
    data: OptionalPath = option(
        "a .npz of x_train, y_train, x_test, y_test, or a folder of images", metavar="PATH", outside_run=True)
    transformer: OptionalPath = option("for texts: a transformer's folder, installed package or name on the hub")
    cache: OptionalPath = option(
        "for texts: folder where hidden states are kept, or none to keep none (default: ~/.cache/tf_capsules)",
        metavar="DIR", outside_run=True)
    cache_limit: float = option(
        "most room for hidden states of a set of texts, in 10^9 bytes", ABOVE_0, default=20.0, metavar="GB",
        outside_run=True)
    image_size: int | None = option("side in pixels to which a folder's images are resized (default: 32)", AT_LEAST_1)
    class_list: OptionalPath = option(
        "for ImageNet: classes to keep, a WordNet number a line", metavar="FILE", recipe="dataset_options")
    box_file: OptionalPath = option(
        "for ImageNet: CSV of file, left, top, right, bottom", metavar="FILE", recipe="dataset_options")
    data_dir: OptionalPath = option(
        "where tensorflow-datasets keeps its sets, or a folder of original files", outside_run=True)
    download: bool = option("fetch an absent data set", default=False, outside_run=True)
    train_limit: int | None = option("how many training examples to use", AT_LEAST_1)
    test_limit: int | None = option("how many test examples to use", AT_LEAST_1)
    epoch_size: int | None = option(
        "training examples of an epoch, which ends with a test and a checkpoint (default: all)", AT_LEAST_1)
    dtype: str = option("Keras dtype policy", one_of("float32", "mixed_bfloat16", "mixed_float16"), default="float32")
    jit: str = option("compile each step with XLA", one_of("auto", "on", "off"), default="auto")
    strategy: str = option("how one machine's devices share a step", one_of("none", "mirrored"), default="none")
    devices: int | None = option("how many devices are mirrored (default: all GPUs, else one CPU device)", AT_LEAST_1)
    processes: int | None = option(
        "how many processes train together, one a machine, on the JAX backend", AT_LEAST_1, outside_run=True)
    process: int | None = option("number of this process, from 0; process 0 writes the run folder", outside_run=True)
    coordinator: str | None = option("address of process 0, for all processes", metavar="HOST:PORT", outside_run=True)
    deterministic: bool = option("bitwise repeatable on TensorFlow, slower", default=False)
    keep_epochs: bool = option("keep the weights after every epoch", default=False)
    diagnostics: bool = option("measure after each epoch what the routing does", default=False, outside_run=True)
    # fmt: on

    def check(self, recipe):
        """Raises a TrainingError, before any data is loaded, for what can't work."""
        for name, one in DECLARED.items():
            one.check(getattr(self, name))
        self._check_arguments(recipe)
        self._check_schedule(recipe)
        self._check_data(recipe)
        self._check_strategy(recipe)
        self._check_processes(recipe)

    def _check_arguments(self, recipe):
        network = recipe.model.__name__
        parameters = inspect.signature(recipe.model).parameters
        if self.iterations is not None and "iterations" not in parameters:
            raise TrainingError(
                f"--iterations {self.iterations} needs a network that routes; {network} of {recipe.name} does not."
            )
        if self.weights is not None and "weights" not in parameters:
            raise TrainingError(f"--weights {self.weights}: {network} of {recipe.name} can't be given weights.")
        if "weights" in (self.network or {}):
            file = self.network["weights"]
            raise TrainingError(f"--network weights={file}: give --weights {file}.")
        of_data = {"image_shape", "classes"} if recipe.transformer is None else {"layers", "width", "classes"}
        check_arguments("network", self.network, recipe.model, {*of_data, "weights", "name"})
        if "iterations" in (self.network or {}):
            count = self.network["iterations"]
            raise TrainingError(f"--network iterations={count}: give --iterations {count}, in a table RECIPE@{count}.")
        if recipe.feedback is not None:
            of_network = next(iter(inspect.signature(recipe.feedback).parameters))
            check_arguments("feedback", self.feedback, recipe.feedback, {of_network})
        elif self.feedback:
            given = assignments(self.feedback)[0]
            raise TrainingError(f"--feedback {given} is for recipes with feedback units; {recipe.name} has none.")
        check_arguments("loss", self.loss, recipe.loss, {"reduction", "name", "dtype"})
        if "margin" in (self.loss or {}) and recipe.margin_schedule is not None:
            given = assignments(self.loss)[0]
            raise TrainingError(f"--loss {given}: the margin of {recipe.name} grows with the training.")

    def _check_schedule(self, recipe):
        if self.decay_steps is not None and ((self.warmup or recipe.warmup) is not None or recipe.drops):
            source = f"the {'drops' if recipe.drops else 'warm-up'} of {recipe.name}"
            source = source if self.warmup is None else f"--warmup {self.warmup}"
            raise TrainingError(f"--decay-steps {self.decay_steps} and {source} exclude each other.")

    def _check_data(self, recipe):
        of_texts = recipe.transformer is not None
        for one in map(DECLARED.get, ("transformer", "cache", "cache_limit")):
            value = getattr(self, one.name)
            if value != one.default and not of_texts:
                raise TrainingError(f"{one.flag} {value} is for recipes on texts; {recipe.name} is on images.")
        if self.dataset is not None and self.dataset not in datasets.names():
            raise TrainingError(f"--dataset must be one of {', '.join(datasets.names())}. Received: {self.dataset}")
        others = [DECLARED[name].flag for name in ("dataset", "data_dir", "download") if getattr(self, name)]
        if self.data is not None and others:
            raise TrainingError(f"--data {self.data} replaces the data set: leave out {', '.join(others)}.")
        if self.dataset is not None and datasets.of_texts(self.dataset) != of_texts:
            kinds = ("texts", "images") if of_texts else ("images", "texts")
            raise TrainingError(f"The recipe {recipe.name} is on {kinds[0]}, --dataset {self.dataset} has {kinds[1]}.")
        source = self.data or self.dataset or recipe.dataset
        of_folder = source == "folder" if self.data is None else not pathlib.Path(self.data).is_file()
        if self.image_size is not None and not of_folder:
            raise TrainingError(f"--image-size {self.image_size} is for a folder of images. Received: {source}")
        for name in ("class_list", "box_file"):
            if getattr(self, name) is not None and source not in _OF_IMAGENET:
                given = f"{DECLARED[name].flag} {getattr(self, name)}"
                raise TrainingError(f"{given} is for {' and '.join(_OF_IMAGENET)}. Received: {source}")

    def _check_strategy(self, recipe):
        if self.strategy == "none":
            if self.devices is not None:
                raise TrainingError(f"--devices {self.devices} needs --strategy mirrored.")
            return
        if (backend := keras.backend.backend()) != "tensorflow":
            raise TrainingError(f"--strategy mirrored needs the TensorFlow backend. Received: {backend}")
        if self.jit == "on":
            raise TrainingError("--jit on does not work under --strategy mirrored.")
        check_shared(self.batch_size or recipe.batch_size, self.devices or 1, f"--devices {self.devices}")

    def _check_processes(self, recipe):
        given = {name: getattr(self, name) for name in ("coordinator", "processes", "process")}
        if all(value is None for value in given.values()):
            return
        if None in given.values() and self.processes != 1:
            received = ", ".join(f"--{name} {value}" for name, value in given.items() if value is not None)
            raise TrainingError(f"--coordinator, --processes and --process go together. Received: {received}")
        if not 0 <= (self.process or 0) < self.processes:
            raise TrainingError(f"--process must be from 0 to {self.processes - 1}. Received: {self.process}")
        if self.coordinator is not None and not re.fullmatch(r"[^:]+:\d+|\[[^]]+\]:\d+", self.coordinator):
            raise TrainingError(f"--coordinator must be HOST:PORT. Received: {self.coordinator}")
        if (backend := keras.backend.backend()) != "jax":
            needs = f"--processes {self.processes} needs the JAX backend: set KERAS_BACKEND=jax"
            raise TrainingError(f"{needs}. Received: {backend}")
        for words, refused in (("jit off", self.jit == "off"), ("diagnostics", self.diagnostics)):
            if refused:
                raise TrainingError(f"--{words} does not work with --processes {self.processes}.")
        check_shared(self.batch_size or recipe.batch_size, self.processes, f"--processes {self.processes}")

    def apply(self, recipe):
        """The recipe with these settings; a TrainingError if the two exclude each other."""
        changes = {}
        if self.warmup is not None:
            changes = {"decays": None, "decay_steps": None, "drops": ()}
        elif self.decay_steps is not None:
            changes = {"decays": None}
        for name, one in DECLARED.items():
            value, field = getattr(self, name), one.recipe
            if value is None or field is None:
                continue
            if field == name:
                changes[field] = value
            else:
                changes.setdefault(field, {}).update(value if isinstance(value, dict) else {name: value})
        return reported(lambda: recipe.replace(**changes))

    def title(self, recipe):
        """The recipe's title. If iterations are set, it names these and leaves out the remarks after a colon."""
        if self.iterations is None:
            return recipe.title
        own, words = recipe.title.partition(": ")[0], f"iteration{'s' * (self.iterations > 1)}"
        return re.sub(r"\d+ (\w+ )?iterations?", rf"{self.iterations} \g<1>{words}", own)

    def stated(self):
        """The values that were set, as a row of results states them, for instance "iterations 1"."""
        # With `stop_at` the number of epochs, and for a folder of images its path, tell a row from others.
        further = ["epochs"] * (self.stop_at is not None) + ["data_dir"] * (self.dataset == "folder")
        values = {name: getattr(self, name) for name in [*_STATED, *further]}
        if self.weights is not None:  # a row is read on other machines, too
            values["weights"] = pathlib.PurePath(*pathlib.PurePath(self.weights).parts[-2:]).as_posix()
        given = ((DECLARED[name], value) for name, value in values.items())
        return [text for one, value in given if value not in (None, one.default) for text in one.as_texts(value)]

    def as_arguments(self):
        """The words on the command line that give the values other than the defaults."""
        values = ((one, getattr(self, name)) for name, one in DECLARED.items())
        return [word for one, value in values if value != one.default for word in one.as_arguments(value)]

    def with_absolute_paths(self):
        """The same settings, its paths independent of the current folder."""
        paths = {name: getattr(self, name) for name, one in DECLARED.items() if one.path}
        for name, path in paths.items():
            if path is not None and (name, path) != ("cache", "none"):
                full = pathlib.Path(path).expanduser()
                no_path = "://" in str(path) or (name == "transformer" and not full.is_dir())
                no_path |= name == "weights" and str(path) in models.weights.names()  # `find` prefers these, too
                paths[name] = str(path if no_path else full.resolve())
        return dataclasses.replace(self, **paths)


DECLARED = declared(Settings)
