import numpy as np
import pytest
from backend import array

from tf_capsules.layers import Decoder


def test_equals_its_formula():
    poses = np.random.default_rng(0).normal(size=(2, 3, 6)).astype("float32")
    decoder = Decoder((4, 5, 2), units=(8, 7), kernel_initializer="he_normal")
    images = array(decoder(poses))
    x = poses.reshape(2, 18)
    weights = [array(w) for w in decoder.weights]
    assert [w.shape for w in weights] == [(18, 8), (8,), (8, 7), (7,), (7, 40), (40,)]
    for kernel, bias in zip(weights[0:4:2], weights[1:4:2], strict=True):
        x = np.maximum(x @ kernel + bias, 0)
    expected = 1 / (1 + np.exp(-(x @ weights[4] + weights[5])))
    np.testing.assert_allclose(images, expected.reshape(2, 4, 5, 2), atol=1e-6)


def test_parameters_of_the_paper():
    decoder = Decoder((28, 28, 1))
    decoder.build((None, 10, 16))
    assert decoder.count_params() == 82_432 + 525_312 + 803_600


def test_units_may_be_an_array():
    assert [Decoder((4, 4, 1), units).units for units in (np.array([8, 9]), [], np.zeros(0))] == [(8, 9), (), ()]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"image_shape": (28, 28)}, r"`image_shape`.*\(28, 28\)"),
        ({"image_shape": (28, 0, 1)}, "`image_shape`.*Received: 0"),
        ({"image_shape": 28}, "`image_shape`.*Received: 28"),
        ({"units": (8, -1)}, "`units`.*Received: -1"),
        ({"units": 8}, "`units`.*Received: 8"),
    ],
)
def test_arguments_out_of_range_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Decoder(**{"image_shape": (4, 5, 1), **options})


def test_an_unknown_number_of_capsules_is_named():
    with pytest.raises(ValueError, match=r"Decoder.*\(None, None, 6\)"):
        Decoder((4, 5, 1)).build((None, None, 6))
