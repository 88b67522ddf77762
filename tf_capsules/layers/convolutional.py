"""What convolutional capsule layers have in common, whatever they are routed by."""

import math

import keras
from keras import ops

from tf_capsules.hints import Size
from tf_capsules.layers.arguments import known_axes, pair
from tf_capsules.layers.connections import input_spec, on_grid, rows_of
from tf_capsules.routing.windows import Windows

# Of votes, or of what stands for them: enough for work to outweigh the loop, few enough for the processor's cache.
NUMBERS_AT_A_TIME = 4_000_000


class Convolutional(keras.layers.Layer):
    """To be mixed into a layer of capsules: each parent position has its window of children, without padding.

    The layer that it is mixed into sets `capsules` and `dim`, and `kernel` to (*kernel_size, types, capsules, d, dim).

    Attributes:
        windows: of the children's grid, once built.
        chunk: number of examples whose votes exist at a time, once built.
    """

    def __init__(self, capsules: int, dim: int, kernel_size: Size = 3, strides: Size = 1, **kwargs):
        super().__init__(capsules, dim, **kwargs)
        self.kernel_size = pair("kernel_size", kernel_size)
        self.strides = pair("strides", strides)

    def _open_windows(self, poses_shape):
        """Sets the windows of children of this shape; the axes that tell transformations apart, (rows, columns, types).

        Raises:
            ValueError: poses that are not on a grid of known size, or a grid smaller than the window.
        """
        if not on_grid(poses_shape):
            raise ValueError(
                f"{type(self).__name__} takes poses on a grid (batch, height, width, types, ...). "
                f"Received input shape {tuple(poses_shape)}."
            )
        known_axes(self, poses_shape, {1: "height of the grid", 2: "width of the grid", 3: "number of capsule types"})
        known_axes(self, poses_shape, {axis: "size of a child's pose" for axis in range(4, len(poses_shape))})
        self.input_spec = input_spec(poses_shape, "none")
        try:
            self.windows = Windows(*poses_shape[1:3], self.kernel_size, self.strides)
        except ValueError as error:
            raise ValueError(f"{type(self).__name__} {self.name!r}: {error}") from None
        seen = self.windows.positions * len(self.windows.offsets) * poses_shape[3]
        self.chunk = max(1, NUMBERS_AT_A_TIME // (seen * self.capsules * math.prod((*rows_of(poses_shape), self.dim))))
        return *self.kernel_size, poses_shape[3]

    def _of_a_window(self, weight):
        """A weight (rows, columns, types, ...) as (children of a window, ...); None stays None."""
        return None if weight is None else ops.reshape(weight, (-1, *weight.shape[3:]))

    def _on_the_grid(self, x):
        """(batch * positions, ...) as (batch, new height, new width, ...)."""
        return ops.reshape(x, (-1, *self.windows.shape, *x.shape[1:]))

    def _parents_shape(self, poses_shape):
        """(batch, new height, new width, capsules)."""
        grid = Windows(*poses_shape[1:3], self.kernel_size, self.strides).shape
        return poses_shape[0], *grid, self.capsules

    def _couplings_shape(self, poses_shape):
        grid = self._parents_shape(poses_shape)[:3]
        return *grid, self.kernel_size[0] * self.kernel_size[1] * poses_shape[3], self.capsules

    def get_config(self):
        return {**super().get_config(), "kernel_size": self.kernel_size, "strides": self.strides}
