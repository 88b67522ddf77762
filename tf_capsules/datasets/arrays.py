"""Batches from arrays in memory, on any Keras backend and without TensorFlow."""

import copy
import functools

import keras
import numpy as np

from tf_capsules.arguments import is_whole
from tf_capsules.datasets import augment
from tf_capsules.datasets.batching import Batching
from tf_capsules.datasets.draws import ArrayDraw


@functools.lru_cache(maxsize=2)  # a batch may reach into the next pass
def _order(seed, number, examples):
    """The order of the examples in one pass over all of them."""
    return np.random.default_rng((seed, number)).permutation(examples)


class ShuffledBatches(keras.utils.PyDataset):
    """Base class of batches in memory: order of the examples, short or filled last batch, weights and mixup.

    A subclass defines `_inputs(positions, passes, own)`: the float32 inputs of a batch, an array or a dict of arrays.
    `positions` are the numbers of its examples, `passes` the pass over the data that each belongs to. Only the rows
    `own` are returned.

    Give `shuffle=False` to `fit`: by default Keras shuffles the batches of all epochs together.
    """

    def __init__(self, labels, batch_size, **batching):
        super().__init__()
        self._labels, self.batching = np.asarray(labels), Batching(len(labels), batch_size, **batching)
        self.batching.check_labels(self._labels)
        self.steps, self._function = self.batching.steps, None  # steps in an epoch

    def map(self, function):
        """The same batches with a function applied to the parts of each."""
        mapped = copy.copy(self)
        mapped._function = function
        return mapped

    def __len__(self):
        return self.batching.batches

    def __getitem__(self, item):
        if not 0 <= item < len(self):
            raise IndexError(f"batch {item} of {len(self)}")
        this, own = self.batching, self.batching.rows
        epoch, step = this.initial_epoch + item // this.steps, item % this.steps
        places = np.arange(step * this.batch_size, (step + 1) * this.batch_size)
        real = places < this.size
        positions, passes = this.order(epoch, places if this.pad else places[real])
        for number in np.unique(passes) if this.training else ():
            positions[passes == number] = _order(this.seed, number, this.examples)[positions[passes == number]]
        made = slice(None) if this.mixup else own
        x, y = self._inputs(positions, passes, made), self._labels[positions[made]].astype(np.int32)
        if this.mixup:
            # NumPy fills keys up with zeros. The last number keeps this one apart from those of order and examples.
            x, y = self._mixed(np.random.default_rng((this.seed, epoch, step, 1)), x, y, real.sum())
            x, y = keras.tree.map_structure(lambda values: values[own], (x, y))
        weights = ((real * this.shares(real.sum())).astype(np.float32)[own],) if this.pad else ()
        return self._function(x, y, *weights) if self._function else (x, y, *weights)

    def _mixed(self, random, x, y, real):
        alpha, classes = self.batching.mixup
        share = random.beta(alpha, alpha, self.batching.batch_size).astype(np.float32)[: len(y)]
        partner = np.concatenate([random.permutation(real), np.arange(real, len(y))])

        def mix(values):  # in this form, values that are equal in both stay exactly equal
            return values + share.reshape(-1, *[1] * (values.ndim - 1)) * (values[partner] - values)

        return keras.tree.map_structure(mix, x), {"label": mix(np.eye(classes, dtype=np.float32)[y]), "unmixed": y}


class ArrayBatches(ShuffledBatches):
    """The batches (x, y) or (x, y, weights) of `Split.batches`, from NumPy arrays.

    Order and augmentation are a pure function of (seed, epoch, index), though not the same one as in `Split.batches`.
    Item i is batch `i % steps` of epoch `initial_epoch + i // steps`; `steps` is the number of batches in an epoch.

    Args:
        x: images (N, H, W, C), uint8 or float32 in [0, 1].
        y: labels (N,).
        batch_size, batching: options and errors of `Batching`.
        preprocess: steps of `tf_capsules.datasets.augment`.

    >>> batches = ArrayBatches(x, y, 32, preprocess=(("shift", 2),), training=True, epochs=5)
    >>> model.fit(batches, steps_per_epoch=batches.steps, epochs=5, shuffle=False)
    """

    def __init__(self, x, y, batch_size, *, preprocess=(), **batching):
        if np.ndim(x) != 4 or len(x) != len(y) or not len(x):
            raise ValueError(f"need images (N, H, W, C) and N labels, not {np.shape(x)} and {np.shape(y)}")
        x = np.asarray(x)
        if x.dtype != np.uint8 and (x.dtype.kind != "f" or not (x.min() >= 0 and x.max() <= 1)):
            raise ValueError(f"images are uint8 or floats in [0, 1], not {x.dtype} from {x.min()} to {x.max()}")
        super().__init__(y, batch_size, **batching)
        self._x, self._preprocess = x, self.batching.check_steps(preprocess)
        augment.output_shape(self._preprocess, x.shape[1:])

    def _inputs(self, positions, passes, own):
        positions, passes = positions[own], passes[own]
        x = self._x[positions].astype(np.float32) / np.float32(255 if self._x.dtype == np.uint8 else 1)
        if self._preprocess:
            draws = [self._draw(number, i) for number, i in zip(passes, positions, strict=True)]
            x = np.stack([augment.apply(self._preprocess, *pair) for pair in zip(x, draws, strict=True)])
        return x

    def _draw(self, epoch, index):
        if self.batching.training:
            return ArrayDraw(self.batching.seed, epoch, index)
        if is_whole(crop := self.batching.crop):
            return ArrayDraw(crop, index, 0, 2)  # four numbers; the last one differs from mixup's
        return augment.FixedCrop(crop or "centre")
