"""Inverted dot-product attention routing: children attend to the parents of the iteration before (Tsai et al. 2020)."""

import math

from keras import ops

from tf_capsules.argument_types import Tensor
from tf_capsules.routing.chunks import recomputed_by_examples
from tf_capsules.routing.couplings import couple, softmax, softmax_gradient
from tf_capsules.routing.precision import at_least_float32
from tf_capsules.routing.votes import Votes

TINY = 1e-9  # added to sums of couplings in divisions, since a parent may get none


def inverted_attention(
    votes: Votes,
    parents: Tensor | None = None,
    *,
    scale: float = 1.0,
    weights: Tensor | None = None,
    return_moments: bool = False,
    return_couplings: bool = False,
):
    """One routing iteration: each child distributes its vote over the parents, by its agreement with each of them.

    The softmax is over the parents. In usual attention it would be over the children: hence "inverted".

    Source: Tsai et al. 2020, section 3, eqs. 2 to 4, without the layer normalization, which is in the layers.

    Args:
        votes: `tf_capsules.routing.votes.Votes`.
        parents: poses of the previous iteration, (batch or 1, parents, *pose); None: uniform couplings.
        scale: factor on the agreement.
        weights: (batch, children), factors on a child's couplings: its activation or a mask; None: 1.
        return_moments: also return the sums of couplings and the variances, from which activations are computed.
        return_couplings: also return the couplings.

    Returns:
        The coupled sums of votes, (batch, parents, *pose); with `return_moments` also the sums of the couplings,
        (batch, parents), and the coupled variances of the votes, (batch, parents, *pose); with `return_couplings` also
        the couplings (batch, children, parents). Over the parents, a child's couplings sum to its weight.
    """
    weights = None if weights is None else ops.cast(weights, votes.dtype)
    if parents is None:
        couplings = ops.ones((1, votes.children, 1), votes.dtype) / ops.cast(votes.parents, votes.dtype)
    else:
        parents = ops.cast(parents, votes.dtype)
        parents = ops.broadcast_to(parents, (votes.batch, votes.parents, *votes.pose_shape))
        couplings = couple(scale * votes.agreement(parents))
    couplings = couplings if weights is None else couplings * weights[:, :, None]
    results = [votes.weighted_sum(couplings)]
    if return_moments:
        masses, _, variances = votes.moments(couplings, epsilon=TINY)
        results += [ops.sum(masses, axis=1), variances]
    if return_couplings:
        results.append(ops.broadcast_to(couplings, (votes.batch, votes.children, votes.parents)))
    return results if len(results) > 1 else results[0]


def distinct_inverted_attention(
    poses: Tensor,
    parents: Tensor,
    kernel: Tensor,
    *,
    examples_per_chunk: int,
    scale: float = 1.0,
    weights: Tensor | None = None,
):
    """`inverted_attention` with a matrix for each (child, parent) pair. No array of pairs is kept.

    It computes as `DistinctVotes` does, but for some examples at a time, from poses (batch, children, [rows,] d) and a
    kernel (children, parents, d, e). The gradient recomputes the arrays of pairs.
    """
    poses, parents, kernel = (at_least_float32(x) for x in (poses, parents, kernel))
    children, count, columns, out = kernel.shape
    rows = math.prod(poses.shape[2:-1])
    pose = (count, *poses.shape[2:-1], out)
    # Axis legend as in `votes/transformed.py`. Children come last: their axis is long enough for vector instructions.
    x = ops.transpose(ops.reshape(poses, (-1, children, rows, columns)), (0, 2, 3, 1))  # (b, r, d, i)
    matrices = ops.reshape(ops.transpose(kernel, (1, 2, 0, 3)), (count, columns * children, out))  # (j, d i, e)
    extra = () if weights is None else (ops.cast(weights, poses.dtype),)

    def parents_first(x):
        """(b, j, r, e) as (j, b r, e)."""
        return ops.reshape(ops.transpose(x, (1, 0, 2, 3)), (count, -1, out))

    def examples_first(x):
        """The inverse of `parents_first`."""
        return ops.transpose(ops.reshape(x, (count, -1, rows, out)), (1, 0, 2, 3))

    def back(matrices, x):
        """Parents (j, b r, e), transformed back to the children's side, (j, b, r, d, i)."""
        x = ops.matmul(x, ops.transpose(matrices, (0, 2, 1)))
        return ops.reshape(x, (count, -1, rows, columns, children))

    def agreement(x, parents):
        return ops.sum(parents * x[None], axis=(2, 3))  # (j, b, i)

    def scaled(x, shares):
        return ops.reshape(shares[:, :, None, None] * x[None], (count, -1, columns * children))

    def forward(x, parents, *weights, shared):
        (matrices,) = shared
        couplings = softmax(scale * agreement(x, back(matrices, parents_first(parents))), axis=0)
        shares = couplings * weights[0] if weights else couplings
        return (examples_first(ops.matmul(scaled(x, shares), matrices)),)

    def backward(x, parents, *weights_and_upstream, shared):
        (matrices,), (*weights, upstream) = shared, weights_and_upstream
        parents, upstream = parents_first(parents), parents_first(upstream)
        seen, seen_upstream = back(matrices, parents), back(matrices, upstream)
        couplings = softmax(scale * agreement(x, seen), axis=0)
        d_shares = agreement(x, seen_upstream)
        d_weights = [ops.sum(d_shares * couplings, axis=0)] if weights else []
        shares, d_couplings = (y * weights[0] if weights else y for y in (couplings, d_shares))
        d_agreement = scale * softmax_gradient(couplings, d_couplings, axis=0)
        d_x = ops.sum(shares[:, :, None, None] * seen_upstream + d_agreement[:, :, None, None] * seen, axis=0)
        from_parents = scaled(x, d_agreement)
        d_parents = examples_first(ops.matmul(from_parents, matrices))
        d_matrices = ops.matmul(ops.transpose(scaled(x, shares), (0, 2, 1)), upstream)
        d_matrices = d_matrices + ops.matmul(ops.transpose(from_parents, (0, 2, 1)), parents)
        return d_x, d_parents, *d_weights, d_matrices

    parents = ops.reshape(parents, (-1, count, rows, out))
    arrays, results = (x, parents, *extra), [parents.shape[1:]]
    sums = recomputed_by_examples(forward, backward, examples_per_chunk, arrays, [matrices], results)
    return ops.reshape(sums, (-1, *pose))
