"""Inverted dot-product attention in windows (Tsai et al. 2020)."""

import math

from keras import ops

from tf_capsules.argument_types import Tensor
from tf_capsules.routing.chunks import recomputed_by_examples
from tf_capsules.routing.couplings import softmax, softmax_gradient
from tf_capsules.routing.inverted_attention import TINY
from tf_capsules.routing.precision import at_least_float32
from tf_capsules.routing.windowed.votes import make_votes, over_children, over_entries, summed_votes, transposed_votes
from tf_capsules.routing.windowed.windows import Windows


def windowed_inverted_attention(
    poses: Tensor,
    parents: Tensor | None,
    kernel: Tensor,
    *,
    windows: Windows,
    examples_per_chunk: int | None,
    scale: float = 1.0,
    weights: Tensor | None = None,
    return_moments: bool = False,
):
    """`inverted_attention` in windows: the parent types at each position compete. No votes are kept.

    Without `parents` and `return_moments` it is a plain convolution. Otherwise votes exist for some examples at a time.
    The gradient recomputes them.

    Args:
        poses: (batch, height, width, types, d) or (batch, height, width, types, rows, d).
        parents: poses of the previous iteration, (batch * positions, parents, *pose), or None.
        kernel: (children of a window, parents, d, e).
        windows: `tf_capsules.routing.windowed.Windows`.
        examples_per_chunk: number of examples whose votes exist at a time; None: all.
        scale, weights, return_moments: see `inverted_attention`; the weights are (batch, height, width, types).

    Returns:
        As `inverted_attention`, for a batch of parent positions.
    """
    poses, kernel = at_least_float32(poses), at_least_float32(kernel)
    _, count, _, out = kernel.shape
    pose_shape = (*poses.shape[4:-1], out)
    entries = math.prod(pose_shape)
    extra = () if weights is None else (ops.cast(weights, poses.dtype),)
    if parents is None and not return_moments:
        for factor in extra:
            poses = poses * ops.reshape(factor, (*ops.shape(factor), *[1] * (len(poses.shape) - 4)))
        return summed_votes(windows, poses, kernel) / count
    if parents is None:
        parents = ops.zeros((ops.shape(poses)[0] * windows.positions, count, *pose_shape), poses.dtype)
    shape = (windows.positions, count, entries)
    # For each parent the sum; with `return_moments` also the sum of squared deviations and the sum of couplings.
    width = 2 * entries + 1 if return_moments else entries
    shape_of_sums = (*shape[:2], width)

    def split(x):
        """The parts that `forward` joins: sums, squared deviations, sums of couplings; the last two may be empty."""
        x = ops.reshape(x, (-1, count, width))
        return x[..., :entries], x[..., entries : 2 * entries], x[..., 2 * entries :]

    def couplings_of(votes, parents):
        return softmax(scale * over_entries(parents, votes), axis=1)

    def weighted(couplings, weights):
        return couplings * windows.gather(weights[0])[:, None] if weights else couplings

    def forward(poses, parents, *weights, shared):
        votes = make_votes(windows, poses, *shared).votes
        couplings = weighted(couplings_of(votes, ops.reshape(parents, (-1, *shape[1:]))), weights)
        sums = [over_children(votes, couplings)]
        if return_moments:
            masses = ops.sum(couplings, axis=-1, keepdims=True)
            means = sums[0] / (masses + TINY)
            sums += [over_children(ops.square(votes - means[..., None]), couplings), masses]
        return (ops.reshape(ops.concatenate(sums, axis=-1), (-1, *shape_of_sums)),)

    def backward(poses, parents, *weights_and_upstream, shared):
        (kernel,), (*weights, upstream) = shared, weights_and_upstream
        votes = make_votes(windows, poses, kernel).votes
        parents = ops.reshape(parents, (-1, *shape[1:]))
        upstream, d_squares, d_masses = split(upstream)
        couplings = couplings_of(votes, parents)
        shares = weighted(couplings, weights)
        d_shares = 0.0
        if return_moments:
            divisor = ops.sum(shares, axis=-1, keepdims=True) + TINY
            means = over_children(votes, shares) / divisor
            deviations = votes - means[..., None]
            # 0 but for rounding. It is summed from the deviations, so that its rounding is theirs.
            d_sums = -2 * d_squares * over_children(deviations, shares) / divisor
            upstream = upstream + d_sums
            d_shares = d_masses - ops.sum(d_sums * means, axis=-1, keepdims=True)
            d_shares = d_shares + over_entries(d_squares, ops.square(deviations))
        d_shares = d_shares + over_entries(upstream, votes)
        d_weights = [windows.scatter(ops.sum(d_shares * couplings, axis=1))] if weights else []
        d_agreement = scale * softmax_gradient(couplings, weighted(d_shares, weights), axis=1)
        d_parents = ops.reshape(over_children(votes, d_agreement), (-1, *shape))
        # Sums and agreements each add an outer product of entries and children.
        left = ops.stack([upstream, parents], axis=-1)
        d_votes = ops.matmul(left, ops.stack([shares, d_agreement], axis=2))
        if return_moments:
            d_votes = d_votes + 2 * d_squares[..., None] * shares[:, :, None] * deviations
        d_poses, d_kernel, _ = transposed_votes(d_votes, windows, poses, kernel)
        return d_poses, d_parents, *d_weights, d_kernel

    parents = ops.reshape(at_least_float32(parents), (-1, *shape))
    arrays = (poses, parents, *extra)
    sums = recomputed_by_examples(forward, backward, examples_per_chunk, arrays, [kernel], [shape_of_sums])
    sums, squares, masses = split(sums)
    results = [ops.reshape(sums, (-1, count, *pose_shape))]
    if return_moments:
        results += [masses[..., 0], ops.reshape(squares / (masses + TINY), (-1, count, *pose_shape))]
    return results if return_moments else results[0]
