"""Votes in windows, and their gradients, for routings that recompute votes in the backward pass.

In the windows of a convolution each pair of a child and a parent has its own matrix, so no form is smaller than the
votes. `make_votes` makes them for some examples at a time, in the forward and again in the backward pass, which goes
from the last iteration to the first. Each iteration adds outer products to the gradient of the votes: of values for the
entries of a parent (`left`) and values for its children (`right`). One matrix product sums them. `transposed_votes`
then gives the gradients of poses and kernel.
"""

import math

from keras import ops

from tf_capsules.routing.votes.transformed import TransformedVotes

# Axis legend: B example and position of a parent, i child in a window, j parent type, k entry of a pose, r row of a
# pose, d column of a child's pose, e column of a parent's pose.


def make_votes(windows, poses, kernel, bias=None, activations=None):
    """The votes of all windows: `StoredVotes` of a batch of parent positions. Arguments: see `windowed_em_routing`."""
    activations = None if activations is None else windows.gather(activations)
    return TransformedVotes(windows.gather(poses), kernel, bias, activations).store()


def transposed_votes(d_votes, windows, poses, kernel):
    """The transpose of `make_votes`: turns the gradient of the votes into gradients of poses, kernel and bias.

    `d_votes` is (batch * positions, parents, entries of a pose, children of a window). The gradient of the bias is
    (children of a window, parents, rows or 1, e).
    """
    children, parents, columns, out = kernel.shape
    rows = poses.shape[4] if len(poses.shape) == 6 else 1
    d_votes = ops.reshape(d_votes, (-1, parents, rows, out, children))
    d_votes = ops.transpose(d_votes, (4, 0, 2, 1, 3))  # (i, B, r, j, e), as the product makes votes
    x = ops.reshape(windows.gather(poses), (-1, children, rows, columns))
    d_poses = ops.einsum("iBrje,ijde->Bird", d_votes, kernel)
    d_poses = windows.scatter(ops.reshape(d_poses, (-1, children * math.prod(poses.shape[4:]))))
    d_kernel = ops.einsum("Bird,iBrje->ijde", x, d_votes)
    d_bias = ops.transpose(ops.sum(d_votes, axis=1), (0, 2, 1, 3))
    return ops.reshape(d_poses, (-1, *poses.shape[1:])), d_kernel, d_bias


def over_entries(weights, values):
    """(B, j, k) and (B, j, k, i) to (B, j, i)."""
    return ops.matmul(weights[:, :, None], values)[:, :, 0]


def over_children(values, weights):
    """(B, j, k, i) and (B, j, i) to (B, j, k)."""
    return ops.matmul(values, weights[..., None])[..., 0]


def summed_votes(windows, poses, kernel):
    """The sum of the votes in each window, (batch * positions, parents, *pose), as a plain convolution."""
    rows = tuple(poses.shape[4:-1])
    types, columns = poses.shape[3], poses.shape[-1]
    _, parents, _, out = kernel.shape
    # Each row of a pose becomes an example.
    x = ops.moveaxis(poses, 4, 1) if rows else poses
    x = ops.reshape(x, (-1, *windows.grid, types * columns))
    kernel = ops.reshape(kernel, (*windows.kernel_size, types, parents, columns, out))
    kernel = ops.reshape(ops.moveaxis(kernel, 4, 3), (*windows.kernel_size, types * columns, parents * out))
    sums = ops.conv(x, kernel, windows.strides, "valid", data_format="channels_last")
    sums = ops.reshape(sums, (-1, *rows, windows.positions, parents, out))
    sums = ops.moveaxis(sums, 1, 3) if rows else sums
    return ops.reshape(sums, (-1, parents, *rows, out))
