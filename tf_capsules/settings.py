"""What a user may set for a run, checked before anything is loaded."""

import dataclasses
import inspect
import math
import os
import pathlib
import re
import typing

import keras

from tf_capsules import datasets
from tf_capsules.files import is_of

_OVERRIDES = (
    "epochs",
    "batch_size",
    "learning_rate",
    "decay_steps",
    "warmup",
    "mixup",
    "dataset",
    "transformer",
)
_PATHS = ("data", "transformer", "cache", "class_list", "box_file")
_OF_IMAGENET = ("imagenet", "h_imagenet")


class TrainingError(ValueError):
    """Training can't start or go on; the message says why and what to do."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a user may set for a run. None leaves the recipe's own value.

    Attributes:
        epochs, batch_size, learning_rate: as in `Recipe`.
        decay_steps, warmup, mixup: as in `Recipe`; the first two take the place of the recipe's decay.
        stop_at: end training after the first epoch whose validation metric, from 0 to 1, is at least this; a run may
            be resumed with another value.
        iterations: of each routing layer, for a model with this argument.
        network: other values of the model's arguments, by name, such as `{"types": 16}`; tuples are given as lists.
        seed: of weights, data order and augmentation.
        dataset: name of another data set.
        data: a .npz file of arrays (`tf_capsules.datasets.arrays.load_npz`), or a folder of images with one folder a
            class, in place of a data set.
        transformer: for recipes on texts, another frozen transformer (`tf_capsules.text.load`).
        cache: the folder in which its hidden states are kept; "none": they are computed whenever they are needed; None:
            they are kept in ~/.cache/tf_capsules where they fit into `cache_limit`.
        cache_limit: the most gigabytes (10^9 bytes) of hidden states to keep for one set of texts.
        image_size: side in pixels to which a folder's images are resized; None for 32.
        class_list, box_file: for ImageNet, the files of `tf_capsules.datasets.imagenet.imagenet`.
        data_dir: where tensorflow-datasets keeps its sets.
        download: fetch an absent data set.
        train_limit, test_limit: use the first so many images of a data set; of a .npz file, and of texts, so many drawn
            at random, always the same ones.
        epoch_size: examples in an epoch of training, at whose end the model is tested and kept; the next one goes on
            where it stopped. None: all.
        dtype: Keras dtype policy.
        jit: "auto", "on" or "off": compile the whole step with XLA.
        strategy: "none" or "mirrored" (`tf.distribute.MirroredStrategy`).
        devices: how many devices are mirrored; on a machine without GPU, as many logical CPU devices. None for all
            GPUs, or one CPU device.
        processes: how many processes train together, one a machine, each with all its devices, on the JAX backend; None
            for this one alone, on one device. With 1 the next two may be left out.
        process: which of them this is, from 0.
        coordinator: HOST:PORT at which process 0 can be reached by all.
        deterministic: bitwise repeatable, slower.
        keep_epochs: keep the weights after every epoch, not after the last and the best one only.
        diagnostics: measure after each epoch what routing does with 50 test examples
            (`tf_capsules.analysis.RoutingDiagnostics`), into diagnostics.csv and TensorBoard.
    """

    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    decay_steps: int | None = None
    warmup: float | None = None
    mixup: float | None = None
    stop_at: float | None = None
    iterations: int | None = None
    network: dict | None = None
    seed: int = 0
    dataset: str | None = None
    data: str | os.PathLike | None = None
    transformer: str | os.PathLike | None = None
    cache: str | os.PathLike | None = None
    cache_limit: float = 20.0
    image_size: int | None = None
    class_list: str | os.PathLike | None = None
    box_file: str | os.PathLike | None = None
    data_dir: str | None = None
    download: bool = False
    train_limit: int | None = None
    test_limit: int | None = None
    epoch_size: int | None = None
    dtype: str = "float32"
    jit: str = "auto"
    strategy: str = "none"
    devices: int | None = None
    processes: int | None = None
    process: int | None = None
    coordinator: str | None = None
    deterministic: bool = False
    keep_epochs: bool = False
    diagnostics: bool = False

    def check(self, recipe):
        """Raises a TrainingError, before any data is loaded, for what can't work."""
        for name, hint in typing.get_type_hints(Settings).items():
            if not is_of(getattr(self, name), hint):
                raise TrainingError(f"--{name.replace('_', '-')} can't be {getattr(self, name)!r}.")
        counts = ("epochs", "batch_size", "decay_steps", "iterations", "train_limit", "test_limit", "epoch_size")
        for name in (*counts, "devices", "processes", "image_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise TrainingError(f"--{name.replace('_', '-')} must be at least 1. Received: {value}")
        if self.iterations is not None and "iterations" not in inspect.signature(recipe.model).parameters:
            raise TrainingError(
                f"--iterations {self.iterations} is for networks that route; the network of "
                f"{recipe.name} is {recipe.model.__name__}."
            )
        self._check_network(recipe)
        if self.learning_rate is not None and not 0 < self.learning_rate < math.inf:
            raise TrainingError(f"--learning-rate must be above 0. Received: {self.learning_rate}")
        if self.warmup is not None and not 0 < self.warmup < 1:
            raise TrainingError(f"--warmup must be between 0 and 1. Received: {self.warmup}")
        if self.mixup is not None and not 0 < self.mixup < math.inf:
            raise TrainingError(f"--mixup must be above 0. Received: {self.mixup}")
        if self.stop_at is not None and not 0 < self.stop_at <= 1:
            raise TrainingError(f"--stop-at must be a share above 0, at most 1. Received: {self.stop_at}")
        if not 0 < self.cache_limit < math.inf:
            raise TrainingError(f"--cache-limit must be above 0. Received: {self.cache_limit}")
        if recipe.transformer is None:
            for name in ("transformer", "cache"):
                if getattr(self, name) is not None:
                    raise TrainingError(
                        f"--{name} {getattr(self, name)} is for recipes on texts; {recipe.name} is on images."
                    )
        if self.decay_steps is not None and ((self.warmup or recipe.warmup) is not None or recipe.drops):
            source = f"the {'drops' if recipe.drops else 'warm-up'} of {recipe.name}"
            source = source if self.warmup is None else f"--warmup {self.warmup}"
            raise TrainingError(f"--decay-steps {self.decay_steps} and {source} exclude each other.")
        if not 0 <= self.seed < 2**31:
            raise TrainingError(f"--seed must be from 0 to {2**31 - 1}. Received: {self.seed}")
        for name, choices in (
            ("dtype", ("float32", "mixed_bfloat16", "mixed_float16")),
            ("jit", ("auto", "on", "off")),
            ("strategy", ("none", "mirrored")),
        ):
            if getattr(self, name) not in choices:
                raise TrainingError(f"--{name} must be {' or '.join(choices)}. Received: {getattr(self, name)}")
        if self.dataset is not None and self.dataset not in datasets.names():
            raise TrainingError(f"--dataset must be one of {', '.join(datasets.names())}. Received: {self.dataset}")
        if self.data is not None and self.dataset is not None:
            raise TrainingError(f"--data {self.data} and --dataset {self.dataset} exclude each other.")
        if self.dataset is not None and datasets.of_texts(self.dataset) != (recipe.transformer is not None):
            kinds = ("texts", "images") if recipe.transformer is not None else ("images", "texts")
            raise TrainingError(f"The recipe {recipe.name} is on {kinds[0]}, --dataset {self.dataset} has {kinds[1]}.")
        source = self.data or self.dataset or recipe.dataset
        of_folder = source == "folder" if self.data is None else not pathlib.Path(self.data).is_file()
        if self.image_size is not None and not of_folder:
            raise TrainingError(f"--image-size {self.image_size} is for a folder of images. Received: {source}")
        for name in ("class_list", "box_file"):
            if getattr(self, name) is not None and source not in _OF_IMAGENET:
                option = f"--{name.replace('_', '-')} {getattr(self, name)}"
                raise TrainingError(f"{option} is for {' and '.join(_OF_IMAGENET)}. Received: {source}")
        if self.devices is not None and self.strategy == "none":
            raise TrainingError(f"--devices {self.devices} needs --strategy mirrored.")
        if self.strategy == "mirrored":
            if keras.backend.backend() != "tensorflow":
                raise TrainingError(
                    f"--strategy mirrored needs the TensorFlow backend. Received: {keras.backend.backend()}"
                )
            if self.jit == "on":
                raise TrainingError("--jit on does not work under --strategy mirrored.")
            batch_size = self.batch_size or recipe.batch_size
            if self.devices and batch_size % self.devices:
                raise TrainingError(f"--batch-size {batch_size} can't be shared evenly by --devices {self.devices}.")

        self._check_processes(recipe)

    def _check_network(self, recipe):
        own = set(inspect.signature(recipe.model).parameters) - {"image_shape", "classes", "weights", "name"}
        for name, value in (self.network or {}).items():
            given = f"--network {name}={value}"
            if name not in own:
                raise TrainingError(
                    f"{given}: {recipe.model.__name__} has no such argument that may be set; "
                    f"it has {', '.join(sorted(own)) or 'none'}."
                )
            if name == "iterations":
                raise TrainingError(f"{given}: give --iterations {value}.")

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
        if keras.backend.backend() != "jax":
            raise TrainingError(
                f"--processes {self.processes} needs the JAX backend: set KERAS_BACKEND=jax. "
                f"Received: {keras.backend.backend()}"
            )
        for option, given in (("jit off", self.jit == "off"), ("diagnostics", self.diagnostics)):
            if given:
                raise TrainingError(f"--{option} does not work with --processes {self.processes}.")
        batch_size = self.batch_size or recipe.batch_size
        if batch_size % self.processes:
            raise TrainingError(f"--batch-size {batch_size} can't be shared evenly by --processes {self.processes}.")

    def apply(self, recipe):
        """The recipe with these settings."""
        values = {name: getattr(self, name) for name in _OVERRIDES}
        values = {name: value for name, value in values.items() if value is not None}
        if values.get("dataset") not in (None, recipe.dataset):
            recipe = dataclasses.replace(recipe, dataset_options={})
        files = {name: getattr(self, name) for name in ("class_list", "box_file")}
        values["dataset_options"] = {name: file for name, file in files.items() if file is not None}
        if self.warmup is not None:
            values |= {"decays": None, "decay_steps": None, "drops": ()}
        if self.decay_steps is not None:
            values["decays"] = None
        values["model_options"] = {} if self.iterations is None else {"iterations": self.iterations}
        values["model_options"] |= self.network or {}
        return recipe.replace(**values)

    def network_as_text(self):
        """The network's own values as NAME=VALUE, as they are given on the command line."""
        texts = []
        for name, value in sorted((self.network or {}).items()):
            if isinstance(value, list):
                value = ",".join(map(str, value)) + ("," if len(value) == 1 else "")
            texts.append(f"{name}={value}")
        return texts

    def with_absolute_paths(self):
        """The same settings, its paths independent of the current folder."""
        paths = {name: getattr(self, name) for name in _PATHS}
        paths = {name: path for name, path in paths.items() if path is not None}
        if not pathlib.Path(paths.get("transformer", "")).is_dir():
            paths.pop("transformer", None)  # a name
        if self.cache == "none":
            del paths["cache"]
        return dataclasses.replace(self, **{name: str(pathlib.Path(path).resolve()) for name, path in paths.items()})
