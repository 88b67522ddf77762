import numpy as np
import pytest
from backend import array

from tf_capsules.layers import DepthwisePrimaryCapsules


def reference(x, kernel, bias, strides, pose):
    """Each position and channel by itself."""
    rows, columns, _, channels = kernel.shape
    height, width = ((size - k) // strides + 1 for size, k in zip(x.shape[1:3], (rows, columns), strict=True))
    out = np.zeros((len(x), height, width, channels))
    for row in range(height):
        for column in range(width):
            window = x[:, row * strides :, column * strides :][:, :rows, :columns]
            for channel in range(channels):
                out[:, row, column, channel] = (window[..., channel] * kernel[:, :, 0, channel]).sum((1, 2))
    out = (out + bias).reshape(*out.shape[:3], channels // pose, pose)
    norm = np.linalg.norm(out, axis=-1, keepdims=True)
    return (1 - np.exp(-norm)) * out / norm


@pytest.mark.parametrize(
    ("kernel_size", "strides", "grid"),
    [(None, 1, (1, 1)), ((3, 4), 2, (1, 1)), ((2, 3), 1, (3, 3)), ((2, 3), 2, (2, 2))],
)
def test_each_channel_has_its_filter(kernel_size, strides, grid):
    x = np.random.default_rng(0).normal(size=(2, 4, 5, 6)).astype("float32")
    layer = DepthwisePrimaryCapsules(3, kernel_size, strides, bias_initializer="random_normal")
    found = array(layer(x))
    assert found.shape == (2, *grid, 2, 3) == layer.compute_output_shape(x.shape)
    wanted = reference(x, array(layer.kernel.value), array(layer.bias.value), strides, 3)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_a_filter_is_drawn_for_the_pixels_that_it_sees():
    layer = DepthwisePrimaryCapsules(8)
    layer.build((None, 9, 9, 128))
    assert np.std(array(layer.kernel.value)) == pytest.approx(np.sqrt(2 / 81), rel=0.05)


@pytest.mark.parametrize(
    ("options", "shape", "message"),
    [
        (dict(pose=0), (1, 4, 4, 8), "`pose` must be a whole number of at least 1. Received: 0"),
        (dict(pose=3), (1, 4, 4, 8), "`pose` 3 must divide the 8 channels"),
        (dict(pose=4, kernel_size=5), (1, 4, 4, 8), "needs a feature map of at least that size"),
        (dict(pose=4), (1, 4, 8), r"takes \(batch, height, width, channels\). Received input shape \(1, 4, 8\)"),
    ],
)
def test_what_does_not_fit_is_named(options, shape, message):
    with pytest.raises(ValueError, match=message):
        DepthwisePrimaryCapsules(**options)(np.zeros(shape))


def test_sizes_that_are_not_known_are_none():
    assert DepthwisePrimaryCapsules(4, 3, 2).compute_output_shape((None, None, 9, 8)) == (None, None, 4, 2, 4)
    assert DepthwisePrimaryCapsules(4).compute_output_shape((None, None, 9, 8)) == (None, None, 1, 2, 4)


def test_a_map_smaller_than_the_kernel_has_no_shape():
    with pytest.raises(ValueError, match=r"kernel \(5, 5\) needs a feature map of at least that size"):
        DepthwisePrimaryCapsules(4, 5).compute_output_shape((None, 4, 9, 8))
