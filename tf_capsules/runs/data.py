"""What a recipe trains on: training, validation and test batches for `fit`."""

import dataclasses
import functools
import importlib.util
import pathlib
import zlib
from collections.abc import Callable

import keras
import numpy as np

from tf_capsules import datasets, text
from tf_capsules.datasets import augment
from tf_capsules.datasets.arrays import ArrayBatches
from tf_capsules.datasets.npz import load_npz
from tf_capsules.datasets.pipeline import Dataset
from tf_capsules.runs.data_spec import DataSpec, ImageSpec, TextSpec


@dataclasses.dataclass(frozen=True)
class Data:
    """Training, validation and test batches.

    Attributes:
        train, validation, test: functions that take the options of `Split.batches` and return what `fit` takes. Without
            a validation split, `validation` is `test`; for novel viewpoints it has the familiar ones.
        test_split: the test split of a data set with its raw images or texts; None for arrays of images.
        transformer: a `tf_capsules.text.FrozenTransformer`, or None for images.
        test_sizes: a dict from part to (examples used, examples available). The parts: for novel viewpoints first
            "validation", the familiar ones; then always "test".
    """

    spec: DataSpec
    train: Callable
    validation: Callable
    test: Callable
    test_sizes: dict[str, tuple[int, int]]
    test_split: object = None
    transformer: object = None

    @property
    def evaluated(self):
        """Pairs of a part of `test_sizes` and the `DataSpec` of its examples."""
        views = ("familiar viewpoints", "novel viewpoints") if len(self.test_sizes) == 2 else ("",)
        pairs = []
        for (part, (size, whole)), view in zip(self.test_sizes.items(), views, strict=True):
            limited = f"{size:,} of {whole:,} test examples" if size < whole else ""
            pairs.append((part, self.spec.noted(view, limited, test_size=size)))
        return pairs


def load_data(recipe, settings, like=None):
    """The `Data` of a recipe with its settings applied; a ValueError or FileNotFoundError for unusable or absent data.

    `like` is the `DataSpec` of a trained model. It supplies what files lack: class names, the size of images.
    """
    path = None if settings.data is None else pathlib.Path(settings.data)
    if path is not None and not path.exists():
        raise FileNotFoundError(f"--data {path}: there is no such file or folder.")
    data = (_load_images if recipe.transformer is None else _load_texts)(recipe, settings, path, like)
    size = settings.epoch_size
    if size is None:
        return data
    spec = data.spec.noted(f"epochs of {size:,} of {data.spec.train_size:,} examples", train_size=size)
    return dataclasses.replace(data, spec=spec, train=functools.partial(data.train, epoch_size=size))


def _load_images(recipe, settings, path, like):
    steps = augment.check(recipe.preprocess)
    if path is not None and path.is_file():
        train, test, names = _arrays(path, like)
        dataset, raw = Dataset(path.name, train, test, names), train[0].shape[1:]
    else:
        source, data_dir, options = recipe.dataset, settings.data_dir, recipe.dataset_options
        if path is not None:
            source, data_dir, options = "folder", path, {}
        if source == "folder" and like is not None:
            options = options | {"image_size": like.raw_shape[:2], "channels": like.raw_shape[2]}
        if settings.image_size is not None:
            options = options | {"image_size": settings.image_size}
        dataset = datasets.load(source, data_dir, settings.download, **options)
        raw = dataset.image_shape
    name, names = dataset.name, tuple(dataset.class_names)
    if dataset.multi_label != (recipe.metric == "exact_match"):
        kinds = ("one class", "several classes") if dataset.multi_label else ("several classes", "one class")
        raise ValueError(f"The recipe {recipe.name} is for {kinds[0]} an image, the data {name} have {kinds[1]}.")
    test_split = None if isinstance(dataset.test, tuple) else dataset.test
    if test_split is not None:
        for part, split in (("training", dataset.train), ("test", dataset.test)):
            _check_labels(split.arrays["label"], len(names), f"{part} set of {name}")
    train, (train_size, _) = _image_batches(dataset.train, steps, settings.train_limit)
    test, sizes = _image_batches(dataset.test, steps, settings.test_limit)
    try:
        shapes = tuple(raw), tuple(augment.output_shape(steps, raw))
    except ValueError as error:
        raise ValueError(f"The images of {name}, {tuple(raw)}, do not suit {recipe.name}: {error}") from error
    contents = "" if path is None and name != "folder" else _checksum(dataset.train, dataset.test)
    spec = ImageSpec(name, names, train_size, sizes[0], dataset.note, *shapes, contents=contents)
    if dataset.familiar is None:
        return Data(spec, train, test, test, {"test": sizes}, test_split)
    validation, familiar = _image_batches(dataset.familiar, steps, settings.test_limit)
    return Data(spec, train, validation, test, {"validation": familiar, "test": sizes}, test_split)


