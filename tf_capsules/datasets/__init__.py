"""Data sets by name. The packages that a set needs are imported when it is loaded.

>>> from tf_capsules import datasets
>>> digits = datasets.load("digits")
>>> x, y = next(iter(digits.train.batches(32, training=True)))
"""

import importlib
import inspect

from tf_capsules.datasets.sst import TextDataset, TextSplit

__all__ = ["TextDataset", "TextSplit", "describe", "load", "names", "of_texts"]

# Name of a set and of its loader: (module, description, image shape, classes). Texts have no shape; of user files
# neither is known.
_SETS = {
    "digits": ("standard", "scikit-learn's handwritten digits (1,437 + 360)", (8, 8, 1), 10),
    "mnist": ("standard", "handwritten digits (60,000 + 10,000)", (28, 28, 1), 10),
    "fashion_mnist": ("standard", "articles of clothing (60,000 + 10,000)", (28, 28, 1), 10),
    "cifar10": ("standard", "small photographs (50,000 + 10,000)", (32, 32, 3), 10),
    "cifar100": ("standard", "small photographs (50,000 + 10,000)", (32, 32, 3), 100),
    "imagenet": ("imagenet", "photographs, ImageNet 2012 (1,281,167 + 50,000)", (256, 256, 3), 1000),
    "h_imagenet": ("imagenet", "its 200 hardest classes, cut out by boxes (255,725 + 17,101)", (156, 156, 3), 200),
    "svhn": ("standard", "house numbers, cropped (73,257 + 26,032)", (32, 32, 3), 10),
    "smallnorb": ("smallnorb", "toys from two cameras (24,300 + 24,300 pairs)", (96, 96, 2), 5),
    "smallnorb_novel_azimuth": ("smallnorb", "smallNORB at novel azimuths (8,100 + 16,200 pairs)", (96, 96, 2), 5),
    "smallnorb_novel_elevation": ("smallnorb", "smallNORB at novel elevations (8,100 + 16,200 pairs)", (96, 96, 2), 5),
    # For copies of smallNORB whose training pairs lack pose labels.
    "smallnorb_novel_azimuth_test_toys": ("smallnorb", "test toys, novel azimuths (4,860 + 6,480)", (96, 96, 2), 5),
    "smallnorb_novel_elevation_test_toys": ("smallnorb", "test toys, novel elevations (4,860 + 6,480)", (96, 96, 2), 5),
    "rendered_toys": ("rendered_toys", "toys drawn by code, two cameras (2,000 + 1,000 pairs)", (48, 48, 2), 5),
    "rendered_toys_novel_azimuth": ("rendered_toys", "drawn toys, novel azimuths (2,000 + 1,000)", (48, 48, 2), 5),
    "rendered_toys_novel_elevation": ("rendered_toys", "drawn toys, novel elevations (2,000 + 1,000)", (48, 48, 2), 5),
    "multimnist": ("multimnist", "two overlapping digits, made on the fly", (36, 36, 1), 10),
    "diverse_multimnist": ("multimnist", "one or two overlapping digits, made on the fly", (36, 36, 1), 10),
    "expanded_mnist": ("affnist", "MNIST at random places on a black canvas", (40, 40, 1), 10),
    "affnist": ("affnist", "expanded MNIST; test: the official affNIST files", (40, 40, 1), 10),
    "affnist_standin": ("affnist", "expanded MNIST; test: affine maps of MNIST's test digits", (40, 40, 1), 10),
    "sst_fine": ("sst", "sentences of film reviews, 5 sentiments (159,274 phrases + 2,210)", None, 5),
    "sst_binary": ("sst", "sentences of film reviews, 2 sentiments (77,616 phrases + 1,821)", None, 2),
    "folder": ("folder", "your own images, one folder a class", None, None),
}


def names():
    """The names that `load` knows."""
    return tuple(_SETS)


def of_texts(name):
    """Whether the examples of that data set are texts, not images."""
    return name in _SETS and _SETS[name][0] == "sst"


def check_name(name):
    """Raises a ValueError for the name of a data set that is not there."""
    if name not in _SETS:
        raise ValueError(f"unknown data set {name!r}; there are {', '.join(_SETS)}")


def describe():
    """Rows (name, description, image shape, classes) of all data sets; None for a text's shape and for user files."""
    return tuple((name, *row[1:]) for name, row in _SETS.items())


def load(name, data_dir=None, download=False, **options):
    """Loads a data set: a `tf_capsules.datasets.pipeline.Dataset`, for texts a `TextDataset`.

    ImageNet's pictures stay on the disk; generated images are made when they are asked for.

    Args:
        name: one of `names()`.
        data_dir: a folder of prepared tensorflow-datasets (default: the environment variable TFDS_DATA_DIR, then
            ~/tensorflow_datasets), of original files (affNIST, smallNORB, the Sentiment Treebank), or of your images.
        download: fetch and prepare the set if it is absent and tensorflow-datasets can do so.
        options: of the set; see its function, for instance `tf_capsules.datasets.multimnist.multimnist`.

    Raises:
        ValueError: an unknown name or option, or a bad value.
        FileNotFoundError: the data are absent. It says where they were looked for and how to get them.

    >>> load("digits").image_shape
    (8, 8, 1)
    """
    check_name(name)
    loader = getattr(importlib.import_module(f"tf_capsules.datasets.{_SETS[name][0]}"), name)
    known = [option for option in inspect.signature(loader).parameters if option not in ("data_dir", "download")]
    if unknown := sorted(set(options) - set(known)):
        raise ValueError(f"data set {name!r} has no option {unknown[0]!r}; it has {', '.join(known) or 'none'}")
    return loader(data_dir=data_dir, download=download, **options)
