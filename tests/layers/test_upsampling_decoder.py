import numpy as np
import pytest
from backend import array

from tf_capsules.layers import UpsamplingDecoder


def test_images_have_48_pixels_a_side_between_0_and_1():
    decoder = UpsamplingDecoder(channels=3)
    images = array(decoder(np.random.default_rng(0).normal(size=(2, 5, 7)).astype("float32")))
    assert images.shape == (2, 48, 48, 3) == decoder.compute_output_shape((2, 5, 7))
    assert 0 < images.min() < images.max() < 1
    assert [tuple(w.shape) for w in decoder.weights][::2] == [
        *((35, 64), (3, 3, 1, 64), (3, 3, 64, 128), (3, 3, 128, 128), (3, 3, 128, 3))
    ]


def test_what_does_not_fit_is_named():
    with pytest.raises(ValueError, match="`channels` must be a whole number of at least 1. Received: 0"):
        UpsamplingDecoder(0)
    with pytest.raises(ValueError, match="needs to know the capsules"):
        UpsamplingDecoder().build((None, None, 4))
