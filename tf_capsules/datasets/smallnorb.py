"""smallNORB (LeCun, Huang, Bottou 2004), from its original files or as tensorflow-datasets prepares it."""

import dataclasses
import gzip
import pathlib

import numpy as np

from tf_capsules.datasets.novel_viewpoints import novel_viewpoints, rows
from tf_capsules.datasets.pipeline import Dataset, Split
from tf_capsules.datasets.standard import prepared
from tf_capsules.files import reading

_HOME = "https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/"
CLASS_NAMES = ("four-legged animals", "human figures", "airplanes", "trucks", "cars")
_FILES = ("smallnorb-5x46789x9x18x6x2x96x96-training", "smallnorb-5x01235x9x18x6x2x96x96-testing")
_MAGIC = {"u1": 0x1E3D4C55, "<i4": 0x1E3D4C54}


def smallnorb(data_dir=None, download=False):
    """smallNORB: the two cameras' images as the channels of 96x96x2, labelled with the category.

    The splits' arrays also hold `instance`, `elevation` (0 .. 8 for 30 .. 70 degrees), `azimuth` (0 .. 17, times 20
    degrees) and `lighting` (0 .. 5); -1 where they are unknown. The examples stand in a fixed random order.

    Args:
        data_dir: a folder with the six original files `smallnorb-5x...-{dat,cat,info}.mat`, gzipped (`.gz`) or not; or
            one of prepared tensorflow-datasets, as in `load`.
        download: as in `load`; not used with the original files.

    Raises:
        FileNotFoundError: the set is not there, or some of its files are not.
        ValueError: a file is cut off, or not what its name says.
    """
    folder = None if data_dir is None else pathlib.Path(data_dir)
    if folder and any(any(folder.glob(f"{stem}-*.mat*")) for stem in _FILES):
        names = [f"{stem}-{kind}.mat" for stem in _FILES for kind in ("dat", "cat", "info")]
        if missing := ", ".join(name for name in names if _find(folder, name) is None):
            has = f"{folder.resolve()} has some of the original files, but lacks {missing} (or the same with .gz)"
            raise FileNotFoundError(f"data set 'smallnorb': {has}. All six are at {_HOME}")
        train, test = (_read_split(folder, stem) for stem in _FILES)
        return Dataset("smallnorb", train, test, CLASS_NAMES)

    def arrays(columns):
        columns = {name.removeprefix("label_"): column for name, column in columns.items()}
        pair = np.concatenate([columns.pop("image"), columns.pop("image2")], axis=-1)
        return _shuffled({"image": pair, "label": columns.pop("category")} | columns)

    hint = f"Or fetch the six original .mat files from {_HOME}, gzipped or not, and name their folder as data_dir."
    dataset = prepared("smallnorb", "smallnorb", data_dir, download, arrays, "label_category", hint)
    if any((dataset.train.arrays[name] < 0).any() for name in ("elevation", "azimuth", "lighting")):
        note = "a copy of smallNORB whose training pairs lack elevation, azimuth and lighting"
        return dataclasses.replace(dataset, note=note)
    return dataset


def smallnorb_novel_azimuth(data_dir=None, download=False):
    """smallNORB, trained on azimuths 300 to 40 degrees. `familiar`: the test toys at these; test split: at others.

    Source: Hinton, Sabour, Frosst 2018, section 5.1. Arguments and arrays are those of `smallnorb`. A copy whose
    training pairs lack the azimuth gives a ValueError.
    """
    return _novel("smallnorb_novel_azimuth", "azimuth", data_dir, download)


def smallnorb_novel_elevation(data_dir=None, download=False):
    """As `smallnorb_novel_azimuth`, trained on the three lowest elevations, 30 to 40 degrees."""
    return _novel("smallnorb_novel_elevation", "elevation", data_dir, download)


def smallnorb_novel_azimuth_test_toys(data_dir=None, download=False):
    """As `smallnorb_novel_azimuth`, but inside the test toys: training has three of each category's five.

    It is not the paper's division. It needs no pose labels of training pairs. Training: instances 0, 1, 2; test: 3, 5.
    """
    return _novel("smallnorb_novel_azimuth_test_toys", "azimuth", data_dir, download)


def smallnorb_novel_elevation_test_toys(data_dir=None, download=False):
    """As `smallnorb_novel_azimuth_test_toys`, trained on the three lowest elevations, 30 to 40 degrees."""
    return _novel("smallnorb_novel_elevation_test_toys", "elevation", data_dir, download)


def _novel(name, factor, data_dir, download):
    norb = smallnorb(data_dir, download)
    train, test, note = norb.train.arrays, norb.test.arrays, norb.note
    if name.endswith("_test_toys"):
        trained = np.isin(test["instance"], (0, 1, 2))
        train, test = rows(test, trained), rows(test, ~trained)
        note = "; ".join(filter(None, [note, "inside the test toys: 3 of each category for training, 2 for testing"]))
    elif (train[factor] < 0).any():
        has = f"data set {name!r} needs the {factor} of the training pairs, which is unknown (-1) here: it is {note}"
        raise ValueError(f"{has}. {name}_test_toys does without: it trains on three of five test toys a category")
    train, familiar, novel = map(Split, novel_viewpoints(train, test, factor))
    return Dataset(name, train, novel, norb.class_names, note, familiar=familiar)


def _find(folder, name):
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _read(folder, name, dtype, shape):
    """The matrix of a file, gzipped or not, of this type and shape; None in the shape stands for any size.

    Source of the format: the data set's home page. A magic number tells the type. Then come, as int32, the number of
    axes and their sizes (at least three; unused ones are 1), then the values. All are little-endian.
    """
    path = _find(folder, name)
    wanted = ", ".join("N" if size is None else str(size) for size in shape)
    with reading(path, f"is not smallNORB's matrix ({wanted}) of {np.dtype(dtype)}"):
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
        header = np.frombuffer(content, "<i4", 2 + max(3, len(shape)))
        magic, axes, *sizes = header[: 2 + len(shape)].tolist()
        fits = all(size in (None, found) for size, found in zip(shape, sizes, strict=True))
        if (magic, axes) != (_MAGIC[dtype], len(shape)) or not fits:
            raise ValueError(f"it begins with the magic number {magic:#x}, {axes} axes and the sizes {sizes}")
        return np.frombuffer(content, dtype, offset=header.nbytes).reshape(sizes)


def _read_split(folder, stem):
    images = _read(folder, f"{stem}-dat.mat", "u1", (None, 2, 96, 96))
    labels = _read(folder, f"{stem}-cat.mat", "<i4", (len(images),))
    info = _read(folder, f"{stem}-info.mat", "<i4", (len(images), 4))
    columns = dict(zip(("instance", "elevation", "azimuth", "lighting"), info.T, strict=True))
    allowed = {"instance": range(10), "elevation": range(9), "azimuth": range(0, 36, 2), "lighting": range(6)}
    for name, values in ({"category": labels} | columns).items():
        wrong = values[~np.isin(values, allowed.get(name, range(5)))]
        if wrong.size:
            raise ValueError(f"{folder / stem}-...: there is no {name} {wrong[0]} in smallNORB")
    columns["azimuth"] = columns["azimuth"] // 2
    return Split(_shuffled({"image": np.moveaxis(images, 1, -1), "label": labels} | columns))


def _shuffled(columns):
    return rows(columns, np.random.default_rng(0).permutation(len(columns["image"])))
