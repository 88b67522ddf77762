"""Splits and data sets: arrays in memory, and tf.data streams of batches that are a pure function of seed and epoch."""

import dataclasses
import functools

import numpy as np

from tf_capsules.arguments import is_whole
from tf_capsules.datasets import augment
from tf_capsules.datasets.batching import Batching
from tf_capsules.datasets.draws import TensorDraw
from tf_capsules.lazy import tf, tnp

# Random numbers of generated evaluation sets (pairs of digits, affine maps) depend on this key and the example's index
# alone, so that every evaluation sees the same images. Training examples have keys from 0 to 2**51, mixed batches
# other negative keys, random crops in evaluation keys from 2**52 on.
_FIXED_KEY = -1
_CROP_KEY = 2**52


class Split:
    """One part of a data set. Any of its examples can be made from its index.

    Args:
        arrays: aligned NumPy arrays, among them `label` (N,) integers and, unless `example` needs none, `image`
            (N, H, W, C) uint8.
        size: number of examples in an epoch; N unless `example` is given.
        image_shape: (H, W, C) of the images that come out; that of the arrays unless `example` is given.
        example: a function `example(tensors, index, draw)` that makes the examples of a generated set. It gets the
            arrays as tensors (whole numbers as int32), the index (int64, shape ()) and a `TensorDraw`. It returns an
            image (H, W, C), uint8 or float32 in [0, 1], and a target: a label, or a dict of `label`, `parts` and
            `part_labels` (see `batches`).

    >>> split = Split({"image": images, "label": labels})
    >>> for x, y in split.batches(32, training=True, seed=1):
    ...     ...
    """

    def __init__(self, arrays, size=None, image_shape=None, example=None):
        self.arrays = {name: np.asarray(array) for name, array in arrays.items()}
        self.example = example
        lengths = {name: len(array) for name, array in self.arrays.items()}
        needed = {"label"} if example and image_shape is not None else {"image", "label"}
        if not needed <= set(lengths) or len(set(lengths.values())) != 1 or not lengths["label"]:
            needed = " and ".join(map(repr, sorted(needed)))
            raise ValueError(f"a split needs arrays {needed} of one length, 1 or more; got {lengths}")
        image = self.arrays.get("image", np.zeros((0, 0, 0, 0), np.uint8))
        if image.ndim != 4 or image.dtype != np.uint8:
            raise ValueError(f"images of a split are (N, H, W, C) uint8, not {image.shape} {image.dtype}")
        self.size = lengths["label"] if size is None else size
        self.image_shape = self.arrays["image"].shape[1:] if image_shape is None else image_shape

    @functools.cached_property
    def _tensors(self):
        kept = {"image"} | {name for name, array in self.arrays.items() if array.dtype.kind == "f"} - {"label"}
        arrays = {name: array if name in kept else array.astype(np.int32) for name, array in self.arrays.items()}
        with tf.device("CPU"):  # tf.data runs there; on a GPU every batch would be copied back
            return {name: tf.constant(array) for name, array in arrays.items()}

    def steps(self, batch_size, limit=None, epoch_size=None):
        """Number of batches in an epoch of training. Arguments: see `Batching`."""
        return Batching(self.size, batch_size, training=True, limit=limit, epoch_size=epoch_size).steps

    def batches(self, batch_size, *, preprocess=(), **batching):
        """A `tf.data.Dataset` of batches (x, y), or (x, y, weights) with `pad`.

        x is float32 (batch, H, W, C), scaled to [0, 1] and then preprocessed. y is the label, int32 (batch,). If images
        hold several digits, y is a dict: `label` float32 (batch, classes) with a one for each digit's class, `parts`
        float32 (batch, K, H, W, C), the single digits, and `part_labels` int32 (batch, K). With `mixup` y is a dict:
        `label` float32 (batch, classes), the mixed one-hot labels, and `unmixed` int32 (batch,), the labels of the
        images before they were mixed.

        Args:
            batch_size, batching: options and errors of `Batching`. A ValueError is also raised, before data are read,
                for mixup where an image has several targets, and for `crop` without a step "crop".
            preprocess: steps of `tf_capsules.datasets.augment`.
        """
        this = Batching(self.size, batch_size, **batching)
        preprocess = this.check_steps(preprocess)
        shape = augment.output_shape(preprocess, self.image_shape)
        this.check_labels(self.arrays["label"])
        steps, size, own, mixup, tensors = this.steps, this.size, this.rows, this.mixup, self._tensors
        one = functools.partial(self._one, preprocess, this)
        signature = _signature(one, shape)
        if mixup and isinstance(signature[1], dict):
            raise ValueError(f"mixup {mixup!r} takes one label an image; here an image has {', '.join(signature[1])}")

        @tf.autograph.experimental.do_not_convert
        def batch(step):
            epoch, start = this.initial_epoch + step // steps, step % steps * batch_size
            positions = start + tf.range(batch_size, dtype=tf.int64)
            if not this.pad and size % batch_size:
                positions = positions[: size - start]
            index, passes = this.order(epoch, positions)
            key = tf.fill(tf.shape(positions), np.int64(_FIXED_KEY))
            if this.training:
                index, key = _shuffled(index, this.seed, passes, this.examples), np.int64(this.seed) * 2**20 + passes
            if not mixup:
                index, key = index[own], key[own]
            if self.example is None and not preprocess:
                x, y = _unit(tf.gather(tensors["image"], index)), tf.gather(tensors["label"], index)
            else:
                x, y = tf.map_fn(lambda pair: one(*pair), (key, index), fn_output_signature=signature)
            if mixup:
                key = -2 - (np.int64(this.seed) * 2**20 + epoch)
                x, y = _mixed(x, y, key, step % steps, batch_size, positions < size, float(mixup[0]), mixup[1])
                x, y = tf.nest.map_structure(lambda values: values[own], (x, y))
            if not this.pad:
                return x, y
            real = tf.cast(tf.minimum(size - start, batch_size), tf.float32)
            return x, y, tf.cast(positions < size, tf.float32)[own] * this.shares(real)

        stream = tf.data.Dataset.range(this.batches)
        return prefetched(stream.map(batch, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True))

    def _one(self, preprocess, batching, key, index):
        draw = TensorDraw(key, index)
        if self.example is None:
            image, target = (tf.gather(self._tensors[name], index) for name in ("image", "label"))
        else:
            image, target = self.example(self._tensors, index, draw)
        if isinstance(target, dict):
            if preprocess:
                raise ValueError(f"preprocess {preprocess!r} is not possible: it would not change the single digits")
            target = target | {"parts": _unit(target["parts"])}
        if not batching.training:
            crop = batching.crop
            draw = TensorDraw(_CROP_KEY + crop, index) if is_whole(crop) else augment.FixedCrop(crop or "centre")
        return augment.apply(preprocess, _unit(image), draw, tnp), target


