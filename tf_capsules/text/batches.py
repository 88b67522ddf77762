"""Batches of hidden states and labels for `fit`, from a cache or on the fly."""

import numpy as np

from tf_capsules.arguments import positive_int
from tf_capsules.datasets.arrays import ShuffledBatches
from tf_capsules.datasets.pipeline import prefetched
from tf_capsules.lazy import tf


class StateBatches(ShuffledBatches):
    """Batches (x, y) or (x, y, weights): x is {"embeddings": (batch, tokens, layers, width), "mask": (batch, tokens)}.

    Both are float32 and padded to the longest text of the batch. y is int32 (batch,); for mixup see `Split.batches`.
    Order and mixup are a pure function of (seed, epoch). Item i is as in `ArrayBatches`.

    On the TensorFlow backend train on `dataset()`. From a PyDataset, Keras reads the first two batches to find out
    which axes vary, and these two may have the same length. Elsewhere give `shuffle=False` to `fit`: by default Keras
    shuffles the batches of all epochs together.

    Args:
        states: `CachedStates` or `LiveStates`.
        labels: whole numbers from 0, (texts,).
        batch_size, batching: options and errors of `tf_capsules.datasets.batching.Batching`, except `crop`. `mixup`
            mixes embeddings, masks and one-hot labels. All parts of a batch are padded to its longest text.
        multiple: the number of tokens is rounded up to a multiple of this, so that compiled models get fewer shapes.
    """

    def __init__(self, states, labels, batch_size, *, multiple=1, **batching):
        labels = np.asarray(labels)
        if labels.shape != (len(states),) or not len(labels) or not np.issubdtype(labels.dtype, np.integer):
            raise ValueError(f"need {len(states)} whole numbers as labels, not {labels.shape} {labels.dtype}")
        super().__init__(labels, batch_size, **batching)
        self.batching.check_steps(())
        self._states, self._multiple = states, positive_int("multiple", multiple)

    def _inputs(self, positions, passes, own):
        tokens = -(-int(self._states.lengths[positions].max()) // self._multiple) * self._multiple
        embeddings, mask = self._states.batch(positions[own], tokens)
        return {"embeddings": embeddings, "mask": mask}

    def dataset(self):
        """The same batches as a `tf.data.Dataset`, read ahead while the model computes."""
        embeddings = tf.TensorSpec((None, None, self._states.layers, self._states.width))
        x = {"embeddings": embeddings, "mask": tf.TensorSpec((None, None))}
        y = tf.TensorSpec((None,), tf.int32)
        if self.batching.mixup:
            y = {"label": tf.TensorSpec((None, self.batching.mixup[1])), "unmixed": y}
        signature = (x, y, tf.TensorSpec((None,))) if self.batching.pad else (x, y)
        batches = tf.data.Dataset.from_generator(lambda: iter(self), output_signature=signature)
        return prefetched(batches.apply(tf.data.experimental.assert_cardinality(len(self))))
