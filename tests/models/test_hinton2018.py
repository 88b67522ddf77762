import keras
import numpy as np
import pytest
from backend import array, run

from tf_capsules.models.hinton2018 import BaselineCNN, MatrixCapsNet

SMALL = dict(filters=64, types=8, capsules=(16, 16))
TINY = dict(image_shape=(17, 18, 2), classes=3, filters=5, types=4, capsules=(6, 7), iterations=2)
IMAGES = np.random.default_rng(0).normal(size=(4, 17, 18, 2)).astype("float32")


def output(model, name):
    return run(lambda images: model(images)[name], IMAGES)


@pytest.mark.parametrize(
    "network, options, parameters",
    [
        (MatrixCapsNet, dict(), 317_194),
        (MatrixCapsNet, dict(image_shape=(32, 32, 1)), 316_394),
        (MatrixCapsNet, SMALL, 68_754),
        (MatrixCapsNet, dict(image_shape=(32, 32, 1), **SMALL), 67_154),
        (MatrixCapsNet, dict(image_shape=(28, 28, 1), classes=10), 318_964),
        (MatrixCapsNet, dict(image_shape=(32, 32, 3), classes=10, filters=256), 459_444),
        (MatrixCapsNet, dict(pose=16), 4_779_274),
        (BaselineCNN, dict(), 4_253_349),
        (BaselineCNN, dict(image_shape=(32, 32, 1)), 4_252_549),
    ],
)
def test_published_parameter_counts(network, options, parameters):
    # Shapes alone: the weights are never drawn.
    with keras.StatelessScope(initialize_variables=False):
        assert network(**options).count_params() == parameters
    keras.utils.clear_session(free_memory=False)


def test_shapes_of_the_smallnorb_network():
    with keras.StatelessScope(initialize_variables=False):
        encoder = MatrixCapsNet(types=30, capsules=(31, 29)).encoder
        assert encoder.get_layer("convolution").output.shape == (None, 14, 14, 32)
        poses, activations = encoder.get_layer("primary_capsules").output
        assert poses.shape == (None, 14, 14, 30, 4, 4) and activations.shape == (None, 14, 14, 30)
        assert encoder.get_layer("convolutional_capsules_1").output[0].shape == (None, 6, 6, 31, 4, 4)
        assert encoder.get_layer("convolutional_capsules_2").output[1].shape == (None, 4, 4, 29)
        assert encoder.output["poses"].shape == (None, 5, 4, 4)
    keras.utils.clear_session(free_memory=False)


@pytest.mark.parametrize(
    "options, grids",
    [
        (dict(padding="same"), (16, 7, 5)),
        (dict(capsules=(5, 6, 7)), (14, 6, 4, 2)),
        (dict(capsules=(5,), strides=(3,)), (14, 4)),
    ],
)
def test_any_number_of_convolutional_layers(options, grids):
    with keras.StatelessScope(initialize_variables=False):
        encoder = MatrixCapsNet(types=4, **options).encoder
        assert encoder.get_layer("primary_capsules").output[0].shape[1:3] == (grids[0],) * 2
        for number, grid in enumerate(grids[1:], 1):
            layer = encoder.get_layer(f"convolutional_capsules_{number}")
            assert layer.output[0].shape[1:4] == (grid, grid, layer.capsules)
        assert layer.capsules == options.get("capsules", (32, 32))[-1]
    keras.utils.clear_session(free_memory=False)


def test_the_inverse_temperature_is_that_of_every_routing_layer():
    networks = [MatrixCapsNet(**TINY, inverse_temperature=value) for value in (0.01, [0.01 * 0.05, 0.01 * 0.0975], 1.0)]
    for network in networks[1:]:
        network.set_weights(networks[0].get_weights())
    logits = [output(network, "logits") for network in networks]
    np.testing.assert_allclose(logits[1], logits[0], rtol=1e-4)  # the authors' schedule, written out
    assert np.abs(logits[2] - logits[0]).max() > 1


def test_activations_are_the_logistic_function_of_the_logits_or_the_logits():
    model, other = MatrixCapsNet(**TINY), MatrixCapsNet(logits=True, **TINY)
    other.set_weights(model.get_weights())
    logits = output(model, "logits")
    np.testing.assert_allclose(output(model, "activations"), 1 / (1 + np.exp(-logits)), rtol=1e-5)
    np.testing.assert_allclose(output(other, "activations"), logits, rtol=1e-5)
    assert other.logits and not model.logits
    assert logits.std(0).min() > 1e-3  # thanks to normalization even an untrained network tells images apart


def test_vectors_as_poses_without_coordinates():
    models = [MatrixCapsNet(pose=6, coordinates=coordinates, **TINY) for coordinates in (False, True)]
    models[1].set_weights(models[0].get_weights())
    without, with_coordinates = (output(model, "poses") for model in models)
    assert without.shape == (4, 3, 6)
    # The only parent position is the middle of the grid; its coordinates are added to the first two entries.
    np.testing.assert_allclose(with_coordinates - without, np.tile([0.5, 0.5, 0, 0, 0, 0], (4, 3, 1)), atol=1e-4)


def test_the_weights_of_all_kernels_are_in_the_loss():
    model = MatrixCapsNet(l2=0.1, **TINY)
    kernels = [array(weight) for weight in model.weights if "kernel" in weight.path]
    assert len(kernels) == 6
    expected = 0.1 * sum(np.square(kernel).sum() for kernel in kernels)
    np.testing.assert_allclose(sum(map(float, model.losses)), expected, rtol=1e-5)
    assert not MatrixCapsNet(**TINY).losses


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(image_shape=(16, 32, 2)), r"at least 17 x 17. Received: \(16, 32, 2\)"),
        (dict(image_shape=(12, 32, 2), padding="same"), r"at least 13 x 13. Received: \(12, 32, 2\)"),
        (dict(image_shape=(24, 32, 2), capsules=(6, 7, 8)), r"at least 25 x 25. Received: \(24, 32, 2\)"),
        (dict(capsules=32), "`capsules` must have a number for each convolutional layer.*Received: 32"),
        (dict(capsules=()), r"`capsules` must have a number for each convolutional layer.*Received: \(\)"),
        (dict(strides=(2,)), r"`strides` must have 2 numbers, as `capsules` has. Received: \(2,\)"),
        (dict(padding="full"), "`padding` must be one of 'valid', 'same'. Received: 'full'"),
        (dict(inverse_temperature=[0.1]), "`inverse_temperature`"),
        (dict(capsules=(32, 0)), "`capsules`.*Received: 0"),
        (dict(iterations=0), "`iterations`.*Received: 0"),
        (dict(weights="no-such-set"), "`weights`.*Received: 'no-such-set'"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        MatrixCapsNet(**{**TINY, **options})
