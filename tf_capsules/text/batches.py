"""Batches of hidden states and labels for `fit`, from a cache or on the fly."""

import keras
import numpy as np

from tf_capsules.datasets.arrays import check_mixup, check_stream


class StateBatches(keras.utils.PyDataset):
    """Batches (x, y) or (x, y, weights): x is {"embeddings": (batch, tokens, layers, width), "mask": (batch, tokens)}.

    Both are float32 and padded to the longest text of the batch. y is int32 (batch,), with mixup the dict of `label`
    float32 (batch, classes), the mixed one-hot labels, and `unmixed` int32 (batch,). Order and mixup are a pure
    function of (seed, epoch). Item i is batch `i % steps` of epoch `initial_epoch + i // steps`, `steps` being the
    batches of an epoch.

    On the TensorFlow backend train on `dataset()`: of a PyDataset Keras takes the first two batches to tell which axes
    vary, and two may well be of one length.

    Args:
        states: `CachedStates` or `LiveStates`.
        labels: whole numbers from 0, (texts,).
        batch_size: texts a batch; the last batch of an epoch holds the rest.
        training: in a random order, else in that of the texts.
        seed: of order and mixup, 0 to 2**31 - 1.
        epochs, initial_epoch: the epochs initial_epoch .. epochs - 1, one after another.
        limit: use the first `limit` texts only.
        pad: fill an epoch's last batch with texts from the epoch's start, and give weights as `Split.batches` does.
        mixup: (alpha, classes) mixes every training batch (Heinsen 2019, section 4.2): embeddings, masks and one-hot
            labels become (1 - r) x + r x[permutation], with one r from Beta(alpha, alpha) for each sample and one
            permutation for the batch. The fill of `pad` is neither mixed nor mixed in.
        multiple: the number of tokens is rounded up to a multiple of this; compiled models then meet fewer shapes.

    Raises:
        ValueError: for arguments out of their range.

    >>> batches = StateBatches(states, reviews.train.labels, 20, training=True, epochs=3, mixup=(0.2, 5))
    >>> model.fit(batches.dataset(), steps_per_epoch=batches.steps, epochs=3, shuffle=False)
    """

    def __init__(
        self,
        states,
        labels,
        batch_size,
        *,
        training=False,
        seed=0,
        epochs=1,
        initial_epoch=0,
        limit=None,
        pad=False,
        mixup=None,
        multiple=1,
    ):
        super().__init__()
        labels = np.asarray(labels)
        if labels.shape != (len(states),) or not len(labels) or not np.issubdtype(labels.dtype, np.integer):
            raise ValueError(f"need {len(states)} whole numbers as labels, not {labels.shape} {labels.dtype}")
        check_stream(batch_size, limit, seed, epochs, initial_epoch)
        check_mixup(mixup, training, labels)
        if multiple < 1:
            raise ValueError(f"multiple must be 1 or more, not {multiple!r}")
        self._states, self._labels = states, labels.astype(np.int32)
        self._batch_size, self._size = batch_size, min(len(labels), limit or len(labels))
        self._training, self._seed, self._pad, self._mixup = training, seed, pad, mixup
        self._epochs, self._initial_epoch, self._multiple = epochs, initial_epoch, multiple
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
        if self._training:
            positions = np.random.default_rng((self._seed, epoch)).permutation(self._size)[positions]
        x, y = self._states_at(positions), self._labels[positions]
        if self._mixup:
            # A key of two numbers, that of the order, is the same as one with zeros behind them.
            x, y = self._mixed(np.random.default_rng((self._seed, epoch, step, 1)), x, y, real.sum())
        if not self._pad:
            return x, y
        return x, y, (real / real.mean() if self._training else real).astype(np.float32)

    def _states_at(self, positions):
        embeddings, mask = self._states.batch(positions)
        if fill := -mask.shape[1] % self._multiple:
            embeddings, mask = (
                np.pad(part, ((0, 0), (0, fill), *[(0, 0)] * (part.ndim - 2))) for part in (embeddings, mask)
            )
        return {"embeddings": embeddings, "mask": mask}

    def _mixed(self, random, x, y, real):
        alpha, classes = self._mixup
        share = random.beta(alpha, alpha, self._batch_size).astype(np.float32)[: len(y)]
        partner = np.concatenate([random.permutation(real), np.arange(real, len(y))])

        def mix(values):  # so that what is equal in both stays exactly that
            return values + share.reshape(-1, *[1] * (values.ndim - 1)) * (values[partner] - values)

        label = mix(np.eye(classes, dtype=np.float32)[y])
        return {name: mix(values) for name, values in x.items()}, {"label": label, "unmixed": y}

    def dataset(self):
        """The same batches as a `tf.data.Dataset`, read ahead while the model computes."""
        import tensorflow as tf

        x = {
            "embeddings": tf.TensorSpec((None, None, self._states.layers, self._states.width)),
            "mask": tf.TensorSpec((None, None)),
        }
        y = tf.TensorSpec((None,), tf.int32)
        if self._mixup:
            y = {"label": tf.TensorSpec((None, self._mixup[1])), "unmixed": y}
        signature = (x, y, tf.TensorSpec((None,))) if self._pad else (x, y)
        batches = tf.data.Dataset.from_generator(
            lambda: (self[item] for item in range(len(self))), output_signature=signature
        )
        return batches.apply(tf.data.experimental.assert_cardinality(len(self))).prefetch(tf.data.AUTOTUNE)
