import keras
import pytest

from tf_capsules.models.sabour2017 import BaselineCNN, CapsNet, PoolingCNN

CIFAR10 = dict(image_shape=(24, 24, 3), types=64, leaky=True, decoder_units=None)
SMALLNORB = dict(image_shape=(32, 32, 2), classes=5, decoder_units=None)
SVHN = dict(image_shape=(32, 32, 3), filters=64, types=16, pose=6, dim=8, decoder_units=None)


@pytest.mark.parametrize(
    "network, options, parameters",
    [
        (CapsNet, dict(decoder_units=None), 6_804_224),
        (CapsNet, dict(), 8_215_568),
        (CapsNet, dict(use_bias=True), 8_215_728),
        (CapsNet, dict(initial_logits="learned"), 8_215_568 + 1152 * 10),
        (CapsNet, dict(image_shape=(36, 36, 1)), 11_361_808),
        (CapsNet, dict(image_shape=(36, 36, 1), decoder_units=None), 9_425_664),
        (CapsNet, dict(image_shape=(40, 40, 1)), 13_475_648),
        (CapsNet, dict(image_shape=(40, 40, 1), decoder_units=None), 11_227_904),
        (CapsNet, CIFAR10 | dict(padding="same"), 22_476_288),
        (CapsNet, CIFAR10, 11_990_528),
        (CapsNet, SMALLNORB, 6_661_120),
        (CapsNet, SMALLNORB | dict(types=64), 13_280_512),
        (CapsNet, SVHN, 1_004_896),
        (BaselineCNN, dict(), 35_445_522),
        (PoolingCNN, dict(), 24_563_978),
    ],
)
def test_published_parameter_counts(network, options, parameters):
    # Only shapes: the weights are neither drawn nor allocated.
    with keras.StatelessScope(initialize_variables=False):
        model = network(**options)
        assert model.count_params() == parameters
    keras.utils.clear_session(free_memory=False)


def test_shapes_of_the_mnist_network():
    with keras.StatelessScope(initialize_variables=False):
        model = CapsNet()
        encoder = model.encoder
        assert encoder.get_layer("convolution").output.shape == (None, 20, 20, 256)
        assert encoder.get_layer("primary_capsules").output.shape == (None, 6, 6, 32, 8)
        assert encoder.get_layer("class_capsules").output.shape == (None, 10, 16)
        assert encoder.output["activations"].shape == (None, 10)
        assert model.image_shape == (28, 28, 1) and model.decoder.image_shape == (28, 28, 1)
    keras.utils.clear_session(free_memory=False)


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(classes=0), "`classes`.*Received: 0"),
        (dict(image_shape=(16, 28, 1)), r"PrimaryCapsules.*Received input shape \(None, 8, 20, 256\)"),
        (dict(iterations=0), "`iterations`.*Received: 0"),
        (dict(initial_logits="ones"), "`initial_logits` must be one of.*Received: 'ones'"),
        (dict(weights="no-such-set"), "`weights`.*Received: 'no-such-set'"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        CapsNet(**{"filters": 256, "types": 2, **options})
