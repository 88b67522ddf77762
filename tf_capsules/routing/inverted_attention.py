"""Inverted dot-product attention routing: children attend to the parents of the iteration before (Tsai et al. 2020)."""

import math

from keras import ops

from tf_capsules.routing.chunks import by_examples
from tf_capsules.routing.precision import at_least_float32
from tf_capsules.routing.votes import couple
from tf_capsules.routing.windowed_votes import make_votes, over_children, over_entries, summed_votes, transposed_votes


def inverted_attention(votes, parents=None, *, scale=1.0, mask=None, return_couplings=False):
    """One routing iteration: each child shares its vote out among the parents, by how well it agrees with each.

    Source: Tsai et al. 2020, section 3, eqs. 2 to 5, without the layer normalization that follows in the layers. It is
    attention turned round: the softmax is over those that are asked, the parents, not over those that ask.

    Args:
        votes: what answers for the votes (`tf_capsules.routing.votes`).
        parents: poses of the iteration before, (batch or 1, parents, *pose); None: zeros, with which all agree alike.
        scale: factor on the agreement.
        mask: (batch, children), true for the children that take part; or None for all.
        return_couplings: also return the couplings.

    Returns:
        The coupled sums of votes, (batch, parents, *pose); with `return_couplings` also the couplings (batch, children,
        parents), which sum to 1 over the parents unless masked.
    """
    if parents is None:
        couplings = ops.ones((1, votes.children, 1), votes.dtype) / ops.cast(votes.parents, votes.dtype)
        couplings = couplings if mask is None else couplings * ops.cast(mask, votes.dtype)[:, :, None]
    else:
        parents = ops.cast(parents, votes.dtype)
        parents = ops.broadcast_to(parents, (votes.batch, votes.parents, *votes.pose_shape))
        couplings = couple(scale * votes.agreement(parents), mask=mask)
    sums = votes.weighted_sum(couplings)
    if return_couplings:
        return sums, ops.broadcast_to(couplings, (votes.batch, votes.children, votes.parents))
    return sums


def windowed_inverted_attention(poses, parents, kernel, *, windows, chunk, scale=1.0, mask=None):
    """`inverted_attention` in windows, of whose votes none are kept: the types at each parent position compete.

    Without `parents` it is a plain convolution. With them the votes exist for a few examples at a time and are made
    again for the gradient, which is of first order only.

    Args:
        poses: (batch, height, width, types, d) or (batch, height, width, types, rows, d).
        parents: poses of the iteration before, (batch * positions, parents, *pose), or None.
        kernel: (children of a window, parents, d, e).
        windows: `tf_capsules.routing.windows.Windows`.
        chunk: examples whose votes exist at a time.
        scale, mask: as above, the mask (batch, height, width, types).

    Returns:
        (batch * positions, parents, *pose).
    """
    poses, kernel = at_least_float32(poses), at_least_float32(kernel)
    _, count, _, out = kernel.shape
    pose_shape = (*poses.shape[4:-1], out)
    masks = () if mask is None else (ops.cast(mask, poses.dtype),)
    if parents is None:
        for keep in masks:
            poses = poses * ops.reshape(keep, (*ops.shape(keep), *[1] * (len(poses.shape) - 4)))
        return summed_votes(windows, poses, kernel) / count
    # The reshape makes an array of a variable: TensorFlow's custom gradients treat variables apart.
    kernel = ops.reshape(kernel, kernel.shape)
    shape = (windows.positions, count, math.prod(pose_shape))

    def couplings_of(votes, parents):
        logits = scale * over_entries(parents, votes)
        return ops.softmax(logits, axis=1) if count > 1 else ops.ones_like(logits)

    def kept(couplings, mask):
        return couplings * windows.gather(mask[0])[:, None] if mask else couplings

    def forward(kernel, poses, parents, *mask):
        votes = make_votes(windows, poses, kernel).votes
        parents = ops.reshape(parents, (-1, *shape[1:]))
        return (ops.reshape(over_children(votes, kept(couplings_of(votes, parents), mask)), (-1, *shape)),)

    def backward(kernel, poses, parents, upstream, *mask):
        votes = make_votes(windows, poses, kernel).votes
        parents, upstream = (ops.reshape(x, (-1, *shape[1:])) for x in (parents, upstream))
        couplings = couplings_of(votes, parents)
        d_couplings = kept(over_entries(upstream, votes), mask)
        d_logits = couplings * (d_couplings - ops.sum(d_couplings * couplings, axis=1, keepdims=True))
        d_agreement = scale * d_logits
        d_parents = ops.reshape(over_children(votes, d_agreement), (-1, *shape))
        # Sums and agreements each add an outer product, of entries and children.
        left = ops.stack([upstream, parents], axis=-1)
        d_votes = ops.matmul(left, ops.stack([kept(couplings, mask), d_agreement], axis=2))
        d_poses, d_kernel, _ = transposed_votes(d_votes, windows, poses, kernel)
        return d_poses, d_parents, d_kernel

    @ops.custom_gradient
    def route(kernel, poses, parents, *mask):
        (sums,) = by_examples(lambda *x: forward(kernel, *x), chunk, (poses, parents, *mask), [shape])

        def gradient(*args, upstream=None):
            arrays = (poses, parents, args[0] if upstream is None else upstream, *mask)
            shapes = [poses.shape[1:], shape]
            found = by_examples(lambda *x: backward(kernel, *x), chunk, arrays, shapes, [kernel.shape])
            return found[2], *found[:2], *map(ops.zeros_like, mask)

        return sums, gradient

    sums = route(kernel, poses, ops.reshape(at_least_float32(parents), (-1, *shape)), *masks)
    return ops.reshape(sums, (-1, count, *pose_shape))
