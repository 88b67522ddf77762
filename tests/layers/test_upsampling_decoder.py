import numpy as np
import pytest
from backend import array

from tf_capsules.layers import Decoder, UpsamplingDecoder


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


def test_against_numpy():
    decoder = UpsamplingDecoder(channels=1)
    random = np.random.default_rng(0)
    poses = random.normal(size=(1, 2, 3)).astype("float32")
    decoder.build(poses.shape)
    for weight in decoder.weights:
        weight.assign(random.normal(size=weight.shape) / np.prod(weight.shape[:-1]) ** 0.5)

    def enlarged(x):  # a new pixel is three parts of its own and one of the nearest neighbour
        for axis in (1, 2):
            place, last = np.arange(x.shape[axis]), x.shape[axis] - 1
            nearest = (np.take(x, np.clip(place + step, 0, last), axis) for step in (-1, 1))
            x = np.stack([0.75 * x + 0.25 * other for other in nearest], axis + 1)
            x = x.reshape(*x.shape[:axis], -1, *x.shape[axis + 2 :])
        return x

    def convolved(x, kernel, bias):
        rows, columns = (size - 2 for size in x.shape[1:3])
        return bias + sum(x[:, i : i + rows, j : j + columns] @ kernel[i, j] for i in range(3) for j in range(3))

    (kernel, bias), *convolutions, last = (
        map(array, one.weights) for one in (decoder.dense, *decoder.convolutions, decoder.last)
    )
    x = (poses.reshape(1, 6) @ kernel + bias).reshape(1, 8, 8, 1)
    for weights in convolutions:
        x = convolved(enlarged(x), *weights)
        x = np.where(x > 0, x, 0.2 * x)
    expected = 1 / (1 + np.exp(-convolved(x, *last)))
    assert expected.std() > 0.01
    np.testing.assert_allclose(array(decoder(poses)), expected, atol=1e-4)


@pytest.mark.parametrize("decoder", [UpsamplingDecoder, lambda: Decoder((2, 2, 1), (3,))])
def test_other_capsules_than_it_was_built_for_are_refused(decoder):
    layer = decoder()
    layer(np.zeros((1, 5, 16), "float32"))
    for shape in ((1, 10, 16), (1, 10, 8), (1, 80)):
        with pytest.raises(ValueError, match="is incompatible with the layer"):
            layer(np.zeros(shape, "float32"))


@pytest.mark.parametrize("decoder", [UpsamplingDecoder, lambda: Decoder((2, 2, 1), (3,))])
def test_weights_of_two_decoders_have_the_same_names(decoder):
    paths = []
    for _ in range(2):
        layer = decoder()
        layer.build((None, 5, 16))
        paths.append([weight.path.partition("/")[2] for weight in layer.weights])
    assert paths[0] == paths[1] and len(set(paths[0])) == len(paths[0])
