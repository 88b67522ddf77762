import numpy as np
import pytest
from backend import float64, gradients_of, slow_on_jax
from keras import ops

from tf_capsules.routing import Windows, dynamic_routing
from tf_capsules.routing.votes import TransformedVotes
from tf_capsules.routing.windowed.dynamic import windowed_dynamic_routing

WINDOWS = Windows(8, 6, (3, 2), (2, 1))  # 3 windows along the rows, the last row in none; 5 along the columns


def arguments(rows, dtype):
    """Poses, kernel, bias, and a random mask that masks one example completely."""
    random = np.random.default_rng(0)
    shapes = (5, 8, 6, 3, *rows, 4), (18, 2, 4, 7), (2, *rows, 7)
    mask = random.integers(0, 2, size=shapes[0][:4])
    mask[3] = 0
    return [random.normal(size=shape).astype(dtype) for shape in shapes], mask.astype(bool)


def in_windows(poses, kernel, bias, mask, iterations):
    options = dict(windows=WINDOWS, examples_per_chunk=2, bias=bias, mask=mask)
    return windowed_dynamic_routing(poses, kernel, iterations, **options)


def over_stored_votes(poses, kernel, bias, mask, iterations):
    votes = TransformedVotes(WINDOWS.gather(poses), kernel).store()
    mask = None if mask is None else WINDOWS.gather(ops.convert_to_tensor(mask))
    return dynamic_routing(votes, iterations, bias=bias, mask=mask)


def weighted(form, mask, iterations):
    """A scalar in which every entry of the result has a weight of its own, for gradients."""

    def value(*arrays):
        parents = form(*arrays, mask, iterations)
        weights = np.arange(np.prod(parents.shape[1:])).reshape(parents.shape[1:]) % 5
        return ops.sum(ops.square(parents) * weights.astype(parents.dtype.name)) + ops.sum(parents)

    return value


@slow_on_jax
@pytest.mark.parametrize("dtype, tolerance", [("float64", 1e-9), ("float32", 2e-5)])
@pytest.mark.parametrize("iterations, masked", [(1, True), (2, False), (3, True)])
@pytest.mark.parametrize("rows", [(), (3,)])
def test_windowed_routing_equals_stored_votes_in_value_and_gradient(rows, iterations, masked, dtype, tolerance):
    with float64():
        arrays, mask = arguments(rows, dtype)
        mask = mask if masked else None
        wanted = gradients_of(weighted(over_stored_votes, mask, iterations))(*arrays)
        found = gradients_of(weighted(in_windows, mask, iterations))(*arrays)
    for a, b in zip([found[0], *found[1]], [wanted[0], *wanted[1]], strict=True):
        assert np.isfinite(a).all() and a.shape == b.shape and a.dtype == dtype
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * np.abs(b).max())
