import numpy as np
import pytest
from backend import array, gradients_of
from keras import ops

from tf_capsules.routing import Windows

RANDOM = np.random.default_rng(0)
# Grid of children, window, strides, grid of parents.
CASES = [((5, 7), (3, 2), (1, 1), (3, 6)), ((6, 5), (3, 3), (2, 1), (2, 3)), ((8, 5), (2, 1), (3, 2), (3, 3))]


def windows_by_hand(size, kernel, strides, shape):
    """The children (row, column) that each position sees, in order."""
    return [
        [(y * strides[0] + r, x * strides[1] + c) for r in range(kernel[0]) for c in range(kernel[1])]
        for y in range(shape[0])
        for x in range(shape[1])
    ]


@pytest.mark.parametrize("size, kernel, strides, shape", CASES)
def test_gather_and_scatter(size, kernel, strides, shape):
    windows, seen = Windows(*size, kernel, strides), windows_by_hand(size, kernel, strides, shape)
    assert windows.shape == shape
    x = RANDOM.normal(size=(2, *size, 4, 3)).astype("float32")
    expected = np.array([[[x[b, r, c] for r, c in children] for children in seen] for b in range(2)])
    expected = expected.reshape(2 * len(seen), len(seen[0]) * 4, 3)
    np.testing.assert_array_equal(array(windows.gather(x)), expected)

    values = RANDOM.normal(size=expected.shape[:2]).astype("float32")
    sums, highest = np.zeros((2, *size, 4)), np.full((2, *size, 4), -9.0)
    for index, row in enumerate(values.reshape(2, len(seen), len(seen[0]), 4).transpose(1, 0, 2, 3)):
        for child, (r, c) in enumerate(seen[index]):
            sums[:, r, c] += row[:, child]
            highest[:, r, c] = np.maximum(highest[:, r, c], row[:, child])
    np.testing.assert_allclose(array(windows.scatter(values)), sums, atol=1e-5)
    np.testing.assert_allclose(array(windows.scatter(values, ops.max, -9.0)), highest, atol=1e-6)


def test_cover_of_smallnorb():
    """Hinton et al. 2018, first layer: of 14 rows, even inner rows are in two windows, the last row is in none."""
    windows = Windows(14, 14, (3, 3), (2, 2))
    cover = array(windows.scatter(np.ones((36, 9), "float32")))[0, :, :, 0]
    axis = np.array([1, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 1, 0])
    assert windows.shape == (6, 6)
    np.testing.assert_array_equal(cover, axis[:, None] * axis)


@pytest.mark.parametrize("size, kernel, strides, shape", CASES)
def test_a_child_divides_itself_among_all_that_see_it(size, kernel, strides, shape):
    windows, seen = Windows(*size, kernel, strides), windows_by_hand(size, kernel, strides, shape)
    logits = 3 * RANDOM.normal(size=(2 * len(seen), len(seen[0]) * 4, 5)).astype("float32")
    by_window = logits.reshape(2, len(seen), len(seen[0]), 4, 5).astype("float64")
    sums = np.zeros((2, *size, 4))
    for position, children in enumerate(seen):
        for child, (r, c) in enumerate(children):
            sums[:, r, c] += np.exp(by_window[:, position, child]).sum(-1)
    expected = [
        [np.exp(by_window[:, position, child]) / sums[:, r, c][..., None] for child, (r, c) in enumerate(children)]
        for position, children in enumerate(seen)
    ]
    expected = np.array(expected).transpose(2, 0, 1, 3, 4).reshape(logits.shape)
    np.testing.assert_allclose(array(windows.couple(logits)), expected, atol=1e-6)
    # Logits far beyond the range of an exponential: one competitor gets everything, and gradients stay finite.
    value, (slope,) = gradients_of(lambda x: ops.sum(windows.couple(x) * logits))(1e6 * logits)
    assert np.isfinite(value) and np.isfinite(slope).all()


def test_a_grid_smaller_than_the_window_is_named():
    with pytest.raises(ValueError, match=r"4 x 2 children is smaller than the window \(3, 3\)"):
        Windows(4, 2, (3, 3))
