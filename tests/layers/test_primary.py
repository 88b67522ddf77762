import keras
import numpy as np
import pytest
from backend import array
from oracle import ATOL, CASES, expand

from tf_capsules.layers import DepthwisePrimaryCapsules, PrimaryCapsules
from tf_capsules.models.heinsen2019 import ImageCapsNet
from tf_capsules.models.sabour2017 import CapsNet, PoolingCNN


@pytest.mark.parametrize(
    "scale, form", [(1.0, "paper_form"), (0.5, "official_code_form_conv_divided_by_types")], ids=["paper", "code"]
)
def test_oracle(scale, form):
    case = CASES["D_primary_capsules"]
    x, kernel, bias = (expand(**case["params"][name]) for name in ("x", "kernel", "bias"))
    layer = PrimaryCapsules(types=2, pose=3, kernel_size=3, strides=2, scale=scale)
    layer.build(x.shape)
    layer.set_weights([kernel, bias])
    poses = array(layer(x))
    assert poses.shape == (1, 2, 2, 2, 3)
    np.testing.assert_allclose(poses.reshape(1, 8, 3), case[form], atol=ATOL)


def channels_as_poses(layer, features, pose):
    convolution = array(layer.convolution(features))
    return convolution.reshape(*convolution.shape[:3], layer.types, *pose)


FEATURES = np.random.default_rng(0).normal(size=(2, 6, 5, 3)).astype("float32")


def test_without_activation_the_channels_are_type_times_size_plus_entry():
    layer = PrimaryCapsules(types=4, pose=(2, 5), kernel_size=3, activation=None)
    poses = array(layer(FEATURES))
    assert poses.shape == (2, 4, 3, 4, 2, 5)
    channels = array(layer.convolution(FEATURES))
    np.testing.assert_array_equal(poses[1, 2, 0, 3, 1, 4], channels[1, 2, 0, 3 * 10 + 1 * 5 + 4])


def test_layer_norm_is_over_the_entries_of_a_pose():
    layer = PrimaryCapsules(types=4, pose=(2, 5), kernel_size=3, activation="layer_norm")
    poses = array(layer(FEATURES))
    raw = channels_as_poses(layer, FEATURES, (2, 5))
    centred = raw - raw.mean((-1, -2), keepdims=True)
    expected = centred / np.sqrt(np.square(centred).mean((-1, -2), keepdims=True) + 1e-5)
    np.testing.assert_allclose(poses, expected, atol=1e-5)
    assert [w.shape for w in layer.normalization.weights] == [(2, 5), (2, 5)]


def test_squash_of_matrices_is_over_the_whole_pose():
    layer = PrimaryCapsules(types=4, pose=(2, 5), kernel_size=3, bias_initializer="ones")
    raw = channels_as_poses(layer, FEATURES, (2, 5)) if layer(FEATURES) is not None else None
    norm = np.sqrt(np.square(raw).sum((-1, -2), keepdims=True))
    np.testing.assert_allclose(array(layer(FEATURES)), raw * norm / (1 + norm**2), atol=1e-6)


def test_any_callable_and_activations():
    layer = PrimaryCapsules(types=4, pose=7, kernel_size=3, activation=keras.ops.tanh, capsule_activation="sigmoid")
    poses, activations = layer(FEATURES)
    np.testing.assert_allclose(array(poses), np.tanh(channels_as_poses(layer, FEATURES, (7,))), atol=1e-6)
    linear = array(keras.ops.conv(FEATURES, layer.score_convolution.kernel))
    assert activations.shape == (2, 4, 3, 4)
    np.testing.assert_allclose(array(activations), 1 / (1 + np.exp(-linear)), atol=1e-6)
    kernels = [array(layer.convolution.kernel).ravel(), array(layer.score_convolution.kernel).ravel()]
    assert abs(np.corrcoef(kernels[0][: kernels[1].size], kernels[1])[0, 1]) < 0.5  # drawn apart


def test_channels_are_last_whatever_keras_is_set_to():
    before = keras.config.image_data_format()
    keras.config.set_image_data_format("channels_first")
    try:
        assert PrimaryCapsules(types=2, pose=3)(np.zeros((1, 5, 6, 4), "float32")).shape == (1, 5, 6, 2, 3)
        assert CapsNet((20, 20, 2), 3, 4, types=2, pose=3, dim=5)(np.zeros((1, 20, 20, 2)))["poses"].shape == (1, 3, 5)
        assert PoolingCNN((8, 8, 1), 3)(np.zeros((1, 8, 8, 1))).shape == (1, 3)
        assert ImageCapsNet((30, 30, 2), 3, 4, 2, 2)(np.zeros((1, 30, 30, 2)))["activations"].shape == (1, 3)
    finally:
        keras.config.set_image_data_format(before)


def test_image_size_may_be_unknown():
    inputs = keras.Input((None, None, 3))
    model = keras.Model(inputs, PrimaryCapsules(types=4, pose=7, kernel_size=3, strides=2)(inputs))
    assert model.output_shape == (None, None, None, 4, 7)
    assert model(FEATURES).shape == (2, 2, 2, 4, 7)
    assert model(np.zeros((1, 9, 4, 3), "float32")).shape == (1, 4, 1, 4, 7)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"types": 0}, "`types`.*Received: 0"),
        ({"types": 2.0}, "`types`.*Received: 2.0"),
        ({"pose": 0}, "`pose`.*Received: 0"),
        ({"scale": None}, "`scale`.*Received: None"),
        ({"pose": 2.5}, "`pose`.*Received: 2.5"),
        ({"pose": (2, 3, 4)}, r"`pose`.*\(2, 3, 4\)"),
        ({"pose": (2, -3)}, "`pose`.*Received: -3"),
        ({"activation": "squish"}, "squish"),
        ({"padding": "some"}, "some"),
        ({"kernel_size": True}, "`kernel_size`.*Received: True"),
        ({"strides": (1, 2, 3)}, r"`strides`.*\(1, 2, 3\)"),
    ],
)
def test_arguments_out_of_range_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        PrimaryCapsules(**{"types": 2, "pose": 3, **options})


@pytest.mark.parametrize("shape", [(None, 8, 3), (None, 8, 8, None), (None, 8, 2, 3)])
def test_feature_maps_that_do_not_fit_are_named(shape):
    with pytest.raises(ValueError, match=f"PrimaryCapsules.*Received input shape.*{shape[-2]}, {shape[-1]}"):
        PrimaryCapsules(types=2, pose=3, kernel_size=3).build(shape)


@pytest.mark.parametrize(
    "make, convolutions",
    [
        (lambda **options: PrimaryCapsules(2, 3, capsule_activation="sigmoid", **options), 2),
        (lambda **options: DepthwisePrimaryCapsules(3, **options), 1),
    ],
    ids=["convolution", "depthwise"],
)
def test_weights_have_regularizers_and_constraints(make, convolutions):
    kinds = {"regularizer": "l2", "constraint": "non_neg"}
    options = {f"{name}_{kind}": value for name in ("kernel", "bias") for kind, value in kinds.items()}
    layer = make(**options, bias_initializer="ones")
    layer(FEATURES)
    assert len(layer.losses) == 2 * convolutions and len(layer.weights) == 2 * convolutions
    assert all(isinstance(weight.constraint, keras.constraints.NonNeg) for weight in layer.weights)
    config = layer.get_config()
    assert all(config[name] is not None for name in options)
