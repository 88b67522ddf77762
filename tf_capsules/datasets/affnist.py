"""The affNIST protocol of Sabour et al. 2017: trained on MNIST at random places, tested on affine maps of MNIST."""

import math
import pathlib

import numpy as np

from tf_capsules.arguments import positive_int
from tf_capsules.datasets import augment
from tf_capsules.datasets.multimnist import single_digits
from tf_capsules.datasets.pipeline import Dataset, Split
from tf_capsules.files import reading
from tf_capsules.lazy import tf, tnp

_PAD = 6  # 28 + 2 * 6 = 40 pixels, the canvas of affNIST


def expanded_mnist(data_dir=None, download=False, source="mnist"):
    """MNIST on a black canvas of 40x40, each digit moved by integers in [-6, 6] per axis.

    Source: Sabour et al. 2017, section 5.2: the training set of the affNIST experiment, and the "expanded" test set
    on which its training is stopped. In training each epoch draws new places; in evaluation they are
    fixed. `source` is the data set of the digits, padded by 6 whatever its size.
    """
    digits = single_digits(source, data_dir, download)
    steps = ("pad", _PAD), ("shift", _PAD)

    def example(tensors, index, draw):
        return augment.apply(steps, tensors["image"][index], draw, tnp), tensors["label"][index]

    shape = augment.output_shape(steps, digits.image_shape)
    train, test = (Split(split.arrays, None, shape, example) for split in (digits.train, digits.test))
    return Dataset("expanded_mnist", train, test, digits.class_names, digits.note)


def affnist_standin(data_dir=None, download=False, maps_per_digit=32, source="mnist"):
    """A stand-in for affNIST: training as in `expanded_mnist`; test digits under random affine maps, made on the fly.

    A map is a rotation within 20 degrees, a shear within 0.2, a scale of 0.8 to 1.2 per axis and a translation that
    keeps the digit on the canvas, each uniform, as affNIST describes its maps. Interpolation is bilinear. Example i
    shows digit i mod n, so the first n examples show each digit once. The maps are fixed.

    Args:
        data_dir, download: of the digits, as in `load`.
        maps_per_digit: test images a digit; 32 as in affNIST (320,000 images).
        source: the data set of the digits.
    """
    positive_int("maps_per_digit", maps_per_digit)
    expanded = expanded_mnist(data_dir, download, source)
    arrays = expanded.test.arrays
    digits = len(arrays["label"])

    def example(tensors, index, draw):
        image = affine(tensors["image"][index % digits], _PAD, **random_map(draw))
        return image, tensors["label"][index % digits]

    test = Split(arrays, digits * maps_per_digit, expanded.image_shape, example)
    note = f"stand-in for affNIST: affine maps of the test digits of {source}, not the official files"
    return Dataset("affnist_standin", expanded.train, test, expanded.class_names, note)


def random_map(draw):
    """The arguments of `affine` for a map within affNIST's limits."""
    return {
        "angle": draw.uniform(-20.0, 20.0),
        "shear": draw.uniform(-0.2, 0.2),
        "scale": (draw.uniform(0.8, 1.2), draw.uniform(0.8, 1.2)),
        "place": (draw.uniform(0.0, 1.0), draw.uniform(0.0, 1.0)),
    }


