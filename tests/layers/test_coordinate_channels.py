import keras
import numpy as np
import pytest
from backend import array, float64

from tf_capsules.layers import CoordinateChannels


def expected(features):
    batch, height, width, channels = features.shape
    result = np.zeros((batch, height, width, channels + 2), "float32")
    result[..., :channels] = features
    for row in range(height):
        for column in range(width):
            result[:, row, column, channels] = 2 * row / (height - 1) - 1 if height > 1 else 0
            result[:, row, column, channels + 1] = 2 * column / (width - 1) - 1 if width > 1 else 0
    return result


@pytest.mark.parametrize("shape", [(2, 4, 5, 3), (3, 1, 2, 1), (1, 7, 1, 2)])
def test_values_also_where_the_size_is_unknown(shape):
    features = np.random.default_rng(0).normal(size=shape).astype("float32")
    np.testing.assert_allclose(array(CoordinateChannels()(features)), expected(features), atol=1e-6)
    inputs = keras.Input((None, None, shape[-1]))
    model = keras.Model(inputs, CoordinateChannels()(inputs))
    assert model.output_shape == (None, None, None, shape[-1] + 2)
    np.testing.assert_allclose(model.predict(features, verbose=0), expected(features), atol=1e-6)


@pytest.mark.parametrize("shape", [(None, 4, 5), (None, 4, 5, None)])
def test_feature_maps_that_do_not_fit_are_named(shape):
    with pytest.raises(ValueError, match=f"CoordinateChannels.*5{', None' if len(shape) == 4 else ''}"):
        CoordinateChannels().build(shape)


def test_whole_numbers_keep_their_coordinates():
    images = np.full((1, 3, 2, 1), 7, "uint8")
    np.testing.assert_allclose(array(CoordinateChannels()(images)), expected(images))


def test_float64_keeps_its_digits():
    with float64():
        rows = array(CoordinateChannels(dtype="float64")(np.zeros((1, 7, 1, 1))))[0, :, 0, 1]
    np.testing.assert_allclose(rows, np.linspace(-1, 1, 7), rtol=1e-15)
