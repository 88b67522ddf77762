"""Dynamic routing in windows (Sabour et al. 2017).

The gradient is written out, as `votes.py` says. The forward pass keeps each iteration's sums of votes.
"""

import math

from keras import ops

from tf_capsules.argument_types import Tensor
from tf_capsules.arguments import positive_int
from tf_capsules.routing.chunks import recomputed_by_examples
from tf_capsules.routing.couplings import softmax, softmax_gradient
from tf_capsules.routing.precision import at_least_float32
from tf_capsules.routing.squash import squash, squash_gradient
from tf_capsules.routing.windowed.votes import make_votes, over_children, over_entries, summed_votes, transposed_votes
from tf_capsules.routing.windowed.windows import Windows

# Axis legend as in `votes.py`; t iteration.


def windowed_dynamic_routing(
    poses: Tensor,
    kernel: Tensor,
    iterations: int = 3,
    *,
    windows: Windows,
    examples_per_chunk: int | None,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
):
    """`dynamic_routing` in windows: the parent types at each position compete. One iteration is a plain convolution.

    Args:
        poses, kernel, windows, examples_per_chunk: see `windowed_inverted_attention`.
        iterations, bias: see `dynamic_routing`.
        mask: (batch, height, width, types), true for the children that take part; or None for all.

    Returns:
        (batch * positions, parents, *pose).
    """
    positive_int("iterations", iterations)
    poses, kernel = at_least_float32(poses), at_least_float32(kernel)
    children, parents, _, out = kernel.shape
    pose_shape = (*poses.shape[4:-1], out)
    if mask is not None:  # a masked child votes for zero, and so for nothing
        poses = poses * ops.cast(ops.reshape(mask, (*ops.shape(mask), *[1] * (len(poses.shape) - 4))), poses.dtype)
    if iterations == 1:
        sums = summed_votes(windows, poses, kernel) / parents
        return squash(sums if bias is None else sums + ops.cast(bias, sums.dtype), tuple(range(2, len(sums.shape))))
    bias = ops.zeros((parents, *pose_shape), poses.dtype) if bias is None else ops.cast(bias, poses.dtype)
    bias = ops.reshape(bias, (parents, -1))
    shape = (windows.positions, parents, math.prod(pose_shape))

    def couplings_of(votes, attended):
        return softmax(over_entries(attended, votes), axis=1)

    def forward(poses, shared):
        kernel, bias = shared
        votes = make_votes(windows, poses, kernel).votes
        biased = [ops.sum(votes, axis=-1) / parents + bias]
        attended = squash(biased[0])
        for _ in range(1, iterations):
            biased.append(over_children(votes, couplings_of(votes, attended)) + bias)
            attended = attended + squash(biased[-1])
        # One by one: after a stack of them TensorFlow's graph optimizer reports errors.
        return tuple(ops.reshape(x, (-1, *shape)) for x in (squash(biased[-1]), *biased))

    def backward(poses, *kept, shared):
        kernel, _ = shared
        votes = make_votes(windows, poses, kernel).votes
        *biased, upstream = (ops.reshape(x, (-1, *shape[1:])) for x in kept)
        attended = [0.0]  # the sum of all parents before an iteration
        for x in biased[:-1]:
            attended.append(attended[-1] + squash(x))
        d_attended, d_bias, left, right = 0.0, 0.0, [], []
        for t in reversed(range(iterations)):
            d_sums = squash_gradient(biased[t], upstream)
            d_bias += ops.sum(d_sums, axis=0)
            left.append(d_sums)
            if t == 0:
                right.append(ops.full_like(right[-1], 1 / parents))
                break
            couplings = couplings_of(votes, attended[t])
            d_logits = softmax_gradient(couplings, over_entries(d_sums, votes), axis=1)
            left.append(attended[t])
            right += [couplings, d_logits]
            # Every parent before this iteration is a part of what it attends to.
            upstream = d_attended = d_attended + over_children(votes, d_logits)
        d_votes = ops.matmul(ops.stack(left, axis=-1), ops.stack(right, axis=2))
        d_poses, d_kernel, _ = transposed_votes(d_votes, windows, poses, kernel)
        return d_poses, d_kernel, d_bias

    shapes = [shape] * (1 + iterations)
    parents_at = recomputed_by_examples(forward, backward, examples_per_chunk, [poses], [kernel, bias], shapes)
    return ops.reshape(parents_at, (-1, parents, *pose_shape))
