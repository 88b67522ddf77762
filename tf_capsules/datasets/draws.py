"""The random numbers that make or augment one example: in a TensorFlow graph, or in NumPy where there is none."""

import numpy as np

from tf_capsules.lazy import tf

_DRAWS_PER_EXAMPLE = 64


class TensorDraw:
    """The random numbers of one example: a pure function of (key, index, number of earlier draws).

    >>> draw = TensorDraw(key=0, index=5)
    >>> down = draw.integers(-2, 2)         # an int32 tensor of shape (); both ends included
    >>> angle = draw.uniform(-20.0, 20.0)   # a float32 tensor of shape ()
    """

    def __init__(self, key, index):
        self._key, self._index, self._count = tf.cast(key, tf.int64), tf.cast(index, tf.int64), 0

    def integers(self, low, high):
        return self._drawn(low, high + 1, "int32")

    def uniform(self, low, high):
        return self._drawn(low, high, "float32")

    def _drawn(self, low, high, dtype):
        if self._count == _DRAWS_PER_EXAMPLE:
            raise ValueError(f"one example takes at most {_DRAWS_PER_EXAMPLE} random numbers")
        seed = [self._key, self._index * _DRAWS_PER_EXAMPLE + self._count]
        self._count += 1
        return tf.random.stateless_uniform((), seed, low, high, dtype)


class ArrayDraw:
    """The same in NumPy, with other numbers: a pure function of `key`, for instance (seed, epoch, index)."""

    def __init__(self, *key):
        self._random = np.random.default_rng(key)

    def integers(self, low, high):
        return self._random.integers(low, high, endpoint=True)

    def uniform(self, low, high):
        return np.float32(self._random.uniform(low, high))
