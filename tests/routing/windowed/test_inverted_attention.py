import numpy as np
import pytest
from backend import float64, gradients_of
from keras import ops

from tf_capsules.routing import Windows, inverted_attention
from tf_capsules.routing.votes import TransformedVotes
from tf_capsules.routing.windowed.inverted_attention import windowed_inverted_attention

WINDOWS = Windows(8, 6, (3, 2), (2, 1))  # 3 windows along the rows, the last row in none; 5 along the columns


def arguments(rows, dtype):
    """Poses, kernel, parents, and a random mask that masks one example completely."""
    random = np.random.default_rng(0)
    arrays = (
        random.normal(size=(5, 8, 6, 3, *rows, 4)),
        random.normal(size=(18, 2, 4, 5)),
        random.normal(size=(5 * WINDOWS.positions, 2, *rows, 5)),
    )
    mask = random.integers(0, 2, size=(5, 8, 6, 3))
    mask[3] = 0
    return [x.astype(dtype) for x in arrays], mask.astype(bool)


def in_windows(poses, kernel, parents, mask, chunk=2):
    options = dict(windows=WINDOWS, examples_per_chunk=chunk, scale=0.3, weights=mask)
    return windowed_inverted_attention(poses, parents, kernel, **options)


def over_stored_votes(poses, kernel, parents, mask):
    votes = TransformedVotes(WINDOWS.gather(poses), kernel).store()
    mask = None if mask is None else WINDOWS.gather(ops.convert_to_tensor(mask))
    return inverted_attention(votes, parents, scale=0.3, weights=mask)


def weighted(form, mask, first):
    """A scalar in which every entry of the result has a weight of its own, for gradients."""

    def value(*arrays):
        sums = form(*arrays[:2], None if first else arrays[2], mask)
        weights = ops.reshape(ops.cast(ops.arange(100 * 5) % 7, sums.dtype), (-1, 5))[: sums.shape[1]]
        weights = weights[:, None] if len(sums.shape) == 4 else weights
        return ops.sum(ops.square(sums) * weights) + ops.sum(sums)

    return value


@pytest.mark.parametrize("dtype, tolerance", [("float64", 1e-9), ("float32", 2e-5)])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("rows", [(), (3,)])
def test_windowed_routing_equals_stored_votes_in_value_and_gradient(rows, first, masked, dtype, tolerance):
    with float64():
        arrays, mask = arguments(rows, dtype)
        arrays, mask = arrays[: 3 - first], mask if masked else None
        wanted = gradients_of(weighted(over_stored_votes, mask, first))(*arrays)
        found = gradients_of(weighted(in_windows, mask, first))(*arrays)
    for a, b in zip([found[0], *found[1]], [wanted[0], *wanted[1]], strict=True):
        assert np.isfinite(a).all() and a.shape == b.shape and a.dtype == dtype
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * np.abs(b).max())


def test_windowed_gradients_compiled_by_xla_equal_those_of_stored_votes():
    arrays, mask = arguments((), "float32")
    wanted = gradients_of(weighted(over_stored_votes, mask, False))(*arrays)[1]
    found = gradients_of(weighted(in_windows, mask, False), jit=True)(*arrays)[1]
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5 * np.abs(b).max())
