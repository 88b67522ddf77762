"""A function of examples that don't depend on each other, applied to a few of them at a time."""

import math

from keras import ops


def by_examples(function, size, arrays, results, sums=()):
    """`function(*arrays)`, on at most so many examples at a time: what it makes on its way exists for those only.

    No gradient goes through this.

    Args:
        function: of arrays (batch, ...). It returns a tuple of arrays: as many (batch, ...) as `results` says, then as
            many sums over the examples as `sums` says. For examples of zeros, which fill up the last chunk, its sums
            are zero.
        size: examples.
        arrays: arrays (batch, ...) of one dtype and, but for the batch, of known shapes.
        results, sums: shapes, without the batch, of what the function returns, which is of the same dtype.

    Returns:
        What the function returns for the whole batch, as a tuple.
    """
    batch = ops.shape(arrays[0])[0]
    # Known, or a tensor in TensorFlow's graphs; JAX has a symbol where it only asks for shapes.
    if not ops.is_tensor(batch) and (not isinstance(batch, int) or batch <= size):
        return function(*arrays)
    count = -(-batch // size)
    count = ops.maximum(count, 1) if ops.is_tensor(count) else max(count, 1)
    size = -(-batch // count)  # chunks of one size, so that little has to be filled up
    widths = [math.prod(x.shape[1:]) for x in arrays]

    def step(previous, packed):
        parts = ops.split(packed, [sum(widths[:i]) for i in range(1, len(widths))], axis=1)
        found = function(*(ops.reshape(part, (-1, *x.shape[1:])) for part, x in zip(parts, arrays, strict=True)))
        found, added = found[: len(results)], found[len(results) :]
        # TensorFlow's scan takes for its results the shapes of what it carries along, and a single array of inputs
        # where it doesn't know how many there are. Sums are only carried: what is kept of each step is the zeros.
        return (*found, *map(ops.add, previous[len(results) :], added)), (*found, *start[len(results) :])

    packed = ops.concatenate([ops.reshape(x, (batch, -1)) for x in arrays], axis=1)
    packed = ops.reshape(ops.pad(packed, [[0, count * size - batch], [0, 0]]), (count, size, sum(widths)))
    start = [ops.zeros((size, *shape), packed.dtype) for shape in results]
    start += [ops.zeros(shape, packed.dtype) for shape in sums]
    last, found = ops.scan(step, tuple(start), packed)
    examples = tuple(ops.reshape(x, (-1, *x.shape[2:]))[:batch] for x in found[: len(results)])
    return (*examples, *last[len(results) :])