def _load_texts(recipe, settings, path, like):
    if recipe.preprocess:
        raise ValueError(f"preprocess is for images; {recipe.name} is on texts. Received: {recipe.preprocess}")
    if path is not None:
        train, test, names = _arrays(path, like, texts=True)
        name, validation = path.name, None
    else:
        dataset = datasets.load(recipe.dataset, settings.data_dir, settings.download, **recipe.dataset_options)
        name, names = dataset.name, dataset.class_names
        train, validation, test = dataset.train, dataset.dev, dataset.test
    transformer = text.load(recipe.transformer)

    def limited(split, limit):
        split = datasets.TextSplit(*_sample(*split, limit))
        return split, _text_batches(transformer, split, settings)

    whole, contents = len(test[1]), "" if path is None else _checksum(train, test)
    train, train_batches = limited(train, settings.train_limit)
    test, test_batches = limited(test, settings.test_limit)
    own = test_batches if validation is None else limited(validation, settings.test_limit)[1]
    sizes, note = (len(train.texts), len(test.texts)), f"hidden states of {pathlib.Path(recipe.transformer).name}"
    of_states = recipe.transformer, transformer.layers, transformer.width
    spec = TextSpec(name, tuple(names), *sizes, note, *of_states, contents=contents)
    return Data(spec, train_batches, own, test_batches, {"test": (len(test.texts), whole)}, test, transformer)


def _sample(examples, labels, limit):
    """At most `limit` examples, in order; drawn (always the same), as files may be sorted by label or author."""
    if limit is None or limit >= len(labels):
        return examples, labels
    chosen = np.sort(np.random.default_rng(0).permutation(len(labels))[:limit])
    return examples[chosen], labels[chosen]


def _arrays(path, like, texts=False):
    """Training and test pairs of an .npz file, and the names of its classes."""
    arrays = load_npz(path, texts, like and like.class_names)
    return (arrays["x_train"], arrays["y_train"]), (arrays["x_test"], arrays["y_test"]), arrays["class_names"]


def _checksum(*splits):
    """Tells data of the same sizes apart."""
    found = 0
    for split in splits:
        for array in split if isinstance(split, tuple) else (split.arrays["image"], split.arrays["label"]):
            found = zlib.crc32(np.ascontiguousarray(array), found)
    return f"CRC-32 {found:08x}"


def _check_labels(labels, classes, where):
    labels = np.asarray(labels)
    if labels.dtype.kind not in "iuf":
        raise ValueError(f"The labels in the {where} are {labels.dtype}, not whole numbers.")
    wrong = labels[~((labels >= 0) & (labels < classes) & (labels % 1 == 0))]
    if wrong.size:
        raise ValueError(f"The {where} has the label {wrong[0]}; {classes} classes have labels 0 to {classes - 1}.")


def _image_batches(split, steps, limit):
    """For a split or a pair of arrays: a function of the options of `Split.batches`, and the `Data.test_sizes`."""
    whole = len(split[1]) if isinstance(split, tuple) else split.size
    if isinstance(split, tuple):
        make = functools.partial(ArrayBatches, *_sample(*split, limit))
    elif importlib.util.find_spec("tensorflow") is not None:
        make = split.batches
    elif split.example is None:
        make = functools.partial(ArrayBatches, split.arrays["image"], split.arrays["label"])
    else:
        raise ValueError("Images made on the fly need TensorFlow, which is not installed.")
    return functools.partial(make, preprocess=steps, limit=limit), (min(whole, limit or whole), whole)


def _text_batches(transformer, split, settings):
    """A function of the options of `Split.batches`. Its first call computes the hidden states, or opens their cache."""

    @functools.cache
    def states():
        if settings.cache != "none":
            folder = settings.cache or pathlib.Path.home() / ".cache" / "tf_capsules"
            try:
                return text.cache_states(transformer, split.texts, folder, limit_gb=settings.cache_limit)
            except text.CacheTooLarge as error:
                if settings.cache is not None:
                    raise
                print(f"hidden states are not kept, but computed whenever they are needed: {error.found}", flush=True)
        return text.LiveStates(transformer, split.texts)

    def batches(batch_size, **options):
        if keras.backend.backend() == "tensorflow":
            return text.StateBatches(states(), split.labels, batch_size, **options).dataset()
        return text.StateBatches(states(), split.labels, batch_size, multiple=8, **options)

    return batches
