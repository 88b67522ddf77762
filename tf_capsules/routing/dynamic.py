"""Dynamic routing between capsules (Sabour et al. 2017)."""

import math

import keras
from keras import ops

from tf_capsules.argument_types import Tensor
from tf_capsules.routing.arguments import positive_int
from tf_capsules.routing.chunks import equal_chunks
from tf_capsules.routing.couplings import check_competition, couple
from tf_capsules.routing.squash import squash
from tf_capsules.routing.votes import SharedVotes, Votes


def dynamic_routing(
    votes: Votes,
    iterations: int = 3,
    *,
    bias: Tensor | None = None,
    leaky: bool = False,
    competition: str = "parents",
    initial_logits: Tensor | None = None,
    mask: Tensor | None = None,
    return_couplings: bool = False,
):
    """Routes by agreement: children send more to the parents that their votes agree with.

    Source: Sabour et al. 2017, procedure 1; competition between children: Li et al. 2018; leaky and bias: the released
    code of Sabour et al. Gradients flow through all iterations, the couplings included.

    Args:
        votes: `tf_capsules.routing.votes.Votes`.
        iterations: how often couplings are computed, at least 1; 1 without `initial_logits` leaves them uniform.
        bias: added to each parent's sum before it is squashed, (parents, *pose); or None.
        leaky: whether a child may belong to none of the parents.
        competition: "parents": a child's couplings sum to 1 over the parents; "children": a parent's over the children.
        initial_logits: of the first couplings, (children, parents); None: zeros.
        mask: (batch, children), true for the children that take part; or None for all.
        return_couplings: also return the couplings of the last iteration.

    Returns:
        The parents' poses (batch, parents, *pose), of length below 1; with `return_couplings` also the couplings
        (batch, children, parents).

    Raises:
        ValueError: iterations below 1, an unknown competition, or leaky competition between children.
    """
    check_dynamic_routing(iterations, competition, leaky)
    pose_axes = tuple(range(2, 2 + len(votes.pose_shape)))

    def parents(couplings):
        sums = votes.weighted_sum(couplings)
        return squash(sums if bias is None else sums + ops.cast(bias, votes.dtype), pose_axes)

    # With logits of zero the couplings are the same for all parents: one column stands for all.
    logits = ops.zeros((1, votes.children, 1), votes.dtype)
    if initial_logits is not None:
        logits = ops.cast(initial_logits, votes.dtype)[None]
        logits = ops.broadcast_to(logits, (votes.batch, votes.children, votes.parents))
    if initial_logits is None and competition == "parents":
        couplings = ops.ones_like(logits) / (votes.parents + int(leaky))
        couplings = couplings if mask is None else couplings * ops.cast(mask, votes.dtype)[:, :, None]
    else:
        couplings = couple(logits, competition, leaky=leaky, mask=mask)
    poses, attended = parents(couplings), 0.0
    for _ in range(iterations - 1):
        # The sum of a vote's agreements with earlier parents is its agreement with their sum.
        attended = attended + poses
        agreement = votes.agreement(attended)
        agreement = agreement if initial_logits is None else logits + agreement
        couplings = couple(agreement, competition, leaky=leaky, mask=mask)
        poses = parents(couplings)
    if return_couplings:
        return poses, ops.broadcast_to(couplings, (votes.batch, votes.children, votes.parents))
    return poses


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
    before the next chunk starts. Couplings exist for one chunk, and the backward pass recomputes them.
    """
    check_dynamic_routing(iterations, "children")
    count, size = equal_chunks(votes.parents, parents_per_chunk)
    groups, rows, columns, out = votes.groups, votes.rows, votes.columns, votes.pose_shape[-1]
    poses = votes.by_group(ops.reshape(votes.poses, (votes.batch, votes.children, rows * columns)))
    features = ops.transpose(ops.concatenate([ops.ones_like(poses[..., :1]), poses], axis=-1), (0, 2, 1, 3))
    if mask is not None:
        mask = ops.transpose(votes.by_group(ops.cast(mask, votes.dtype)), (0, 2, 1))

    def parts(values, axis, *shape):
        """Values as (chunks, ...), their axis of parents padded with zeros and split; None: zeros of `shape`."""
        values = ops.zeros(shape, votes.dtype) if values is None else ops.cast(values, votes.dtype)
        rest = [[0, 0]] * len(values.shape)
        rest[axis] = [0, count * size - votes.parents]
        values = ops.pad(values, rest)
        shape = tuple(values.shape)
        return ops.moveaxis(ops.reshape(values, (*shape[:axis], count, size, *shape[axis + 1 :])), axis, 0)

    given = [parts(votes.kernel, 1), parts(votes.bias, 1, groups, votes.parents, rows, out)]
    bias = None if bias is None else ops.reshape(bias, (votes.parents, rows, out))
    given.append(parts(bias, 0, votes.parents, rows, out))
    if initial_logits is not None:
        given.append(parts(votes.by_group(initial_logits[None])[0], 2))

    @keras.remat
    def parents(features, kernel, vote_bias, bias, *initial):
        batch = ops.shape(features)[0]
        # A matrix product for each parent over all groups, as in `to_parents`.
        kernel = ops.reshape(ops.transpose(kernel, (1, 0, 2, 3)), (size, groups * columns, out))
        vote_bias = ops.reshape(ops.transpose(vote_bias, (1, 0, 2, 3)), (size, groups, rows * out))
        attended = None
        for _ in range(iterations):
            logits = None
            if attended is not None:
                x = ops.transpose(attended, (1, 0, 2, 3))
                back = ops.matmul(ops.reshape(x, (size, batch * rows, out)), ops.transpose(kernel, (0, 2, 1)))
                back = ops.transpose(ops.reshape(back, (size, batch, rows, groups, columns)), (1, 3, 2, 4, 0))
                back = ops.reshape(back, (batch, groups, rows * columns, size))
                offset = ops.matmul(ops.reshape(x, (size, batch, rows * out)), ops.transpose(vote_bias, (0, 2, 1)))
                offset = ops.transpose(offset, (1, 2, 0))[:, :, None]
                logits = ops.matmul(features, ops.concatenate([offset, back], axis=2))
            for own in initial:
                own = ops.transpose(own, (1, 0, 2))[None]
                logits = own if logits is None else logits + own
            if logits is None:
                weights = ops.ones_like(features[..., :1]) if mask is None else mask[..., None]
            else:
                if mask is not None:
                    logits = ops.where(mask[..., None] > 0, logits, ops.cast(-1e30, logits.dtype))
                # Without an initial value Keras refuses the maximum of an empty batch.
                highest = ops.max(logits, axis=(1, 2), keepdims=True, initial=-math.inf)
                weights = ops.exp(logits - ops.stop_gradient(highest))
                weights = weights if mask is None else weights * mask[..., None]
            weights = ops.broadcast_to(weights, (*ops.shape(features)[:3], weights.shape[-1]))
            sums = ops.matmul(ops.transpose(features, (0, 1, 3, 2)), weights)
            sums = ops.broadcast_to(sums, (*ops.shape(sums)[:3], size))  # (batch, groups, features, parents)
            counts, first = ops.split(sums, [1], axis=2)
            counts = ops.squeeze(counts, axis=2)
            first = ops.transpose(ops.reshape(first, (batch, groups, rows, columns, size)), (4, 0, 2, 1, 3))
            total = ops.matmul(ops.reshape(first, (size, batch * rows, groups * columns)), kernel)
            added = ops.matmul(ops.transpose(counts, (2, 0, 1)), vote_bias)
            total = ops.reshape(total, (size, batch, rows, out)) + ops.reshape(added, (size, batch, rows, out))
            total = ops.transpose(total, (1, 0, 2, 3))
            mass = ops.sum(counts, axis=1)[:, :, None, None]
            total = total / ops.maximum(mass, 1e-30)
            poses = squash(total + bias, (2, 3))
            attended = poses if attended is None else attended + poses
        return poses

    def step(previous, given):
        # TensorFlow's scan expects results of the shapes and dtypes of its carried state.
        poses = parents(features, *given)
        return poses, poses

    _, poses = ops.scan(step, ops.zeros((votes.batch, size, rows, out), votes.dtype), tuple(given))
    poses = ops.reshape(ops.moveaxis(poses, 0, 1), (votes.batch, count * size, *votes.pose_shape))
    return poses[:, : votes.parents]


def check_dynamic_routing(iterations: int, competition: str = "parents", leaky: bool = False):
    """Raises a ValueError for arguments that `dynamic_routing` can't work with."""
    positive_int("iterations", iterations)
    check_competition(competition, leaky)
