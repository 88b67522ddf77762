import keras
import numpy as np
import pytest

from tf_capsules import recipes
from tf_capsules.models import tsai2020
from tf_capsules.models.backbones import ResNetBackbone, SimpleBackbone

CIFAR100 = dict(classes=100, types=32, pose=(6, 6), hidden=(20,))
DIVERSE = dict(recipes.get("tsai2020-diverse-multimnist").model_options, image_shape=(36, 36, 1))
TINY = dict(image_shape=(13, 14, 3), classes=4, filters=6, types=3, pose=(2, 2), convolutions=((5, 3, 2), (4, 2, 1)))


def trainable(model):
    return sum(int(np.prod(weight.shape)) for weight in model.trainable_weights)


@pytest.mark.parametrize(
    "network, options, parameters",
    [
        ("AttentionCapsNet", dict(), 561_297),
        ("AttentionCapsNet", dict(layer_norm=False), 561_201),
        ("AttentionCapsNet", dict(activations=True), 561_297 + 256 * 32 + 4 * 32),
        ("AttentionCapsNet", dict(backbone="resnet"), 1_828_817),
        ("AttentionCapsNet", dict(filters=128, **CIFAR100), 1_462_989),
        ("AttentionCapsNet", dict(backbone="resnet", **CIFAR100), 2_799_629),
        ("AttentionCapsNet", DIVERSE, 9_963_969),
        ("AttentionCapsNet", dict(DIVERSE, pose=64), 42_478_017),
        ("AttentionCapsNet", dict(DIVERSE, types=64, convolutions=((64, 3, 1),)), 41_593_281),
        ("ConvDynamicCapsNet", dict(), 42_478_592),
        ("DynamicCapsNet", dict(), 7_992_576),
        ("DynamicCapsNet", dict(classes=100), 31_585_536),
        ("DynamicCapsNet", dict(backbone="resnet"), 12_451_136),
        ("DynamicCapsNet", dict(backbone="resnet", classes=100), 36_044_096),
        ("EMCapsNet", dict(), 452_896 + 148),
        ("EMCapsNet", dict(classes=100), 498_976 + 328),
        ("EMCapsNet", dict(backbone="resnet"), 1_710_432 + 148),
        ("EMCapsNet", dict(backbone="resnet", classes=100), 1_756_512 + 328),
        ("BaselineCNN", dict(), 18_919_434),
        ("BaselineCNN", dict(classes=100), 19_011_684),
        ("ResNet18", dict(), 11_173_962),
        ("ResNet18", dict(classes=100), 11_220_132),
        ("DiverseCNN", dict(), 19_553_162),
        ("DiverseCNN", dict(pooling="learned"), 42_490_762),
    ],
)
def test_published_parameter_counts(network, options, parameters):
    # Shapes alone: the weights are never drawn.
    with keras.StatelessScope(initialize_variables=False):
        assert trainable(getattr(tsai2020, network)(**options)) == parameters
    keras.utils.clear_session(free_memory=False)


def test_shapes_of_the_cifar_network():
    with keras.StatelessScope(initialize_variables=False):
        model = tsai2020.AttentionCapsNet(types=30, convolutions=((31, 3, 2), (29, 3, 1)))
        assert model.encoder.get_layer("primary_capsules").output.shape == (None, 16, 16, 30, 4, 4)
        routing = model.encoder.get_layer("routing")
        grid = (None, 16, 16, 30, 4, 4)
        for layer, shape in zip(routing.chain, [(7, 7, 31, 4, 4), (5, 5, 29, 4, 4), (10, 4, 4)], strict=True):
            grid = layer.compute_output_shape(grid)
            assert grid == (None, *shape)
        assert ResNetBackbone().output.shape == (None, 16, 16, 128)
        assert trainable(ResNetBackbone()) == 1_340_224 and trainable(ResNetBackbone(filters=(64, 256))) == 4_521_024
    keras.utils.clear_session(free_memory=False)


def test_stored_votes_answer_as_recomputed_ones():
    sizes = dict(image_shape=(11, 11, 1), classes=3, filters=4, types=2, pose=4, convolutions=((3, 2, 1),))
    models = [tsai2020.ConvDynamicCapsNet(**sizes, votes_memory=memory) for memory in ("auto", "store")]
    weights = [10 * weight for weight in models[0].get_weights()]  # squashing would make smaller votes nearly nothing
    for model in models:
        model.set_weights(weights)
    found = [model.encoder.get_layer("convolutional_capsules_1").votes_memory for model in models]
    images = np.random.default_rng(0).random((2, 11, 11, 1), "float32")
    first, second = (model.predict_on_batch(images)["activations"] for model in models)
    assert found == ["auto", "store"] and np.ptp(first) > 0.01
    np.testing.assert_allclose(second, first, rtol=1e-5)


