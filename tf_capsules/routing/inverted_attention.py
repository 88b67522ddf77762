"""Inverted dot-product attention routing: children attend to the parents of the iteration before (Tsai et al. 2020)."""

import math

from keras import ops

from tf_capsules.hints import Tensor
from tf_capsules.routing.chunks import by_examples
from tf_capsules.routing.precision import at_least_float32
from tf_capsules.routing.votes import Votes, couple, softmax
from tf_capsules.routing.windowed_votes import make_votes, over_children, over_entries, summed_votes, transposed_votes
from tf_capsules.routing.windows import Windows

# Under sums that may be of nothing.
_TINY = 1e-9


def inverted_attention(
    votes: Votes,
    parents: Tensor | None = None,
    *,
    scale: float = 1.0,
    weights: Tensor | None = None,
    return_moments: bool = False,
    return_couplings: bool = False,
):
    """One routing iteration: each child shares its vote out among the parents, by how well it agrees with each.

    Source: Tsai et al. 2020, section 3, eqs. 2 to 4, without the layer normalization that follows in the layers. It is
    attention turned round: the softmax is over those that are asked, the parents, not over those that ask.

    Args:
        votes: what answers for the votes (`tf_capsules.routing.votes`).
        parents: poses of the iteration before, (batch or 1, parents, *pose); None: zeros, with which all agree alike.
        scale: factor on the agreement.
        weights: (batch, children), what a child's couplings are multiplied by, its activation or a mask; None: 1.
        return_moments: also return what the parents' activations are made of.
        return_couplings: also return the couplings.

    Returns:
        The coupled sums of votes, (batch, parents, *pose); with `return_moments` also the sums of the couplings,
        (batch, parents), and the variances of the votes so coupled, (batch, parents, *pose); with `return_couplings`
        also the couplings (batch, children, parents), which sum to the child's weight over the parents.
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
        masses, _, variances = votes.moments(couplings, epsilon=_TINY)
        results += [ops.sum(masses, axis=1), variances]
    if return_couplings:
        results.append(ops.broadcast_to(couplings, (votes.batch, votes.children, votes.parents)))
    return results if len(results) > 1 else results[0]


def distinct_inverted_attention(
    poses: Tensor,
    parents: Tensor,
    kernel: Tensor,
    *,
    chunk: int,
    scale: float = 1.0,
    weights: Tensor | None = None,
):
    """`inverted_attention` where each pair of a child and a parent has its own matrix: nothing is kept of the pairs.

    In place of the votes the poses are multiplied by the couplings, and a parent is transformed back to the child's
    side, as in `DistinctVotes`: for a few examples at a time, and again for the gradient, which is of first order only.

    Args:
        poses: (batch, children, d) or (batch, children, rows, d).
        parents: poses of the iteration before, (batch, parents, *pose).
        kernel: (children, parents, d, e).
        chunk: examples at a time.
        scale, weights: as above.

    Returns:
        The coupled sums of votes, (batch, parents, *pose).
    """
    poses, parents, kernel = (at_least_float32(x) for x in (poses, parents, kernel))
    children, count, columns, out = kernel.shape
    rows = math.prod(poses.shape[2:-1])
    pose = (count, *poses.shape[2:-1], out)
    # Axis legend as in `tf_capsules.routing.votes`. Children last, the axis long enough to be worked on as vectors.
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
        """(j, b r, e) as the children have it, (j, b, r, d, i)."""
        x = ops.matmul(x, ops.transpose(matrices, (0, 2, 1)))
        return ops.reshape(x, (count, -1, rows, columns, children))

    def agreement(x, parents):
        return ops.sum(parents * x[None], axis=(2, 3))  # (j, b, i)

    def scaled(x, shares):
        return ops.reshape(shares[:, :, None, None] * x[None], (count, -1, columns * children))

    def forward(matrices, x, parents, *weights):
        couplings = softmax(scale * agreement(x, back(matrices, parents_first(parents))), axis=0)
        shares = couplings * weights[0] if weights else couplings
        return (examples_first(ops.matmul(scaled(x, shares), matrices)),)

    def backward(matrices, x, parents, upstream, *weights):
        parents, upstream = parents_first(parents), parents_first(upstream)
        seen, seen_upstream = back(matrices, parents), back(matrices, upstream)
        couplings = softmax(scale * agreement(x, seen), axis=0)
        d_shares = agreement(x, seen_upstream)
        d_weights = [ops.sum(d_shares * couplings, axis=0)] if weights else []
        shares, d_couplings = (y * weights[0] if weights else y for y in (couplings, d_shares))
        d_logits = couplings * (d_couplings - ops.sum(d_couplings * couplings, axis=0))
        d_agreement = scale * d_logits
        d_x = ops.sum(shares[:, :, None, None] * seen_upstream + d_agreement[:, :, None, None] * seen, axis=0)
        from_parents = scaled(x, d_agreement)
        d_parents = examples_first(ops.matmul(from_parents, matrices))
        d_matrices = ops.matmul(ops.transpose(scaled(x, shares), (0, 2, 1)), upstream)
        d_matrices = d_matrices + ops.matmul(ops.transpose(from_parents, (0, 2, 1)), parents)
        return d_x, d_parents, *d_weights, d_matrices

    parents = ops.reshape(parents, (-1, count, rows, out))
    return ops.reshape(_routed(forward, backward, chunk, parents.shape[1:], matrices, x, parents, *extra), (-1, *pose))


def windowed_inverted_attention(
    poses: Tensor,
    parents: Tensor | None,
    kernel: Tensor,
    *,
    windows: Windows,
    chunk: int | None,
    scale: float = 1.0,
    weights: Tensor | None = None,
    return_moments: bool = False,
):
    """`inverted_attention` in windows, of whose votes none are kept: the types at each parent position compete.

    Without `parents` it is a plain convolution. With them the votes exist for a few examples at a time and are made
    again for the gradient, which is of first order only.

    Args:
        poses: (batch, height, width, types, d) or (batch, height, width, types, rows, d).
        parents: poses of the iteration before, (batch * positions, parents, *pose), or None.
        kernel: (children of a window, parents, d, e).
        windows: `tf_capsules.routing.windows.Windows`.
        chunk: examples whose votes exist at a time.
        scale, weights, return_moments: as above, the weights (batch, height, width, types).

    Returns:
        Sums (batch * positions, parents, *pose); with `return_moments` also sums of couplings (batch * positions,
        parents) and variances, shaped like the first.
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
    # The reshape makes an array of a variable: TensorFlow's custom gradients treat variables apart.
    kernel = ops.reshape(kernel, kernel.shape)
    shape = (windows.positions, count, entries)
    # Of a parent the sum, and where moments are asked for also the sum of squares and that of the couplings.
    width = 2 * entries + 1 if return_moments else entries
    shape_of_sums = (*shape[:2], width)

    def split(x):
        """What `forward` has joined: sums, sums of squares and sums of couplings; the last two may be empty."""
        x = ops.reshape(x, (-1, count, width))
        return x[..., :entries], x[..., entries : 2 * entries], x[..., 2 * entries :]

    def couplings_of(votes, parents):
        logits = scale * over_entries(parents, votes)
        return ops.softmax(logits, axis=1) if count > 1 else ops.ones_like(logits)

    def weighted(couplings, weights):
        return couplings * windows.gather(weights[0])[:, None] if weights else couplings

    def forward(kernel, poses, parents, *weights):
        votes = make_votes(windows, poses, kernel).votes
        couplings = weighted(couplings_of(votes, ops.reshape(parents, (-1, *shape[1:]))), weights)
        sums = [over_children(votes, couplings)]
        if return_moments:
            sums += [over_children(ops.square(votes), couplings), ops.sum(couplings, axis=-1, keepdims=True)]
        return (ops.reshape(ops.concatenate(sums, axis=-1), (-1, *shape_of_sums)),)

    def backward(kernel, poses, parents, upstream, *weights):
        votes = make_votes(windows, poses, kernel).votes
        parents = ops.reshape(parents, (-1, *shape[1:]))
        upstream, d_squares, d_masses = split(upstream)
        couplings = couplings_of(votes, parents)
        shares = weighted(couplings, weights)
        d_shares = over_entries(upstream, votes)
        if return_moments:
            d_shares = d_shares + over_entries(d_squares, ops.square(votes)) + d_masses
        d_weights = [windows.scatter(ops.sum(d_shares * couplings, axis=1))] if weights else []
        d_couplings = weighted(d_shares, weights)
        d_logits = couplings * (d_couplings - ops.sum(d_couplings * couplings, axis=1, keepdims=True))
        d_agreement = scale * d_logits
        d_parents = ops.reshape(over_children(votes, d_agreement), (-1, *shape))
        # Sums and agreements each add an outer product, of entries and children.
        left = ops.stack([upstream, parents], axis=-1)
        d_votes = ops.matmul(left, ops.stack([shares, d_agreement], axis=2))
        if return_moments:
            d_votes = d_votes + 2 * d_squares[..., None] * shares[:, :, None] * votes
        d_poses, d_kernel, _ = transposed_votes(d_votes, windows, poses, kernel)
        return d_poses, d_parents, *d_weights, d_kernel

    parents = ops.reshape(at_least_float32(parents), (-1, *shape))
    sums, squares, masses = split(_routed(forward, backward, chunk, shape_of_sums, kernel, poses, parents, *extra))
    results = [ops.reshape(sums, (-1, count, *pose_shape))]
    if return_moments:
        means = sums / (masses + _TINY)
        variances = ops.maximum(squares / (masses + _TINY) - ops.square(means), 0)
        results += [masses[..., 0], ops.reshape(variances, (-1, count, *pose_shape))]
    return results if return_moments else results[0]


def _routed(forward, backward, chunk, result, kernel, poses, parents, *weights):
    """`forward`, whose gradient is `backward`, of a few examples at a time.

    Args:
        forward: of kernel, poses, parents and weights; it returns a tuple of one array.
        backward: the same, and what comes down after the parents; it returns gradients of poses, parents, weights, and
            last of the kernel.
        chunk: how many examples.
        result: shape of what `forward` returns, without the batch.
        kernel, poses, parents, weights: arrays, all but the kernel (batch, ...).
    """

    @ops.custom_gradient
    def route(kernel, poses, parents, *weights):
        (sums,) = by_examples(lambda *given: forward(kernel, *given), chunk, (poses, parents, *weights), [result])

        def gradient(*args, upstream=None):
            given = (poses, parents, args[0] if upstream is None else upstream, *weights)
            shapes = [x.shape[1:] for x in (poses, parents, *weights)]
            *found, d_kernel = by_examples(lambda *x: backward(kernel, *x), chunk, given, shapes, [kernel.shape])
            return d_kernel, *found

        return sums, gradient

    return route(kernel, poses, parents, *weights)