def affine(image, pad, angle, shear, scale, place):
    """Scales, shears, rotates and places a digit on a black canvas, (H + 2 pad, W + 2 pad, C) float32 in [0, 1].

    Args:
        image: (H, W, C) uint8; pixels that are not 0 are the digit.
        pad: pixels by which the canvas exceeds the image on every side.
        angle: in degrees, clockwise as the image is seen.
        shear: columns moved right for each row down.
        scale: factors (down, right).
        place: (down, right) in [0, 1]: 0 is the first and 1 the last place with the whole digit on the canvas.
    """
    height, width, _ = image.shape
    size = np.array([height + 2 * pad, width + 2 * pad])
    # (row, column) about the image's centre -> about the canvas' centre, before it is placed
    turn = tf.cast(angle * (math.pi / 180), tf.float32)
    rotate = tf.stack([[tf.cos(turn), tf.sin(turn)], [-tf.sin(turn), tf.cos(turn)]])
    slant = tf.stack([[1.0, 0.0], [tf.cast(shear, tf.float32), 1.0]])
    matrix = rotate @ slant @ tf.linalg.diag(tf.cast(tf.stack(scale), tf.float32))

    centre = np.array([height - 1, width - 1], "float32") / 2
    points = np.indices((height, width), "float32").reshape(2, -1).T - centre
    ink = tf.reshape(tf.reduce_any(image > 0, axis=-1), (-1, 1))
    mapped = tf.where(ink, points @ tf.transpose(matrix), 0.0)  # a black image counts as its centre
    edge = (size - 1) / 2 - 1  # one pixel less, because interpolation spreads the digit
    first, last = -edge - tf.reduce_min(mapped, axis=0), edge - tf.reduce_max(mapped, axis=0)
    move = first + (last - first) * tf.cast(tf.stack(place), tf.float32)

    # The operation takes the inverse map, from the canvas to the image, with the column before the row.
    back = tf.linalg.inv(matrix)
    offset = centre - tf.linalg.matvec(back, (size - 1) / 2 + move)
    transforms = tf.stack([back[1, 1], back[1, 0], offset[1], back[0, 1], back[0, 0], offset[0], 0.0, 0.0])[None]
    images = tf.cast(image, tf.float32)[None] / 255
    options = dict(output_shape=size.astype("int32"), fill_value=0.0, interpolation="BILINEAR", fill_mode="CONSTANT")
    return tf.raw_ops.ImageProjectiveTransformV3(images=images, transforms=transforms, **options)[0]


def affnist(data_dir=None, download=False, mnist_dir=None):
    """affNIST: training as in `expanded_mnist`, the official 320,000 affinely mapped digits for testing.

    `data_dir` is the folder of the official "transformed" files, test.mat or test_batches/*.mat. Fetch them by hand: a
    FileNotFoundError says from where. A ValueError names a file that is no affNIST file. `download` is for MNIST alone.
    `mnist_dir` is the folder of prepared tensorflow-datasets with MNIST; None: `data_dir`, if it has mnist/.
    """
    folder = pathlib.Path(data_dir or ".")
    files = sorted(folder.glob("test.mat")) or sorted(folder.glob("test_batches/*.mat"))
    if not files:
        raise FileNotFoundError(
            f"data set 'affnist': neither test.mat nor test_batches/*.mat in {folder.resolve()}. Fetch the transformed "
            "test set by hand from https://www.cs.toronto.edu/~tijmen/affNIST/, and name its folder as data_dir "
            "(--data-dir); or take 'affnist_standin', made from MNIST."
        )
    if mnist_dir is None and (folder / "mnist").is_dir():
        mnist_dir = folder
    images, labels = (np.concatenate(parts) for parts in zip(*map(_read_mat, files), strict=True))
    expanded = expanded_mnist(mnist_dir, download)
    test = Split({"image": _upright(images, labels, expanded.test.arrays), "label": labels})
    part = "" if len(labels) == 320_000 else f"{len(labels):,} of the 320,000 official test images"
    note = "; ".join(filter(None, (expanded.note, part)))
    return Dataset("affnist", expanded.train, test, expanded.class_names, note)


def _read_mat(path):
    from scipy.io import loadmat

    with reading(path, "is no affNIST file (affNISTdata.image uint8 (1600, N), label_int)"):
        data = loadmat(path, simplify_cells=True)["affNISTdata"]
        columns, labels = data["image"].reshape(1600, -1), np.atleast_1d(data["label_int"])  # one image: a flat array
        if columns.dtype != np.uint8 or columns.shape != (1600, len(labels)) or not set(labels) <= set(range(10)):
            raise ValueError(f"image is {columns.dtype} {columns.shape}, label_int {labels.shape} up to {labels.max()}")
    return columns.T.reshape(-1, 40, 40, 1), labels.astype(np.int32)


def _upright(images, labels, mnist):
    """Transposes the images if that makes the mean digit of each class more like MNIST's."""
    likeness = 0.0
    for digit in np.unique(labels):
        mean = images[labels == digit].mean(0)[..., 0]
        model = np.pad(mnist["image"][mnist["label"] == digit].mean(0)[..., 0], _PAD)
        likeness += ((mean - mean.T) * model).sum()
    return images if likeness >= 0 else images.transpose(0, 2, 1, 3)