def prefetched(stream):
    """The batches of a tf.data stream, made while the model computes."""
    # TensorFlow 2.21 often fails to wake the thread that tunes a stream when the stream ends. `fit` then waits until
    # the thread looks again: up to as long as the stream was read.
    options = tf.data.Options()
    options.autotune.enabled = False
    return stream.prefetch(tf.data.AUTOTUNE).with_options(options)


def _unit(image):
    return tf.cast(image, tf.float32) / 255 if image.dtype == tf.uint8 else image


def _mixed(x, y, key, step, batch_size, real, alpha, classes):
    """Mixes each image with another of the batch; those that are not `real` stay as they are."""
    seeds = [tf.stack([key, step * 4 + number]) for number in range(3)]
    # Gamma(a) is Gamma(a + 1) U^(1/a): as logarithms even a small alpha neither underflows nor gives 0/0.
    gamma = tf.random.stateless_gamma((2, batch_size), seeds[0], alpha + 1, dtype=tf.float64)
    uniform = 1 - tf.random.stateless_uniform((2, batch_size), seeds[1], dtype=tf.float64)
    first, second = tf.unstack(tf.math.log(gamma) + tf.math.log(uniform) / alpha)
    share = tf.cast(tf.sigmoid(first - second), tf.float32)[: tf.shape(y)[0]]
    order = tf.random.stateless_uniform((batch_size,), seeds[2])[: tf.shape(y)[0]]
    partner = tf.argsort(tf.where(real, order, 1.0), stable=True)

    def mix(values):
        r = tf.reshape(share, (-1, *[1] * (len(values.shape) - 1)))
        return (1 - r) * values + r * tf.gather(values, partner)

    return mix(x), {"label": mix(tf.one_hot(y, classes)), "unmixed": y}


def _shuffled(index, seed, passes, size):
    """The example at each of these places, in the random order of its pass over `size` examples."""
    # As in tf.random.experimental.index_shuffle, with the same third number, but with one seed for each place.
    seeds = [tf.fill(tf.shape(passes), np.int64(number)) for number in (498247692, seed)]
    seeds = tf.stack([*seeds, passes], axis=1)
    return tf.raw_ops.RandomIndexShuffle(index=index, seed=seeds, max_index=np.int64(size - 1), rounds=4)


def _signature(one, shape):
    """The types and shapes of one example, found by tracing it."""
    index = tf.TensorSpec((), tf.int64)
    image, target = tf.function(one, autograph=False).get_concrete_function(index, index).structured_outputs
    if tuple(image.shape) != tuple(shape):
        raise ValueError(f"the examples of this split have shape {tuple(image.shape)}, not {tuple(shape)}")
    return tf.nest.map_structure(lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), (image, target))


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """A training and a test split, and what describes them.

    `note` names an alteration or a stand-in and belongs in every report of a figure; it is "" for an original.
    `multi_label` says that an image may show several classes, so that targets are dicts (see `Split.batches`).
    If the test split has novel viewpoints, `familiar` has its toys at the viewpoints of the training split.
    """

    name: str
    train: Split
    test: Split
    class_names: tuple[str, ...]
    note: str = ""
    multi_label: bool = False
    familiar: Split | None = None

    @property
    def image_shape(self):
        return self.train.image_shape
