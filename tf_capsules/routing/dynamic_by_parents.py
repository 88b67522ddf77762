"""Dynamic routing with competition between children, for some parents at a time."""

import math

import keras
from keras import ops

from tf_capsules.argument_types import Tensor
from tf_capsules.arguments import positive_int
from tf_capsules.routing.chunks import equal_chunks
from tf_capsules.routing.couplings import unscaled_softmax
from tf_capsules.routing.squash import squash
from tf_capsules.routing.votes import SharedVotes

_TINY = 1e-30  # below any mass that matters


def dynamic_routing_by_parents(
    votes: SharedVotes,
    iterations: int = 3,
    *,
    parents_per_chunk: int,
    bias: Tensor | None = None,
    initial_logits: Tensor | None = None,
    mask: Tensor | None = None,
):
    """`dynamic_routing` with competition between children, about `parents_per_chunk` parents at a time.

    Where children compete, parents don't depend on each other. So each chunk of parents goes through all iterations
    before the next one starts, and the backward pass recomputes its couplings.
    """
    positive_int("iterations", iterations)
    count, size = equal_chunks(votes.parents, parents_per_chunk)
    batch, groups, entries = votes.batch, votes.groups, math.prod(votes.pose_shape)
    features = ops.reshape(votes.poses, (batch, votes.children, votes.rows * votes.columns))
    features = ops.concatenate([ops.ones_like(features[..., :1]), features], axis=-1)
    features = ops.swapaxes(votes.by_group(features), 1, 2)  # (batch, groups, members, features)
    if mask is not None:
        mask = ops.swapaxes(votes.by_group(ops.cast(mask, votes.dtype)[..., None]), 1, 2)

    def chunks(values):
        """(parents, ...) as (chunks, parents of a chunk, ...), padded with zeros."""
        rest = values.shape[1:]
        values = ops.pad(values, [[0, count * size - votes.parents], *[[0, 0]] * len(rest)])
        return ops.reshape(values, (count, size, *rest))

    given = [_transformations(votes), ops.zeros((votes.parents, entries)) if bias is None else bias]
    given[1] = ops.reshape(ops.cast(given[1], votes.dtype), (votes.parents, 1, entries))
    if initial_logits is not None:
        logits = ops.cast(ops.transpose(initial_logits), votes.dtype)
        given.append(ops.reshape(logits, (votes.parents, -1, groups)))

    @keras.remat
    def parents(features, matrices, bias, *initial):
        """Poses (parents, batch, entries) of one chunk."""
        batch, _, _, width = ops.shape(features)
        start = ops.transpose(initial[0], (2, 1, 0))[None] if initial else ops.zeros_like(features[..., :1])
        logits, attended = start, 0.0
        for iteration in range(iterations):
            if iteration:
                back = ops.matmul(attended, ops.swapaxes(matrices, 1, 2))
                back = ops.transpose(ops.reshape(back, (size, batch, groups, width)), (1, 2, 3, 0))
                logits = start + ops.matmul(features, back)
            logits = ops.broadcast_to(logits, (*ops.shape(features)[:3], logits.shape[-1]))
            if mask is not None:
                logits = ops.where(mask > 0, logits, ops.cast(-1e30, logits.dtype))
            shares = unscaled_softmax(logits, (1, 2))
            shares = shares if mask is None else shares * mask
            sums = ops.matmul(ops.swapaxes(features, 2, 3), shares)
            sums = ops.broadcast_to(sums, (batch, groups, width, size))
            masses = ops.transpose(ops.sum(sums[:, :, 0], axis=1))[..., None]
            sums = ops.reshape(ops.transpose(sums, (3, 0, 1, 2)), (size, batch, groups * width))
            poses = squash(ops.matmul(sums, matrices) / ops.maximum(masses, _TINY) + bias, -1)
            attended = attended + poses
        return poses

    def step(previous, given):
        # TensorFlow's scan expects results of the shapes and dtypes of its carried state.
        poses = parents(features, *given)
        return poses, poses

    _, poses = ops.scan(step, ops.zeros((size, batch, entries), votes.dtype), tuple(map(chunks, given)))
    poses = ops.swapaxes(ops.reshape(poses, (count * size, batch, entries))[: votes.parents], 0, 1)
    return ops.reshape(poses, (batch, votes.parents, *votes.pose_shape))


def _transformations(votes):
    """The matrix that takes (1, pose) of a child to its vote, (parents, groups * features, entries).

    The rows of a matrix pose are transformed alike: blocks on the diagonal.
    """
    rows, parents = votes.rows, votes.parents
    columns, out = votes.columns, votes.pose_shape[-1]
    blocks = ops.swapaxes(votes.kernel, 0, 1)[:, :, None, :, None] * ops.eye(rows, dtype=votes.dtype)[:, None, :, None]
    blocks = ops.reshape(blocks, (parents, votes.groups, rows * columns, rows * out))
    bias = ops.zeros_like(blocks[:, :, :1])
    if votes.bias is not None:
        bias = ops.reshape(ops.swapaxes(votes.bias, 0, 1), (parents, votes.groups, 1, rows * out))
    return ops.reshape(ops.concatenate([bias, blocks], axis=2), (parents, -1, rows * out))
