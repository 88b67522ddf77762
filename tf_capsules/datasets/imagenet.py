"""ImageNet of 2012 (Russakovsky et al. 2015), whole or a part of its classes, as pictures or as the boxes in them."""

import contextlib
import csv
import hashlib
import math
import pathlib

import keras
import numpy as np

from tf_capsules.arguments import positive_int
from tf_capsules.datasets.encoded import decode_image
from tf_capsules.datasets.pipeline import Dataset, Split
from tf_capsules.files import read_npz, reading, replacing, writable
from tf_capsules.lazy import tf, tfds


def imagenet(data_dir=None, download=False, image_size=256, class_list=None, box_file=None):
    """The training and the validation split of ImageNet, as tensorflow-datasets' `imagenet2012` prepares them.

    Pictures stay on the disk and are read by their number, so the set has to be prepared with
    `file_format="array_record"`. The first load reads the names of all files and keeps them in ~/.cache/tf_capsules;
    this takes as long as reading the set once. Without boxes, an example is the central square of a picture. With
    boxes, it is the smallest square around the centre of a box that holds the box; it is black outside the picture.
    Examples are resized (bilinear, antialiased).

    Args:
        data_dir: the folder of prepared tensorflow-datasets.
        download: prepare the set if it is absent. Its archives must lie in `data_dir`/downloads/manual; image-net.org
            gives them to those who register.
        image_size: side of the images in pixels.
        class_list: a text file of the classes to keep, two or more of the set's 1,000: a WordNet number such as
            n01440764 a line. They are numbered in the order of the file. None: all.
        box_file: a CSV file without header: file name, left, top, right, bottom, the last four as shares of width and
            height (the form of TensorFlow's `process_bounding_boxes.py`). Each box is an example; pictures without a
            box are left out. None: whole pictures.

    Raises:
        FileNotFoundError: the set, or one of the files, is not there.
        ValueError: the set is not prepared for random access; the class list names an unknown class; a line of the box
            file is no box; a class has no example in one of the splits.

    >>> birds = load("imagenet", image_size=128, class_list="birds.txt")
    """
    return _load("imagenet", data_dir, download, image_size, class_list, box_file)


def h_imagenet(data_dir=None, download=False, image_size=156, class_list=None, box_file=None):
    """The 200 classes in which a ResNet-18 is worst, 255,725 boxes for training and 17,101 for testing.

    Source: Li et al. 2018, section 5.2. `class_list` must be given: the authors keep this list beside their code. The
    boxes are those of ImageNet. Neither comes with tensorflow-datasets. Without a box file, examples are whole
    pictures, and figures can't be compared with the paper's. For arguments and errors see `imagenet`.
    """
    if class_list is None:
        numbers = "the 200 WordNet numbers that Li et al. 2018 list beside their code, one a line"
        raise ValueError(f"data set 'h_imagenet' needs class_list (--class-list): a file with {numbers}")
    return _load("h_imagenet", data_dir, download, image_size, class_list, box_file)


def _load(name, data_dir, download, image_size, class_list, box_file):
    positive_int("image_size", image_size)
    # These files are read before the index, which takes long.
    for what, file in (("class list", class_list), ("box file", box_file)):
        if file is not None and not pathlib.Path(file).is_file():
            raise FileNotFoundError(f"{what} {file}: there is no such file.")
    kept = None if class_list is None else _classes(pathlib.Path(class_list))
    boxes = None if box_file is None else _boxes(pathlib.Path(box_file))
    sources, names = _sources(name, data_dir, download)
    kept = names if kept is None else kept
    if unknown := sorted(set(kept) - set(names)):
        first = f"{unknown[0]!r} is no class of ImageNet 2012, whose first is {names[0]}"
        raise ValueError(f"{class_list} is no class list: {first}")
    label_of = np.full(len(names), -1)
    label_of[[names.index(one) for one in kept]] = np.arange(len(kept))
    train, test = (_split(*source, label_of, kept, boxes, image_size, part) for part, source in sources.items())
    part = "" if class_list is None else f"{len(kept)} of {len(names):,} classes, "
    return Dataset(name, train, test, tuple(kept), part + ("whole pictures" if boxes is None else "boxes"))


def _sources(name, data_dir, download):
    """Split name -> (random access to its encoded pictures, its index), and the names of all classes."""
    with reading(data_dir or "the folder of tensorflow-datasets", "holds no sound copy of ImageNet"):
        builder = tfds.builder("imagenet2012", data_dir=data_dir)
    folder = pathlib.Path(builder.data_path)
    options = f"data_dir={str(folder.parents[1])!r}, file_format='array_record'"
    how = f"tensorflow_datasets.builder('imagenet2012', {options}).download_and_prepare()"
    if download and not folder.exists():
        builder = tfds.builder("imagenet2012", data_dir=data_dir, file_format="array_record")
        with contextlib.suppress(AssertionError):  # its archives can't be downloaded
            builder.download_and_prepare()
    if not folder.exists():
        raise FileNotFoundError(
            f"data set {name!r} is not in {folder}. Put the archives of ILSVRC 2012, which image-net.org gives to "
            f"those who register, into {folder.parents[1] / 'downloads' / 'manual'} and run {how}, or load it with "
            "download=True (on the command line: --download)."
        )
    sources = {}
    for part in ("train", "validation"):
        try:
            source = builder.as_data_source(part, decoders={"image": tfds.decode.SkipDecoding()})
        except NotImplementedError as error:
            raise ValueError(
                f"{folder} is prepared as {builder.info.file_format.value}, whose pictures can't be read by their "
                f"number. Move it away and run {how}"
            ) from error
        sources[part] = source, _index(source, folder, part)
    return sources, list(builder.info.features["label"].names)


