import numpy as np
import pytest
from backend import array, as_one_program, float64, gradients_of, run
from keras import ops

from tf_capsules.routing import Windows
from tf_capsules.routing.windowed.votes import make_votes, summed_votes, transposed_votes

WINDOWS = Windows(8, 6, (3, 2), (2, 1))  # 3 windows along the rows, the last row in none; 5 along the columns


def arguments(rows, dtype):
    """Poses, kernel and bias."""
    random = np.random.default_rng(0)
    shapes = (5, 8, 6, 3, *rows, 4), (18, 2, 4, 7), (18, 2, *rows, 7)
    return [random.normal(size=shape).astype(dtype) for shape in shapes]


@pytest.mark.parametrize("rows", [(), (3,)])
def test_votes_of_windows_against_einsum(rows):
    poses, kernel, bias = arguments(rows, "float32")
    wanted = np.einsum("bi...d,ijde->bij...e", array(WINDOWS.gather(poses)), kernel) + bias
    votes = run(lambda *x: make_votes(WINDOWS, *x).votes, poses, kernel, bias)  # children last
    wanted = np.moveaxis(wanted.reshape(*wanted.shape[:3], -1), 1, -1)
    np.testing.assert_allclose(votes, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [(), (3,)])
def test_the_transpose_of_votes_is_the_gradient_that_the_backend_finds(rows):
    with float64():
        arrays = arguments(rows, "float64")
        shape = run(lambda *x: make_votes(WINDOWS, *x).votes, *arrays).shape
        direction = np.random.default_rng(1).normal(size=shape)
        wanted = gradients_of(lambda *x: ops.sum(make_votes(WINDOWS, *x).votes * direction))(*arrays)[1]
        found = as_one_program(transposed_votes)(ops.convert_to_tensor(direction), WINDOWS, *arrays[:2])
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(array(a).reshape(b.shape), b, rtol=1e-9, atol=1e-9 * np.abs(b).max())


@pytest.mark.parametrize("rows", [(), (3,)])
def test_a_sum_of_all_votes_is_a_convolution(rows):
    poses, kernel, _ = arguments(rows, "float32")
    wanted = np.einsum("bi...d,ijde->bj...e", array(WINDOWS.gather(poses)), kernel)
    sums = run(lambda *x: summed_votes(WINDOWS, *x), poses, kernel)
    np.testing.assert_allclose(sums, wanted, rtol=1e-5, atol=1e-4)
