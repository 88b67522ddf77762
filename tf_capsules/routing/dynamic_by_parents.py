"""Dynamic routing with competition between children, for some parents at a time."""

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
    poses = ops.reshape(votes.poses, (votes.batch, votes.children, *votes.pose_shape[:-1], votes.columns))
    mask = None if mask is None else votes.groups_first(ops.cast(mask, votes.dtype)[..., None])

    def chunks(values):
        """(any, parents, ...) as (chunks, parents of a chunk, any, ...), padded with zeros."""
        values = ops.swapaxes(ops.cast(values, votes.dtype), 0, 1)
        values = ops.pad(values, [[0, count * size - votes.parents], *[[0, 0]] * (len(values.shape) - 1)])
        return ops.reshape(values, (count, size, *values.shape[1:]))

    @keras.remat
    def parents(poses, given):
        """The poses of one chunk, (batch, parents, *pose)."""
        given = {name: ops.swapaxes(values, 0, 1) for name, values in given.items()}
        some, attended = SharedVotes(poses, given["kernel"], given.get("vote_bias")), 0.0
        start = given["logits"][None] if "logits" in given else ops.zeros((1, votes.children, 1), votes.dtype)
        start = some.groups_first(start)  # the softmax is faster in this layout
        for iteration in range(iterations):
            logits = start + some.agreement_by_group(attended) if iteration else start
            logits = ops.broadcast_to(logits, (votes.batch, *ops.shape(logits)[1:]))
            if mask is not None:
                logits = ops.where(mask > 0, logits, ops.cast(-1e30, logits.dtype))
            shares = unscaled_softmax(logits, (1, 2))
            shares = shares if mask is None else shares * mask
            masses = ops.maximum(ops.sum(shares, axis=(1, 2)), _TINY)[..., None, None]
            sums = some.shaped(some.sum_by_group(shares) / masses)
            sums = sums + given["bias"] if "bias" in given else sums
            found = squash(sums, tuple(range(2, len(sums.shape))))
            attended = attended + found
        return found

    def step(previous, given):
        # TensorFlow's scan expects results of the shapes and dtypes of its carried state.
        found = parents(poses, given)
        return found, found

    given = {"kernel": votes.kernel, "vote_bias": votes.bias, "logits": initial_logits}
    given["bias"] = None if bias is None else bias[None]
    given = {name: chunks(values) for name, values in given.items() if values is not None}
    _, found = ops.scan(step, ops.zeros((votes.batch, size, *votes.pose_shape), votes.dtype), given)
    found = ops.reshape(ops.swapaxes(found, 0, 1), (votes.batch, count * size, *votes.pose_shape))
    return found[:, : votes.parents]