def _index(source, folder, part):
    """The label and the file name of each picture; read once, then kept."""
    stat = (folder / "dataset_info.json").stat()
    key = hashlib.sha256(f"{folder.resolve()} {stat.st_mtime_ns} {stat.st_size} {part}".encode()).hexdigest()[:16]
    file = pathlib.Path.home() / ".cache" / "tf_capsules" / f"imagenet_{part}_{key}.npz"
    if not file.exists():
        writable(file)  # before the whole set is read
        labels, names = np.zeros(len(source), np.int16), []
        progress = keras.utils.Progbar(len(source), unit_name="file name")
        for start in range(0, len(source), 1000):
            chunk = source.__getitems__(range(start, min(start + 1000, len(source))))
            labels[start : start + len(chunk)] = [example["label"] for example in chunk]
            names += [bytes(example["file_name"]) for example in chunk]
            progress.update(start + len(chunk))
        with replacing(file) as unfinished:
            np.savez_compressed(unfinished, labels=labels, names=np.array(names))
    arrays = read_npz(file, ("labels", "names"), "is a damaged cache, which can be removed")
    return arrays["labels"], arrays["names"]


def _split(source, index, label_of, classes, boxes, image_size, part):
    labels, names = index
    number = np.flatnonzero(label_of[labels] >= 0)
    if boxes is not None:
        found = [(picture, box) for picture in number for box in boxes.get(names[picture].decode(), ())]
        number = np.array([picture for picture, _ in found], int)
        box = np.array([box for _, box in found], np.float32).reshape(-1, 4)
    arrays = {"label": label_of[labels[number]], "number": number} | ({} if boxes is None else {"box": box})
    empty = np.setdiff1d(np.arange(len(classes)), arrays["label"])
    if empty.size:
        what = "pictures" if boxes is None else "boxes"
        raise ValueError(f"the {part} split has no {what} of {empty.size} classes, the first is {classes[empty[0]]}")

    def read(picture):
        return bytes(source[int(picture)]["image"])

    def example(tensors, index, draw):
        file = tf.numpy_function(read, [tensors["number"][index]], tf.string)
        picture = tf.ensure_shape(decode_image(tf.ensure_shape(file, ()), 3), (None, None, 3))
        size = tf.shape(picture)[:2]
        if boxes is None:
            side = tf.reduce_min(size)
            top, left = tf.unstack((size - side) // 2)
        else:
            left, top, right, bottom = tf.unstack(tensors["box"][index] * tf.cast(tf.tile(size[::-1], [2]), tf.float32))
            side = tf.cast(tf.math.ceil(tf.maximum(tf.maximum(right - left, bottom - top), 1)), tf.int32)
            top = tf.cast(tf.round((top + bottom) / 2), tf.int32) - side // 2
            left = tf.cast(tf.round((left + right) / 2), tf.int32) - side // 2
        image = tf.image.resize(_square(picture, top, left, side), (image_size, image_size), antialias=True)
        return image / 255, tensors["label"][index]

    return Split(arrays, None, (image_size, image_size, 3), example)


def _square(picture, top, left, side):
    """A square window of a picture; black outside the picture."""
    size = tf.shape(picture)[:2]
    start = tf.stack([top, left])
    first, last = tf.maximum(start, 0), tf.minimum(start + side, size)
    inside = picture[first[0] : last[0], first[1] : last[1]]
    before, after = first - start, start + side - last
    return tf.pad(inside, [[before[0], after[0]], [before[1], after[1]], [0, 0]])


def _classes(file):
    with reading(file, "is no class list"):
        kept = file.read_text(encoding="utf-8").split()
        if len(set(kept)) != len(kept) or len(kept) < 2:
            raise ValueError(f"it must name two classes or more, each once. It has {len(kept)} lines.")
    return kept


def _boxes(file):
    """File name -> its boxes (left, top, right, bottom), shares of width and height."""
    boxes = {}
    with reading(file, "is no box file"), open(file, newline="", encoding="utf-8") as lines:
        for number, line in enumerate(csv.reader(lines), 1):
            try:
                name, *box = line
                left, top, right, bottom = map(float, box)
            except ValueError:
                left = math.nan
            if not (0 <= left < right <= 1 and 0 <= top < bottom <= 1):
                expected = "file name, left, top, right, bottom, the last four as shares of width and height"
                raise ValueError(f"line {number}: {','.join(line)!r} is not {expected}")
            boxes.setdefault(name, []).append((left, top, right, bottom))
    return boxes
