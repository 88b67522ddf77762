import types

import keras
import numpy as np
import pytest
from backend import BACKEND
from keras import ops

from tf_capsules.layers import PrimaryCapsules
from tf_capsules.layers.folded_convolution import FoldedConv2D, folded_convolution

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.skipif(BACKEND != "tensorflow", reason="other backends don't use oneDNN's kernels")
RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    "image, kernel, strides",
    [
        ((20, 20, 4), (9, 9), (2, 2)),
        ((12, 9, 2), (5, 4), (2, 3)),
        ((9, 9, 1), (9, 9), (2, 2)),
        ((7, 8, 2), (1, 1), (2, 3)),
    ],
    ids=["fits", "cut and filled up", "one position", "kernel below the stride"],
)
def test_convolution_and_its_gradients_are_tensorflows(image, kernel, strides):
    x, kernel = tf.constant(RNG.normal(size=(2, *image))), tf.constant(RNG.normal(size=(*kernel, image[2], 3)))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([x, kernel])
        ours, theirs = folded_convolution(x, kernel, strides), tf.nn.conv2d(x, kernel, [1, *strides, 1], "VALID")
        losses = [tf.reduce_sum(maps**2) for maps in (ours, theirs)]
    np.testing.assert_allclose(ours, theirs, atol=1e-12)
    for ours, theirs in zip(*(tape.gradient(loss, [x, kernel]) for loss in losses), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-11)


def folds(monkeypatch, layer, features, device="CPU"):
    calls = []
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda: [types.SimpleNamespace(device_type=device)])
    monkeypatch.setattr(
        "tf_capsules.layers.folded_convolution.folded_convolution",
        lambda *given: calls.append(1) or folded_convolution(*given),
    )
    layer(features)
    return bool(calls)


@pytest.mark.parametrize(
    "options, expected",
    [
        ({}, True),
        ({"kernel_size": (9, 8)}, True),
        ({"kernel_size": 5}, False),
        ({"strides": 1}, False),
        ({"padding": "same"}, False),
        ({"dtype": "float32"}, False),
    ],
    ids=["9x9", "9x8", "too many zeros", "stride 1", "same", "float32"],
)
def test_where_it_folds(monkeypatch, options, expected):
    layer = FoldedConv2D(**{"filters": 4, "kernel_size": 9, "strides": 2, "dtype": "mixed_bfloat16"} | options)
    assert folds(monkeypatch, layer, np.zeros((2, 12, 12, 64), "float32")) is expected


def test_other_devices_and_unknown_sizes_do_not_fold(monkeypatch):
    layer = FoldedConv2D(4, 9, 2, dtype="mixed_bfloat16")
    assert not folds(monkeypatch, layer, np.zeros((2, 12, 12, 64), "float32"), device="GPU")
    for shape in ((None, None, None, 64), (None, 12, 12, None), (None,) * 4):
        assert not folds(monkeypatch, tf.function(layer).get_concrete_function, tf.TensorSpec(shape))
    assert folds(monkeypatch, tf.function(layer).get_concrete_function, tf.TensorSpec((None, 12, 12, 64)))


def test_primary_capsules_fold_and_agree_with_kerass_convolution(monkeypatch):
    options = dict(types=2, pose=4, kernel_size=9, strides=2, activation=None, dtype="mixed_bfloat16")
    layer, features = PrimaryCapsules(**options), RNG.normal(size=(2, 20, 20, 64)).astype("float32")
    assert folds(monkeypatch, layer, features)
    convolution = keras.layers.Conv2D(8, 9, 2)
    convolution.build(features.shape)
    convolution.set_weights(layer.get_weights())
    expected = convolution(features)
    poses = ops.reshape(ops.cast(layer(features), "float32"), expected.shape)
    np.testing.assert_allclose(poses, expected, atol=0.02)
