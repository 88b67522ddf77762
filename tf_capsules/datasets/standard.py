"""The sets that come ready made: scikit-learn's digits, and those that tensorflow-datasets prepares."""

import dataclasses
import functools

import numpy as np

from tf_capsules.datasets.pipeline import Dataset, Split
from tf_capsules.files import reading
from tf_capsules.lazy import tfds


def digits(data_dir=None, download=False):
    """Handwritten digits of 8x8 pixels that come with scikit-learn; 20% of each class are the test split (seed 0).

    The original values 0 .. 16 become 0 .. 255. `data_dir` and `download` are not used.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    source = load_digits()
    images = np.rint(source.images * (255 / 16)).astype(np.uint8)[..., None]
    parts = train_test_split(np.arange(len(images)), test_size=0.2, stratify=source.target, random_state=0)
    splits = (Split({"image": images[part], "label": source.target[part]}) for part in parts)
    return Dataset("digits", *splits, tuple(map(str, source.target_names)))


def mnist(data_dir=None, download=False):
    """MNIST, 28x28x1."""
    return prepared("mnist", "mnist", data_dir, download)


def fashion_mnist(data_dir=None, download=False):
    """Fashion-MNIST, 28x28x1."""
    return prepared("fashion_mnist", "fashion_mnist", data_dir, download)


def cifar10(data_dir=None, download=False):
    """CIFAR-10, 32x32x3."""
    # Named here, because a prepared folder knows the names only if it was made from the original archive.
    names = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
    return dataclasses.replace(prepared("cifar10", "cifar10", data_dir, download), class_names=names)


def cifar100(data_dir=None, download=False):
    """CIFAR-100 with its 100 fine labels, 32x32x3."""
    return prepared("cifar100", "cifar100", data_dir, download)


def svhn(data_dir=None, download=False):
    """Street View House Numbers, cropped to 32x32x3; the training split only, without the extra images."""
    return prepared("svhn", "svhn_cropped", data_dir, download)


def prepared(name, builder_name, data_dir, download, arrays=None, label="label", hint=""):
    """A Dataset from a folder that tensorflow-datasets has prepared.

    `arrays` makes the arrays of a `Split` from the builder's columns; None takes "image" and "label". The classes are
    those of the column `label`. `hint` says how else to get the set. Raises a FileNotFoundError if the set is absent,
    and a ValueError for files that are damaged or of another version than tensorflow-datasets knows.
    """
    make = functools.partial(tfds.builder, builder_name)
    builder, parts = read_prepared(make, ("train", "test"), f"data set {name!r}", data_dir, download, hint)
    splits = (Split(arrays(part) if arrays else {key: part[key] for key in ("image", "label")}) for part in parts)
    return Dataset(name, *splits, tuple(builder.info.features[label].names))


def read_prepared(make_builder, parts, what, data_dir, download, hint):
    """The builder of a set, which messages call `what`, and the columns of each part. Errors: see `prepared`."""
    complaint = f"holds no sound copy of the {what}"
    with reading(data_dir or "the folder of tensorflow-datasets", complaint):
        builder = make_builder(data_dir=data_dir)
    if download:
        builder.download_and_prepare()

    def columns(part):
        batches = list(tfds.as_numpy(builder.as_dataset(split=part, batch_size=1000)))
        return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}

    path = builder.data_path
    try:
        with reading(path, complaint, unchanged=(AssertionError,)):
            return builder, [columns(part) for part in parts]
    except AssertionError as error:  # tensorflow-datasets raises it if the folder is not there
        root = path.parents[2 if builder.builder_config else 1]
        raise FileNotFoundError(
            f"the {what} is not in {path}. To fetch it into {root}, load it with download=True (--download). A folder "
            f"prepared elsewhere is found through data_dir (--data-dir) or TFDS_DATA_DIR. {hint}".rstrip()
        ) from error
