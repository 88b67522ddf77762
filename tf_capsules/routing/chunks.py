"""Splits work into chunks, and applies a function to some independent examples at a time."""

import functools
import math

from keras import ops


def equal_chunks(total, at_most):
    """Number and size of equal chunks of at most `at_most`: such chunks need the least padding."""
    count = -(-total // at_most)
    count = max(count, 1) if isinstance(count, int) else ops.maximum(count, 1)
    return count, -(-total // count)


def by_examples(function, size, arrays, results, sums=()):
    """`function(*arrays)` for at most `size` examples at a time; None: for all. Callers define the gradient themselves.

    The arrays (batch, ...) are of one dtype, and of known shapes except the batch. The function returns a tuple: an
    array (batch, ...) for each of `results`, then a sum over the examples for each of `sums`, which are shapes without
    the batch. Examples of zeros, which pad the last chunk, must add nothing to the sums.
    """
    if size is None:
        return function(*arrays)
    batch = ops.shape(arrays[0])[0]
    # `batch` is an int, or a tensor in TensorFlow's graphs, or a symbol where JAX infers shapes.
    if not ops.is_tensor(batch) and (not isinstance(batch, int) or batch <= size):
        return function(*arrays)
    count, size = equal_chunks(batch, size)
    widths = [math.prod(x.shape[1:]) for x in arrays]

    def step(previous, packed):
        ends = [sum(widths[:i]) for i in range(1, len(widths))]
        parts = ops.split(packed, ends, axis=1) if ends else [packed]
        found = function(*(ops.reshape(part, (-1, *x.shape[1:])) for part, x in zip(parts, arrays, strict=True)))
        found, added = found[: len(results)], found[len(results) :]
        # TensorFlow's scan needs results shaped like its carried state, and one array of inputs where their length is
        # unknown. Sums are in the carried state only; the results of a step have zeros in their place.
        return (*found, *map(ops.add, previous[len(results) :], added)), (*found, *start[len(results) :])

    packed = ops.concatenate([ops.reshape(x, (batch, -1)) for x in arrays], axis=1)
    packed = ops.reshape(ops.pad(packed, [[0, count * size - batch], [0, 0]]), (count, size, sum(widths)))
    start = [ops.zeros((size, *shape), packed.dtype) for shape in results]
    start += [ops.zeros(shape, packed.dtype) for shape in sums]
    last, found = ops.scan(step, tuple(start), packed)
    examples = tuple(ops.reshape(x, (-1, *x.shape[2:]))[:batch] for x in found[: len(results)])
    return (*examples, *last[len(results) :])


def recomputed_by_examples(forward, backward, size, arrays, shared, results):
    """The first result of `forward`, for at most `size` examples at a time, with the gradient `backward`.

    `forward(*arrays, shared=shared)` returns an array and what else the backward pass needs, of the shapes `results`.
    `backward(*arrays, *what else, upstream, shared=shared)` returns the gradients with respect to the arrays and then
    to each of `shared`; `upstream` is the gradient with respect to the first result. All examples share the arrays
    `shared`, of the same dtype. See `by_examples`.
    """

    @ops.custom_gradient
    def compute(*given):
        arrays, shared = given[:count], given[count:]
        result, *kept = by_examples(functools.partial(forward, shared=shared), size, arrays, results)

        def gradient(*args, upstream=None):
            upstream = args[0] if upstream is None else upstream
            run, given = functools.partial(backward, shared=shared), (*arrays, *kept, upstream)
            return by_examples(run, size, given, [x.shape[1:] for x in arrays], [x.shape for x in shared])

        return result, gradient

    count = len(arrays)
    # The reshape turns a variable into an array: TensorFlow's custom gradients treat variables differently.
    return compute(*(ops.reshape(x, ops.shape(x)) for x in (*arrays, *shared)))
