"""Moments of shared votes, worked out for some children at a time."""

import keras
from keras import ops


def moments_in_chunks(votes, couplings, *state, epsilon, near, by_group):
    """`SharedVotes.moments` for about `children_per_chunk` children at a time; the backward pass recomputes each chunk.

    A chunk is one group of children where groups are that large: no array has groups, children and parents at once.
    Else, and where the number of children is unknown, a chunk has as many children of each group.
    """
    batch, groups, rows, columns = votes.batch, votes.groups, votes.rows, votes.columns
    size = batch, votes.children
    given = [ops.reshape(votes.poses, (*size, rows * columns)), ops.broadcast_to(votes.activations, size)[..., None]]
    if not callable(couplings):
        given.append(ops.broadcast_to(couplings, (batch, *ops.shape(couplings)[1:])))
    children = ops.concatenate(given, axis=-1)  # one array: TensorFlow's scan can't take several of unknown length
    kernel, center, bias = votes.kernel, votes.center, () if votes.bias is None else (votes.bias,)
    members = votes.children // groups
    apart = groups > 1 and isinstance(members, int) and votes.children_per_chunk <= members
    if apart:
        chunks = [ops.moveaxis(votes.by_group(children), 2, 0), kernel[:, None], ops.moveaxis(center, 1, 0)[:, :, None]]
        chunks += [x[:, None] for x in bias]
        # Where a group's masses belong among those of all groups.
        chunks.append(ops.eye(groups, dtype=votes.dtype)[:, None, :, None])
        fixed = ()
    else:
        chunks, fixed = [_in_chunks(children, members, votes)], (kernel, center, *bias, 1.0)
    origin = votes._origin
    near = ops.zeros_like(origin) if near is None else ops.stop_gradient(votes._with_rows(near))
    near = ops.broadcast_to(near, (batch, *ops.shape(origin)[1:]))

    @keras.remat
    def sums(children, transformations, near, origin, state):
        poses, activations, own = ops.split(children, [rows * columns, rows * columns + 1], axis=-1)
        poses = ops.reshape(poses, (*ops.shape(poses)[:2], rows, columns))
        kernel, center, *bias = transformations
        chunk = type(votes)(poses, kernel, *bias, activations=activations[..., 0], _center=center)
        chunk._origin = origin
        masses, means, squares = chunk._about_own_means(chunk._sums(couplings if callable(couplings) else own, *state))
        masses = ops.broadcast_to(masses, (batch, chunk.groups, votes.parents))
        weights, means = masses[..., None, None], means - near[:, None]
        # Squares are relative to `near`, so that their sum over chunks loses no digits.
        return masses, ops.sum(weights * means, axis=1), ops.sum(squares + weights * ops.square(means), axis=1)

    @keras.remat  # a dozen arrays of the size of all parents
    def finish(masses, first, second, near, origin):
        mass = ops.sum(masses, axis=1)[..., None, None]
        divisor = mass + epsilon
        # mean - origin = (Σ D V' - ε origin) / (mass + ε), where V' is relative to the origin.
        means = (first + mass * near - epsilon * origin) / divisor
        beyond = means - near
        squares = second - 2 * beyond * first + mass * ops.square(beyond)
        return means, ops.maximum(squares, 0) / divisor

    def step(total, chunk):
        given = (*chunk, *fixed)
        masses, *others = sums(given[0], given[1:-1], near, origin, state)
        masses = masses * given[-1] if by_group else ops.sum(masses, axis=1, keepdims=True)
        return tuple(a + b for a, b in zip(total, (masses, *others), strict=True)), None

    # The gradient of TensorFlow's scan keeps the carried state of each step, so it is kept small.
    start = ops.zeros((batch, groups if by_group else 1, votes.parents), votes.dtype)
    masses, first, second = ops.scan(step, (start, ops.zeros_like(near), ops.zeros_like(near)), tuple(chunks))[0]
    means, variances = finish(masses, first, second, near, origin)
    return masses, votes._shaped(means), votes._shaped(variances)


def _in_chunks(children, members, votes):
    """(batch, children, numbers) as (chunks, batch, children of a chunk, numbers), padded with zeros."""
    count = -(-members // -(-votes.children_per_chunk // votes.groups))
    count = max(count, 1) if isinstance(count, int) else ops.maximum(count, 1)
    size = -(-members // count)  # equal chunks need the least padding
    children = ops.pad(children, [[0, 0], [0, (count * size - members) * votes.groups], [0, 0]])
    children = ops.reshape(children, (votes.batch, count, size * votes.groups, children.shape[-1]))
    return ops.moveaxis(children, 1, 0)