def test_a_zero_rim_is_on_every_side():
    # On an image of ones, a kernel of ones counts the pixels in each window; the top and left windows see the rim.
    model = SimpleBackbone((4, 6, 1), filters=1)
    model.get_layer("convolution").set_weights([np.ones((3, 3, 1, 1)), np.zeros(1)])
    counts = model.predict_on_batch(np.ones((1, 4, 6, 1), "float32"))[0, ..., 0]
    np.testing.assert_array_equal(counts, [[4, 6, 6], [6, 9, 9]])


def test_probabilities():
    images = np.random.default_rng(0).normal(size=(3, 13, 14, 3)).astype("float32")
    model, other = (tsai2020.AttentionCapsNet(**TINY, probabilities=name) for name in ("softmax", "sigmoid"))
    other.set_weights(model.get_weights())
    outputs, scores = model.predict_on_batch(images), other.predict_on_batch(images)
    assert model.logits and not other.logits and outputs["poses"].shape == (3, 4, 2, 2)
    np.testing.assert_allclose(scores["logits"], outputs["activations"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(scores["activations"], 1 / (1 + np.exp(-scores["logits"])), rtol=1e-5)


def test_a_backbone_of_one_s_own():
    own = keras.Sequential([keras.Input((13, 14, 3)), keras.layers.Conv2D(7, 4, strides=2, activation="relu")])
    images = np.random.default_rng(0).normal(size=(3, 13, 14, 3)).astype("float32")
    networks = [
        tsai2020.AttentionCapsNet(**{**TINY, "backbone": own, "filters": None, "convolutions": ((5, 3, 1),)}),
        tsai2020.DynamicCapsNet((13, 14, 3), 4, backbone=keras.Sequential([own, keras.layers.UpSampling2D(2)])),
        tsai2020.EMCapsNet((13, 14, 3), 4, backbone=keras.Sequential([own, keras.layers.UpSampling2D(2)])),
    ]
    for network in networks:
        assert network.predict_on_batch(images)["activations"].shape == (3, 4)


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(backbone="vgg"), "`backbone`.*Received: 'vgg'"),
        (dict(backbone="resnet"), "`filters` is only for the simple backbone. Received 6 with 'resnet'"),
        (dict(backbone=3, filters=None), "`backbone` must be a Keras model or layer. Received: 3"),
        (dict(backbone=keras.layers.Flatten(), filters=None), r"`backbone` must give features.*not \(None, 546\)"),
        (dict(probabilities="squash"), "`probabilities`.*Received: 'squash'"),
        (dict(iterations=0), "`iterations`.*Received: 0"),
        (dict(primary_kernel_size=(3, 3, 3)), r"`primary_kernel_size`.*Received: \(3, 3, 3\)"),
        (dict(convolutions=((5, 3),)), r"`convolutions`.*Received: \(\(5, 3\),\)"),
        (dict(convolutions=5), "`convolutions`.*Received: 5"),
        (dict(hidden=5), "`hidden`.*Received: 5"),
        (dict(image_shape=(4, 4, 3)), "smaller than the window"),
        (dict(weights="no-such-set"), "`weights`.*Received: 'no-such-set'"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        tsai2020.AttentionCapsNet(**{**TINY, **options})


@pytest.mark.parametrize(
    "model, options, message",
    [
        ("DiverseCNN", dict(pooling="max"), "`pooling`.*Received: 'max'"),
        ("ConvDynamicCapsNet", dict(pose=(8, 8)), r"`pose`.*Received: \(8, 8\)"),
        ("ConvDynamicCapsNet", dict(convolutions=(16, 3, 1)), r"`convolutions`.*Received: \(16, 3, 1\)"),
        ("ResNet18", dict(filters=64), "`filters`.*Received: 64"),
        ("ResNet18", dict(filters=(64, 128)), r"`filters` and `blocks` .*Received: \(64, 128\) and \(2, 2, 2, 2\)"),
        ("BaselineCNN", dict(image_shape=(20, 32, 3)), r"at least 21 x 21.*Received: \(20, 32, 3\)"),
    ],
)
def test_bad_options_of_the_other_networks_are_named(model, options, message):
    with pytest.raises(ValueError, match=message):
        getattr(tsai2020, model)(**options)


def test_the_smallest_images_of_the_cnn():
    assert tsai2020.BaselineCNN((21, 21, 3), filters=2).output_shape == (None, 10)
