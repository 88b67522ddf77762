"""A user's own images: one folder a class."""

import collections
import pathlib
import warnings

import numpy as np

from tf_capsules.arguments import is_whole
from tf_capsules.datasets.npz import check_class_names
from tf_capsules.datasets.pipeline import Dataset, Split
from tf_capsules.files import reading

_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")


def folder(data_dir=None, download=False, image_size=32, channels=3):
    """Images from folders named after their classes, `PATH/cat/1.png`, `PATH/dog/2.jpg`, ...

    If PATH has the folders `train` and `test`, each holds the class folders of one split; a warning names other folders
    beside them. Otherwise 20% of each class form the test split (seed 0), which changes when files are added, removed
    or renamed. Images are turned upright, resized to `image_size` without keeping their proportions, and put into a
    fixed random order. Of an animation, the first picture is used. What is transparent becomes white. Files with other
    suffixes than png, jpg, jpeg, bmp, gif and webp, and folders in a class folder, are left out; a warning counts them.
    Names that begin with a dot are left out without a warning.

    Args:
        data_dir: PATH.
        download: not used.
        image_size: pixels, or a pair (height, width).
        channels: 3 (RGB) or 1 (grey).

    Raises:
        FileNotFoundError: no such folder.
        ValueError: fewer than two class folders, a class without images or with too few to split, splits of different
            classes, files that cannot be read as an image (it names the first ten), or a bad option.

    >>> pets = load("folder", "pets", image_size=(48, 64))
    """
    from sklearn.model_selection import train_test_split

    size = tuple(image_size) if isinstance(image_size, (tuple, list)) else (image_size, image_size)
    if len(size) != 2 or not all(is_whole(side, 1) for side in size):
        raise ValueError(f"image_size must be a number of pixels or a pair (height, width), not {image_size!r}")
    if channels not in (1, 3):
        raise ValueError(f"channels must be 1 (grey) or 3 (RGB), not {channels!r}")
    if data_dir is None:
        raise ValueError("data set 'folder' needs data_dir (--data-dir): the folder that holds one folder a class")
    root = pathlib.Path(data_dir)
    if not root.is_dir():
        raise FileNotFoundError(f"no such folder: {root}")

    parts = root / "train", root / "test"
    if all(part.is_dir() for part in parts):
        train, test = map(_files, parts)
        if other := sorted({path.name for path in _folders(root)} - {"train", "test"}):
            warnings.warn(f"{root}: left out the folders {', '.join(other)}; there are train and test")
        if list(train) != list(test):
            raise ValueError(f"{parts[0]} has the classes {', '.join(train)}, but {parts[1]} has {', '.join(test)}")
        splits = [_labelled(part) for part in (train, test)]
        splits = [[split[i] for i in np.random.default_rng(0).permutation(len(split))] for split in splits]
    else:
        train = _files(root)
        pairs = _labelled(train)
        fewest, labels = min(train, key=lambda name: len(train[name])), [label for _, label in pairs]
        splits = [pairs, []]
        if len(train[fewest]) > 1 and len(pairs) // 5 >= len(train):
            splits = train_test_split(pairs, test_size=0.2, stratify=labels, random_state=0)
        if {label for _, label in splits[1]} != set(labels):
            has = f"{root} has {len(pairs)} images in {len(train)} classes, {len(train[fewest])} in {fewest!r}: too few"
            raise ValueError(f"{has} to keep 20% of each class for testing; add images, or folders train and test")

    images = _read([file for split in splits for file, _ in split], size, channels)
    labels = np.array([label for split in splits for _, label in split])
    parts = slice(None, len(splits[0])), slice(len(splits[0]), None)
    return Dataset("folder", *(Split({"image": images[part], "label": labels[part]}) for part in parts), tuple(train))


def _folders(root):
    """The folders within, without hidden ones and what a Mac puts beside them in a zip archive."""
    found = (path for path in root.iterdir() if path.is_dir())
    return sorted(path for path in found if not path.name.startswith(".") and path.name != "__MACOSX")


def _files(root):
    """Class name -> its image files, both in order."""
    classes = _folders(root)
    check_class_names(path.name for path in classes)
    if len(classes) < 2:
        found = ", ".join(path.name for path in classes) or "none"
        raise ValueError(f"{root} must hold one folder for each class, two or more; found {found}")
    found = {path.name: sorted(file for file in path.iterdir() if not file.name.startswith(".")) for path in classes}
    files = {name: [file for file in inside if _is_image(file)] for name, inside in found.items()}
    for name, images in files.items():
        if not images:
            other = _counted(found[name])
            what = f"no images ({', '.join(_SUFFIXES)}){other and f', but {other}'}"
            raise ValueError(f"class folder {root / name} holds {what}")
    if other := _counted(file for inside in found.values() for file in inside if not _is_image(file)):
        warnings.warn(f"{root}: left out {other}; images are {', '.join(_SUFFIXES)}")
    return files


def _labelled(classes):
    return [(file, label) for label, files in enumerate(classes.values()) for file in files]


def _is_image(file):
    return file.suffix.lower() in _SUFFIXES and file.is_file()


def _counted(files):
    """For instance "2 folders, 3 .tif": how many there are of each kind."""
    kinds = collections.Counter("folders" if file.is_dir() else file.suffix.lower() or "others" for file in files)
    return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))


def upright(image, mode):
    """A Pillow image in this mode, turned by its EXIF data, on white where it is transparent."""
    from PIL import Image, ImageOps

    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):  # 16 bits, which `convert` would cut off
        image = Image.fromarray(np.clip(np.rint(np.asarray(image) / 257), 0, 255).astype(np.uint8))
    if image.has_transparency_data:  # what lies under a transparent pixel is of no colour that anyone chose
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert(mode)


def _read(files, size, channels):
    from PIL import Image

    images, broken = np.empty((len(files), *size, channels), np.uint8), []
    for number, file in enumerate(files):
        try:
            with reading(file, "cannot be read as an image"), Image.open(file) as image:
                image = upright(image, "RGB" if channels == 3 else "L")
                image = image.resize(size[::-1], Image.Resampling.BILINEAR)
            images[number] = np.asarray(image).reshape(*size, channels)
        except ValueError as error:
            broken.append(str(error))
    if broken:
        more = [f"and {len(broken) - 10} more"] if len(broken) > 10 else []
        raise ValueError("; ".join(broken[:10] + more))
    return images
