import keras
import numpy as np
import pytest
from backend import array

from tf_capsules.layers import ConvEMRouting, EMRouting, HeinsenRouting
from tf_capsules.layers.connections import children_of, flatten_grid


def test_flatten_grid():
    grid = np.arange(2 * 3 * 4 * 5 * 6 * 7, dtype="float32").reshape(2, 3, 4, 5, 6, 7)
    np.testing.assert_array_equal(array(flatten_grid(grid)), grid.reshape(2, 60, 6, 7))
    np.testing.assert_array_equal(array(flatten_grid(grid[..., 0])), grid[..., 0].reshape(2, 60, 6))
    assert flatten_grid(grid[0, 0]).shape == (4, 5, 6, 7)
    with pytest.raises(ValueError, match=r"Received shape \(6, 7\)"):
        flatten_grid(grid[0, 0, 0, 0])


def test_number_of_children():
    assert children_of((2, 5, 3)) == 5 and children_of((None, 2, 3, 4, 6, 7)) == 24
    assert children_of((2, None, 3)) is None and children_of((2, 3, None, 4, 5)) is None


@pytest.mark.parametrize("layer", [EMRouting(3, 4), HeinsenRouting(3, 4), ConvEMRouting(3, 4)], ids=lambda x: x.name)
def test_values_of_another_shape_are_refused_when_a_model_is_built(layer):
    poses = keras.Input((5, 5, 2, 4), name="poses")
    with pytest.raises(ValueError, match="must be shaped like `poses` without pose axes"):
        layer(poses, poses)
