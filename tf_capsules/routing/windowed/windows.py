"""The windows of a convolution: the children of each parent position, and the parents that compete for a child."""

import functools
import math

import numpy as np
from keras import ops

# Axis legend as in `votes/transformed.py`; each parent position is an example of a larger batch.


def grid_of_parents(grid, kernel_size, strides):
    """(rows, columns) of the parents of a grid of children, None where unknown; a ValueError for too small a grid."""
    shape = tuple(None if n is None else (n - k) // s + 1 for n, k, s in zip(grid, kernel_size, strides, strict=True))
    if any(n is not None and n < 1 for n in shape):
        raise ValueError(f"A grid of {grid[0]} x {grid[1]} children is smaller than the window {tuple(kernel_size)}.")
    return shape


class Windows:
    """The windows of a convolution without padding, each with the children of one parent position.

    `couple` normalizes a child's couplings over all parents whose windows contain it, of all types and at all
    positions. A child that no window covers takes no part.

    Source: Hinton et al. 2018, section 4.

    Args:
        height, width: of the children's grid.
        kernel_size, strides: of the windows, each (rows, columns).

    Attributes:
        grid, shape: of the grids of children and of parents, (rows, columns).
    """

    def __init__(self, height: int, width: int, kernel_size: tuple[int, int], strides: tuple[int, int] = (1, 1)):
        self.grid, self.kernel_size, self.strides = (height, width), tuple(kernel_size), tuple(strides)
        self.window = math.prod(self.kernel_size)  # places of children in a window
        self.shape = grid_of_parents(self.grid, kernel_size, strides)
        self.positions = self.shape[0] * self.shape[1]
        rows, columns = np.indices(self.shape).reshape(2, -1, 1) * np.reshape(strides, (2, 1, 1))
        row_offsets, column_offsets = np.indices(self.kernel_size).reshape(2, -1)
        # The child at each place of each window, counted over the grid.
        self._children = ((rows + row_offsets) * width + columns + column_offsets).ravel().astype("int32")
        # The places of each child, counted over all windows, and padded with the place after the last.
        places, cover = np.argsort(self._children, kind="stable"), np.bincount(self._children, minlength=height * width)
        child = self._children[places]
        number = np.arange(len(places)) - (np.cumsum(cover) - cover)[child]
        self._places = np.full((height * width, cover.max()), len(places), "int32")
        self._places[child, number] = places

    def gather(self, x):
        """(batch, height, width, types, ...) as (batch * positions, children of a window, ...).

        Children are in the order row, column, type; a sample's positions in the order row, column.
        """
        types, *rest = x.shape[3:]
        x = ops.reshape(x, (-1, self.grid[0] * self.grid[1], math.prod((types, *rest))))
        x = ops.take(x, self._children, axis=1)
        return ops.reshape(x, (-1, self.window * types, *rest))

    def scatter(self, x, reduce=ops.sum, empty=0.0):
        """(batch * positions, children of a window) as (batch, height, width, types): each child's values, reduced.

        With the sum it is the transpose of `gather`. `empty` fills the missing places of children in fewer windows.
        """
        types = x.shape[1] // self.window
        x = ops.reshape(x, (-1, self.positions * self.window, types))
        x = ops.pad(x, [[0, 0], [0, 1], [0, 0]], constant_values=empty)
        x = reduce(ops.take(x, self._places, axis=1), axis=2)
        return ops.reshape(x, (-1, *self.grid, types))

    def couple(self, logits):
        """Couplings of logits, both (batch * positions, children of a window, parent types); a child's sum to 1."""
        lowest = float("-inf")
        largest = functools.partial(ops.max, initial=lowest)  # Keras refuses the maximum of an empty batch
        highest = self.scatter(ops.stop_gradient(largest(logits, axis=-1)), largest, lowest)
        joint = ops.exp(logits - self.gather(highest)[..., None])
        return joint / self.gather(self.scatter(ops.sum(joint, axis=-1)))[..., None]
