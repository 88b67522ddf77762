"""Sums and moments of shared votes, for some children at a time; the backward pass recomputes each chunk."""

import keras
from keras import ops

from tf_capsules.routing.chunks import equal_chunks
from tf_capsules.routing.votes.plan import numbers_per_child


def _packed(votes, couplings):
    """Poses, activations and, unless they are a function, couplings as one array (batch, children, numbers)."""
    size = votes.batch, votes.children
    given = [ops.reshape(votes.poses, (*size, votes.rows * votes.columns))]
    given.append(ops.broadcast_to(votes.activations, size)[..., None])
    if not callable(couplings):
        given.append(ops.broadcast_to(couplings, (votes.batch, *ops.shape(couplings)[1:])))
    return ops.concatenate(given, axis=-1)


def _unpacked(votes, couplings, packed, kernel, center, *bias):
    """The votes of a chunk of children, from the chunk's own transformations, and their couplings."""
    entries = votes.rows * votes.columns
    poses, activations, own = ops.split(packed, [entries, entries + 1], axis=-1)
    poses = ops.reshape(poses, (*ops.shape(poses)[:2], votes.rows, votes.columns))
    some = type(votes)(poses, kernel, *bias, activations=activations[..., 0])
    some.center = center
    return some, couplings if callable(couplings) else own


def sums_in_chunks(votes, couplings, *state):
    """`SharedVotes._sums` for about `children_per_chunk` children at a time, equally many of each group."""
    members = votes.children // votes.groups
    count, size = equal_chunks(members, -(-votes.children_per_chunk // votes.groups))
    # One array: TensorFlow's scan can't take several of unknown length.
    packed = ops.pad(_packed(votes, couplings), [[0, 0], [0, (count * size - members) * votes.groups], [0, 0]])
    packed = ops.reshape(packed, (votes.batch, count, size * votes.groups, packed.shape[-1]))
    transformations = votes.kernel, votes.center, *(() if votes.bias is None else (votes.bias,))

    @keras.remat
    def sums(packed, transformations, state):
        some, own = _unpacked(votes, couplings, packed, *transformations)
        return some._sums(own, *state)

    def step(total, packed):
        return total + sums(packed, transformations, state), None

    features = numbers_per_child(votes.rows, votes.columns)
    start = ops.zeros((votes.batch, votes.groups, features, votes.parents), votes.dtype)
    return ops.scan(step, start, ops.moveaxis(packed, 1, 0))[0]


def moments_by_groups(votes, couplings, *state, epsilon, near, masses_by_group):
    """`SharedVotes.moments`, one group of children at a time: no array has axes of groups, children and parents."""
    origin, groups = votes._origin, votes.groups
    near = ops.zeros_like(origin) if near is None else ops.stop_gradient(votes._with_rows(near))
    near = ops.broadcast_to(near, (votes.batch, *ops.shape(origin)[1:]))

    @keras.remat
    def sums(packed, transformations, near, origin, state):
        group, own = _unpacked(votes, couplings, packed, *transformations)
        group._origin = origin
        found = group._about_own_means(group._sums(own, *state))
        masses, means, squares, rest = (ops.squeeze(x, axis=1) for x in found)
        masses = ops.broadcast_to(masses, (votes.batch, votes.parents))
        weights, means = masses[..., None, None], means - near
        # Squares are relative to `near`, so that their sum over groups loses no digits.
        return masses, weights * means + rest, squares + weights * ops.square(means) + 2 * rest * means

    @keras.remat  # instead of keeping a dozen arrays of the size of all parents
    def finish(masses, first, second, near, origin):
        mass = ops.sum(masses, axis=1)[..., None, None]
        divisor = mass + epsilon
        # mean - origin = (Σ D V' - ε origin) / (mass + ε), where V' is relative to the origin.
        means = (first + mass * near - epsilon * origin) / divisor
        beyond = means - near
        squares = second - 2 * beyond * first + mass * ops.square(beyond)
        return means, ops.maximum(squares, 0) / divisor

    def step(total, given):
        row, packed, *transformations = given
        masses, *others = sums(packed, transformations, near, origin, state)
        masses = masses[:, None]
        added = (row[:, None] * masses if masses_by_group else masses, *others)
        return tuple(a + b for a, b in zip(total, added, strict=True)), None

    # The gradient of TensorFlow's scan keeps the carried state of each step, so the state is small.
    rows = ops.eye(groups, dtype=votes.dtype) if masses_by_group else ops.ones((groups, 1), votes.dtype)
    packed = ops.moveaxis(votes.by_group(_packed(votes, couplings)), 2, 0)
    parts = [rows, packed, votes.kernel[:, None], ops.moveaxis(votes.center, 1, 0)[:, :, None]]
    parts += [] if votes.bias is None else [votes.bias[:, None]]
    masses = ops.zeros((votes.batch, rows.shape[1], votes.parents), votes.dtype)
    start = masses, ops.zeros_like(near), ops.zeros_like(near)
    masses, first, second = ops.scan(step, start, tuple(parts))[0]
    means, variances = finish(masses, first, second, near, origin)
    return masses, votes.shaped(means), votes.shaped(variances)
