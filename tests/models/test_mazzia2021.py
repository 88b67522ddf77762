import numpy as np
import pytest

from tf_capsules.models.mazzia2021 import MULTIMNIST, SMALLNORB, EfficientCapsNet

SMALLNORB_NETWORK = dict(
    image_shape=(48, 48, 2), classes=5, convolutions=SMALLNORB, normalization="instance", decoder="upsampling"
)


def trainable(model):
    return sum(int(np.prod(weight.shape)) for weight in model.trainable_weights)


def test_parameters_are_the_papers():
    mnist = EfficientCapsNet()
    assert (trainable(mnist.encoder), mnist.encoder.count_params()) == (161_824, 161_824 + 576)
    assert mnist.decoder.count_params() == 161 * 512 + 513 * 1024 + 1025 * 784
    smallnorb = EfficientCapsNet(**SMALLNORB_NETWORK)
    assert (trainable(smallnorb.encoder), smallnorb.decoder.count_params()) == (151_664, 229_570)


def test_the_primary_capsules_of_multimnist_have_one_position():
    network = EfficientCapsNet((36, 36, 1), 10, MULTIMNIST, primary_kernel_size=5, primary_strides=2)
    assert network.encoder.get_layer("primary_capsules").output.shape == (None, 1, 1, 16, 8)


def test_the_reconstruction_has_the_weight_of_a_mean():
    assert EfficientCapsNet().reconstruction_weight == pytest.approx(0.0005)
    assert EfficientCapsNet(**SMALLNORB_NETWORK).reconstruction_weight == pytest.approx(0.392 / (48 * 48 * 2))
    assert EfficientCapsNet(reconstruction_weight=0.3).reconstruction_weight == 0.3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(normalization="layer"), "`normalization` must be one of 'batch', 'instance'. Received: 'layer'"),
        (dict(decoder="large"), "`decoder` must be one of 'dense', 'upsampling', None. Received: 'large'"),
        (dict(decoder="upsampling"), r"makes images of 48x48. Received image_shape \(28, 28, 1\)"),
        (dict(image_shape=(10, 28, 1)), r"at least 11 x 11. Received: \(10, 28, 1\)"),
        (dict(image_shape=(28, 28, 1), convolutions=MULTIMNIST, primary_kernel_size=5), "at least 29 x 29. Received"),
        (dict(image_shape=48, decoder="upsampling"), "`image_shape` must be .*Received: 48"),
        (dict(convolutions=((32, 5),)), r"list of \(filters, kernel size, strides\). Received: \(\(32, 5\),\)"),
        (dict(convolutions=((32, 5, "1"),)), "`convolutions` must be a whole number of at least 1. Received: '1'"),
        (dict(primary_kernel_size="5"), "`primary_kernel_size`.*Received: '5'"),
        (dict(weights="mazzia2021-mnist"), "it has no weights of a decoder; make the network without one"),
        (dict(pose=7), "`pose` 7 must divide the 128 channels"),
        (dict(weights="nowhere.h5"), "no such file, nor a shipped set"),
    ],
)
def test_what_does_not_fit_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        EfficientCapsNet(**options)


def test_weights_with_another_decoder_are_not_said_to_have_none(tmp_path):
    EfficientCapsNet(**SMALLNORB_NETWORK).save_weights(tmp_path / "other.weights.h5")
    with pytest.raises(ValueError, match=r"it lacks arrays of shape \(80, 512\), .*another size or recipe"):
        EfficientCapsNet(**{**SMALLNORB_NETWORK, "decoder": "dense"}, weights=tmp_path / "other.weights.h5")
