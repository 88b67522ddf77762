"""Batches from arrays in memory, on any Keras backend and without TensorFlow."""

import math
import pathlib
from numbers import Integral, Real

import keras
import numpy as np

from tf_capsules.datasets import augment
from tf_capsules.files import read_npz, reading

_KEYS = ("x_train", "y_train", "x_test", "y_test")


def load_npz(path, texts=False, class_names=None):
    """Reads a user's own data set from a NumPy archive and checks it.

    Args:
        path: a .npz file with x_train, y_train, x_test, y_test; images (N, H, W) or (N, H, W, C), uint8 or floats in
            [0, 1], or texts (N,), strings; labels (N,) or (N, 1), whole numbers from 0; and, if wanted, class_names,
            strings (classes,).
        texts: whether texts are wanted, not images.
        class_names: of a file that does not name its classes; None for their numbers, each of which y_train must have.

    Returns:
        A dict of the arrays: images (N, H, W, C) uint8 or float32, or texts (N,) str; labels (N,) int32; and
        class_names, a tuple of strings.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file, its images, texts or labels are not as above; the message says what was found.

    >>> data = load_npz("digits.npz")
    >>> batches = ArrayBatches(data["x_train"], data["y_train"], 32, training=True)
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    with reading(path, "is not a data set"):
        data = read_npz(path, (*_KEYS, "class_names"), "is not a data set")
        named = data.pop("class_names", None)
        missing = [key for key in _KEYS if key not in data]
        if missing:
            raise ValueError(f"it has no {', '.join(missing)}")
        for part in ("train", "test"):
            x, y = data[f"x_{part}"], data[f"y_{part}"]
            data[f"x_{part}"] = _checked_texts(x, part) if texts else _checked_images(x, part)
            data[f"y_{part}"] = _checked_labels(y, len(x), part)
        if data["x_train"].shape[1:] != data["x_test"].shape[1:]:
            shapes = data["x_train"].shape[1:], data["x_test"].shape[1:]
            raise ValueError(f"training images are {shapes[0]}, test images {shapes[1]}")
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
            raise ValueError(f"x_{part} has {np.sum(~np.isfinite(x)):,} values that are no finite numbers")
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
    return y.reshape(-1).astype(np.int32)


def _checked_names(named, known, *labels):
    """The names in the file; else those that are known; else the numbers of the training labels."""
    train, test = map(np.unique, labels)
    if named is not None:
        if named.ndim != 1 or named.dtype.kind != "U" or len(set(named.tolist())) < max(len(named), 1):
            raise ValueError(f"class_names is {named.dtype} of shape {named.shape}, not different strings (classes,)")
        known = tuple(named.tolist())
    if known is None:
        known = tuple(map(str, range(train[-1] + 1)))
        if len(train) < len(known):
            raise ValueError(
                f"y_train has {len(train)} different labels from {train[0]} to {train[-1]}: number the classes from 0 "
                "without gaps, or name all of them in an array class_names"
            )
    for part, found in (("train", train), ("test", test)):
        if found[-1] >= len(known):
            raise ValueError(f"y_{part} has the label {found[-1]}; of {len(known)} classes they go to {len(known) - 1}")
    return known


class Draw:
    """The random numbers of one example, a pure function of `key`, for instance (seed, epoch, index)."""

    def __init__(self, *key):
        self._random = np.random.default_rng(key)

    def integers(self, low, high):
        return self._random.integers(low, high, endpoint=True)

    def uniform(self, low, high):
        return np.float32(self._random.uniform(low, high))


class ShuffledBatches(keras.utils.PyDataset):
    """What makes batches of examples: their order, the short or filled last batch, weights and mixup.

    A subclass defines `_inputs(positions, passes, own)`, the float32 inputs (an array or a dict of them) of a batch of
    examples at those positions, each in a pass over all of them; of these it returns the slice `own`. For the arguments
    see `Split.batches`; `labels` are whole numbers (N,).
    """

    def __init__(self, labels, batch_size, training, seed, epochs, initial_epoch, limit, epoch_size, pad, mixup, part):
        super().__init__()
        self._own = own_rows(batch_size, part, pad)
        check_stream(batch_size, limit, seed, epochs, initial_epoch, epoch_size, training)
        check_mixup(mixup, training, labels)
        self._labels, self._batch_size, self._examples = labels, batch_size, min(len(labels), limit or len(labels))
        self._size = epoch_size or self._examples
        self._training, self._seed, self._pad, self._mixup = training, seed, pad, mixup
        self._epochs, self._initial_epoch = epochs, initial_epoch
        self.steps = -(-self._size // batch_size)

    def __len__(self):
        return self.steps * (self._epochs - self._initial_epoch)

    def __getitem__(self, item):
        if not 0 <= item < len(self):
            raise IndexError(f"batch {item} of {len(self)}")
        epoch, step = self._initial_epoch + item // self.steps, item % self.steps
        positions = np.arange(step * self._batch_size, (step + 1) * self._batch_size)
        real = positions < self._size
        positions = positions % self._size if self._pad else positions[real]
        passes = np.full_like(positions, epoch)
        if self._training:
            passes, places = np.divmod(epoch * self._size + positions, self._examples)
            for number in np.unique(passes):
                order = np.random.default_rng((self._seed, number)).permutation(self._examples)
                positions[passes == number] = order[places[passes == number]]
        if not self._mixup:
            x, y = self._inputs(positions, passes, self._own), self._labels[positions[self._own]].astype(np.int32)
        else:
            x, y = self._inputs(positions, passes, slice(None)), self._labels[positions].astype(np.int32)
            # Order and examples draw from keys of two and three numbers, so four are none of theirs.
            x, y = self._mixed(np.random.default_rng((self._seed, epoch, step, 1)), x, y, real.sum())
            x, y = keras.tree.map_structure(lambda values: values[self._own], (x, y))
        if not self._pad:
            return x, y
        share = real.mean() if self._training else self._size / (self.steps * self._batch_size)
        return x, y, (real / share).astype(np.float32)[self._own]

    def _mixed(self, random, x, y, real):
        alpha, classes = self._mixup
        share = random.beta(alpha, alpha, self._batch_size).astype(np.float32)[: len(y)]
        partner = np.concatenate([random.permutation(real), np.arange(real, len(y))])

        def mix(values):  # so that what is equal in both stays exactly that
            return values + share.reshape(-1, *[1] * (values.ndim - 1)) * (values[partner] - values)

        label = mix(np.eye(classes, dtype=np.float32)[y])
        return keras.tree.map_structure(mix, x), {"label": label, "unmixed": y}


class ArrayBatches(ShuffledBatches):
    """The batches (x, y) or (x, y, weights) of `Split.batches`, from NumPy arrays.

    Order and augmentation are a pure function of (seed, epoch, index), though not the same one as in `Split.batches`.
    Item i is batch `i % steps` of epoch `initial_epoch + i // steps`, `steps` being the batches of an epoch.

    Args:
        x: images (N, H, W, C), uint8 or float32 in [0, 1].
        y: labels (N,).
        batch_size, preprocess, training, seed, epochs, initial_epoch, limit, epoch_size, pad, mixup, crop, part: as in
            `Split.batches`.

    Raises:
        ValueError: for arguments out of their range.

    >>> batches = ArrayBatches(x, y, 32, preprocess=(("shift", 2),), training=True, epochs=5)
    >>> model.fit(batches, steps_per_epoch=batches.steps, epochs=5)
    """

    def __init__(
        self,
        x,
        y,
        batch_size,
        *,
        preprocess=(),
        training=False,
        seed=0,
        epochs=1,
        initial_epoch=0,
        limit=None,
        epoch_size=None,
        pad=False,
        mixup=None,
        crop=None,
        part=None,
    ):
        if np.ndim(x) != 4 or len(x) != len(y) or not len(x):
            raise ValueError(f"need images (N, H, W, C) and N labels, not {np.shape(x)} and {np.shape(y)}")
        super().__init__(y, batch_size, training, seed, epochs, initial_epoch, limit, epoch_size, pad, mixup, part)
        self._preprocess = augment.check(preprocess) if training else augment.in_evaluation(preprocess)
        augment.output_shape(self._preprocess, x.shape[1:])
        check_crop(crop, training, self._preprocess)
        self._x, self._crop = x, crop

    def _inputs(self, positions, passes, own):
        positions, passes = positions[own], passes[own]
        x = self._x[positions]
        x = x.astype(np.float32) / np.float32(255 if x.dtype == np.uint8 else 1)
        if self._preprocess:
            draws = [self._draw(number, i) for number, i in zip(passes, positions, strict=True)]
            x = np.stack([augment.apply(self._preprocess, *pair) for pair in zip(x, draws, strict=True)])
        return x

    def _draw(self, epoch, index):
        if isinstance(self._crop, str):
            return augment.FixedCrop(self._crop)
        if self._crop is not None:
            return Draw(self._crop, index, 0, 2)  # four numbers, the last one not that of mixup
        return Draw(self._seed, epoch, index) if self._training else None


def check_stream(batch_size, limit=None, seed=0, epochs=1, initial_epoch=0, epoch_size=None, training=True):
    """Raises a ValueError where these arguments of `Split.batches` and `ArrayBatches` are out of their range."""
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, not {batch_size!r}")
    if not 0 <= seed < 2**31:
        raise ValueError(f"seed must be in 0 .. 2**31 - 1, not {seed!r}")
    if not 0 <= initial_epoch < epochs < 2**20:
        raise ValueError(f"epochs {initial_epoch!r} to {epochs!r}: need 0 <= initial_epoch < epochs < 2**20")
    if limit is not None and limit < 1:
        raise ValueError(f"limit is the number of examples to use, at least 1, not {limit!r}")
    if epoch_size is not None and epoch_size < 1:
        raise ValueError(f"epoch_size is the number of examples in an epoch, at least 1, not {epoch_size!r}")
    if epoch_size is not None and not training:
        raise ValueError(f"epoch_size {epoch_size!r} is for training; in evaluation all examples are used")


def own_rows(batch_size, part, pad):
    """The rows of a batch that belong to a `part` of `Split.batches`, as a slice.

    Raises:
        ValueError: no such part, batches that can't be divided evenly, or a last batch that `pad` does not fill.
    """
    if part is None:
        return slice(None)
    index, count = part
    if not 0 <= index < count or batch_size % count or not pad:
        raise ValueError(
            f"part {part!r} is (index, count), of batches of a multiple of count and with pad. "
            f"Received: batch_size={batch_size}, pad={pad}"
        )
    size = batch_size // count
    return slice(index * size, (index + 1) * size)


def check_mixup(mixup, training, labels):
    """Raises a ValueError where the `mixup` of `Split.batches` and `ArrayBatches` can't be done with these labels."""
    if mixup is None:
        return
    if not isinstance(mixup, (list, tuple)) or len(mixup) != 2:
        raise ValueError(f"mixup is a pair (alpha, classes), for instance (0.2, 5), not {mixup!r}")
    alpha, classes = mixup
    if isinstance(alpha, bool) or not isinstance(alpha, Real) or not 0 < alpha < math.inf:
        raise ValueError(f"alpha of mixup must be a number above 0, not {alpha!r}")
    if isinstance(classes, bool) or not isinstance(classes, Integral) or not np.max(labels) < classes:
        raise ValueError(f"mixup of labels up to {np.max(labels)} needs more classes than that, not {classes!r}")
    if not training:
        raise ValueError(f"mixup {mixup!r} is for training; in evaluation images are not mixed")


def check_crop(crop, training, steps):
    """Raises a ValueError where the `crop` of `Split.batches` and `ArrayBatches` can't be done with these steps."""
    if crop is None:
        return
    numbered = isinstance(crop, Integral) and not isinstance(crop, bool) and 0 <= crop < 2**31
    if not numbered and crop not in augment.FIXED_CROPS:
        raise ValueError(f"crop is a whole number from 0 to 2**31 - 1 or one of {augment.FIXED_CROPS}, not {crop!r}")
    if training:
        raise ValueError(f"crop {crop!r} is for evaluation; in training each epoch has random crops of its own")
    if not any(step[0] == "crop" for step in steps):
        raise ValueError(f'crops need a preprocess step "crop"; there are {steps!r}')
