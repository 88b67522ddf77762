"""The base of the convolutional routing layers."""

import math

import keras
from keras import ops

from tf_capsules.argument_types import Size
from tf_capsules.layers.arguments import known_axes, pair
from tf_capsules.layers.base import RoutingLayer
from tf_capsules.layers.connections import input_spec, need_grid, rows_of
from tf_capsules.routing.votes import plan
from tf_capsules.routing.windowed import Windows, make_votes
from tf_capsules.routing.windowed.windows import grid_of_parents


class ConvRoutingLayer(RoutingLayer):
    """Base of convolutional routing layers: each parent position has a window of children, without padding.

    The kernel is (*kernel_size, types, capsules, d, dim). `kernel_size` and `strides` are those of the windows, each a
    number or (rows, columns). Other arguments: see `RoutingLayer`.
    """

    def __init__(
        self, capsules: int, dim: int, kernel_size: Size = 3, strides: Size = 1, votes_memory: str = "auto", **kwargs
    ):
        super().__init__(capsules, dim, votes_memory, **kwargs)
        self.kernel_size = pair("kernel_size", kernel_size)
        self.strides = pair("strides", strides)

    def _open_windows(self, poses_shape, memory=None):
        """Sets windows and plan for children of this shape, and returns the kernel's axes (rows, columns, types)."""
        need_grid(f"{type(self).__name__} takes", poses_shape)
        known_axes(self, poses_shape, {1: "height of the grid", 2: "width of the grid", 3: "number of capsule types"})
        known_axes(self, poses_shape, {axis: "size of a child's pose" for axis in range(4, len(poses_shape))})
        self.input_spec = input_spec(poses_shape, "none")
        try:
            self.windows = Windows(*poses_shape[1:3], self.kernel_size, self.strides)
        except ValueError as error:
            raise ValueError(f"{type(self).__name__} {self.name!r}: {error}") from None
        pairs, pose = math.prod(self._couplings_shape(poses_shape)[1:]), (rows_of(poses_shape), poses_shape[-1])
        memory = memory or self.votes_memory
        self.plan = plan.in_windows(memory, *pose, self.dim, pairs, self.windows.positions)
        return *self.kernel_size, poses_shape[3]

    def _differentiates_votes(self, return_couplings):
        """Whether a call routes over stored votes as if fully connected, with the gradient that the backend finds.

        Otherwise the gradient is written out, which is faster. It can't return couplings, and JAX's forward mode does
        not take it.
        """
        return return_couplings or (self.plan.stored and keras.backend.backend() == "jax")

    def make_votes(self, poses, activations=None):
        kernel, bias = self._of_a_window(self.kernel), self._of_a_window(self.vote_bias)
        return make_votes(self.windows, poses, kernel, bias, activations)

    def _of_a_window(self, weight):
        """A weight (rows, columns, types, ...) as (children of a window, ...); None stays None."""
        return None if weight is None else ops.reshape(weight, (-1, *weight.shape[3:]))

    def _on_the_grid(self, x):
        """(batch * positions, ...) as (batch, new height, new width, ...)."""
        return ops.reshape(x, (-1, *self.windows.shape, *x.shape[1:]))

    def _parents_shape(self, poses_shape, capsules=None):
        return poses_shape[0], *grid_of_parents(poses_shape[1:3], self.kernel_size, self.strides), self.capsules

    def _couplings_shape(self, poses_shape, capsules=None):
        children = math.prod(self.kernel_size) * poses_shape[3]
        return *self._parents_shape(poses_shape)[:3], children, self.capsules
