"""A user's own data set in a NumPy archive."""

import pathlib
import re

import numpy as np

from tf_capsules.files import read_npz, reading

_KEYS = ("x_train", "y_train", "x_test", "y_test")


def load_npz(path, texts=False, class_names=None):
    """Reads a user's own data set from a NumPy archive and checks it.

    Args:
        path: a .npz file with x_train, y_train, x_test, y_test; images (N, H, W) or (N, H, W, C), uint8 or floats in
            [0, 1], or texts (N,), strings; labels (N,) or (N, 1), whole numbers from 0; and, if wanted, class_names,
            strings (classes,).
        texts: whether texts are wanted, not images.
        class_names: names for a file without class_names. None: the class numbers; y_train must have each of them.

    Returns:
        A dict: images (N, H, W, C) uint8 or float32, or texts (N,) str; labels (N,) int32; class_names, a tuple of str.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file, its images, texts or labels are not as above; the message says what was found.

    >>> load_npz("digits.npz")["x_train"].shape
    (1437, 8, 8, 1)
    """
    path = pathlib.Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder, not a .npz file of arrays.")
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    with reading(path, "is not a data set"):
        data = read_npz(path, (*_KEYS, "class_names"), "is not a data set")
        named = data.pop("class_names", None)
        if missing := [key for key in _KEYS if key not in data]:
            raise ValueError(f"it has no {', '.join(missing)}")
        for part in ("train", "test"):
            x, y = data[f"x_{part}"], data[f"y_{part}"]
            data[f"x_{part}"] = _checked_texts(x, part) if texts else _checked_images(x, part)
            data[f"y_{part}"] = _checked_labels(y, len(x), part)
        train, test = data["x_train"].shape[1:], data["x_test"].shape[1:]
        if train != test:
            raise ValueError(f"training images are {train}, test images {test}")
        data["class_names"] = _checked_names(named, class_names, data["y_train"], data["y_test"])
    return data


def _checked_images(x, part):
    if x.ndim == 3:
        x = x[..., None]
    if x.ndim != 4 or 0 in x.shape:
        raise ValueError(f"x_{part} has shape {x.shape}, not (N, H, W) or (N, H, W, C)")
    if np.issubdtype(x.dtype, np.floating):
        x = x.astype(np.float32)
        if not np.isfinite(x).all():
            raise ValueError(f"x_{part} has {np.sum(~np.isfinite(x)):,} values that are not finite")
        if not (x.min() >= 0 and x.max() <= 1):
            raise ValueError(f"x_{part} has floats from {x.min()} to {x.max()}, not in [0, 1]; store 0 .. 255 as uint8")
    elif x.dtype != np.uint8:
        raise ValueError(f"x_{part} is {x.dtype}, not uint8 or float")
    return x


def _checked_texts(x, part):
    if x.ndim != 1 or not len(x) or x.dtype.kind != "U":
        raise ValueError(f"x_{part} is {x.dtype} of shape {x.shape}, not strings (N,)")
    return x


def _checked_labels(y, count, part):
    if y.shape not in {(count,), (count, 1)}:
        raise ValueError(f"y_{part} has shape {y.shape} for {count} examples")
    if not np.issubdtype(y.dtype, np.integer):
        raise ValueError(f"y_{part} is {y.dtype}, not whole numbers from 0")
    if y.min() < 0:
        raise ValueError(f"y_{part} is {y.dtype} from {y.min()}, not whole numbers from 0")
    if y.max() >= 2**31:
        raise ValueError(f"y_{part} has the label {y.max()}; labels are numbers of classes, from 0")
    return y.reshape(-1).astype(np.int32)


def _checked_names(named, known, *labels):
    """The names in the file; without these the known names; without these the numbers of the training labels."""
    train, test = map(np.unique, labels)
    if named is not None:
        if named.ndim != 1 or named.dtype.kind != "U" or len(set(named.tolist())) < max(len(named), 1):
            raise ValueError(f"class_names is {named.dtype} of shape {named.shape}, not different strings (classes,)")
        known = tuple(named.tolist())
        check_class_names(known)
    if known is None:
        if len(train) <= train[-1]:
            has = f"y_train has {len(train)} different labels from {train[0]} to {train[-1]}"
            raise ValueError(f"{has}: number the classes from 0 without gaps, or name them all in an array class_names")
        known = tuple(map(str, range(len(train))))
    if len(known) < 2:
        raise ValueError(f"there is one class, {known[0]!r}; two or more are needed")
    for part, found in (("train", train), ("test", test)):
        if found[-1] >= (count := len(known)):
            raise ValueError(f"y_{part} has the label {found[-1]}; {count} classes have labels 0 to {count - 1}")
    return known


def check_class_names(names):
    """Raises a ValueError for a name that no picture and no SavedModel can hold, as bytes of another encoding are."""
    for name in names:
        if re.search("[\ud800-\udfff]", name):
            raise ValueError(f"the name of a class must be UTF-8; rename the one that is read as {name!a}")
