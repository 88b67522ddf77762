"""Capsules on top of backbones of Keras and of keras-hub."""

import keras
import numpy as np
import pytest
from backend import EAGER, JIT, array

from tf_capsules.models import heinsen2019, hinton2018, li2018, sabour2017, tsai2020

SHAPE = (64, 64, 3)


def application(name, layer, alpha):
    model = getattr(keras.applications, name)(SHAPE, alpha=alpha, include_top=False, weights=None)
    return keras.Model(model.input, model.get_layer(layer).output)


def hub(name, **options):
    return getattr(pytest.importorskip("keras_hub").models, name)(image_shape=SHAPE, **options)


BACKBONES = {
    "MobileNet": lambda: application("MobileNet", "conv_pw_3_relu", 0.25),
    "MobileNetV2": lambda: application("MobileNetV2", "block_3_expand_relu", 0.35),
    "hub VGG": lambda: hub("VGGBackbone", stackwise_num_repeats=[1, 1], stackwise_num_filters=[5, 7]),
    "hub ResNet": lambda: hub(
        "ResNetBackbone",
        input_conv_filters=[64],
        input_conv_kernel_sizes=[3],
        stackwise_num_filters=[64],
        stackwise_num_blocks=[1],
        stackwise_num_strides=[1],
        block_type="basic_block",
    ),
}
HEADS = {
    "attention": lambda backbone: tsai2020.AttentionCapsNet(
        SHAPE, 3, backbone, types=2, pose=(2, 2), convolutions=((4, 3, 2),)
    ),
    "EM": lambda backbone: hinton2018.MatrixCapsNet(
        SHAPE, 3, types=2, capsules=(3, 4), pose=(2, 2), iterations=2, backbone=backbone
    ),
    "net benefit": lambda backbone: heinsen2019.ImageCapsNet(SHAPE, 3, types=4, parts=5, backbone=backbone),
    "dynamic": lambda backbone: sabour2017.CapsNet(
        SHAPE, 3, types=2, pose=4, dim=5, decoder_units=None, backbone=backbone
    ),
}


PAIRS = [("MobileNet", "dynamic"), ("MobileNetV2", "EM"), ("hub VGG", "attention"), ("hub ResNet", "net benefit")]
PAIRS += [("hub ResNet", "dynamic")]


@pytest.mark.parametrize("name, head", PAIRS)
def test_any_backbone_under_any_capsules(name, head, tmp_path):
    images = np.random.default_rng(0).random((2, *SHAPE)).astype("float32")
    model = HEADS[head](BACKBONES[name]())
    # Eagerly on TensorFlow: tracing takes longer than the one step. JAX would compile each operation separately.
    model.compile("adam", "mse", jit_compile=JIT, run_eagerly=EAGER)
    outputs = model.predict_on_batch(images)
    assert outputs["activations"].shape == (2, 3) and np.isfinite(outputs["activations"]).all()
    if head != "dynamic":
        return
    before = array(model.encoder.layers[1].trainable_weights[0])
    model.fit(images, np.eye(3)[[0, 2]], verbose=0)
    assert np.abs(array(model.encoder.layers[1].trainable_weights[0]) - before).max() > 0
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras").predict_on_batch(images)
    np.testing.assert_allclose(again["activations"], model.predict_on_batch(images)["activations"], atol=1e-5)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: tsai2020.AttentionCapsNet((32, 32)), r"`image_shape` must be \(height, .* Received: \(32, 32\)"),
        (lambda: li2018.EncapNet((32, 32.5, 3)), "`image_shape` must be a whole number.*Received: 32.5"),
        (lambda: tsai2020.BaselineCNN((20, 32, 3)), r"`image_shape` must be at least 21 x 21. Received: \(20, 32, 3\)"),
        (
            lambda: sabour2017.CapsNet(backbone=keras.Sequential([keras.Input((784,)), keras.layers.Dense(4)])),
            r"`backbone` takes images of \(784,\). Received `image_shape` \(28, 28, 1\)",
        ),
        (lambda: sabour2017.CapsNet(classes=0), "`classes`.*Received: 0"),
        (lambda: hinton2018.MatrixCapsNet(pose=()), r"`pose` must be \(rows, columns\), .* Received: \(\)"),
        (
            lambda: hinton2018.MatrixCapsNet((64, 64, 1), backbone=BACKBONES["MobileNet"]()),
            r"`backbone` takes images of \(64, 64, 3\). Received `image_shape` \(64, 64, 1\)",
        ),
    ],
)
def test_images_that_cannot_be_taken_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "model, name, value",
    [
        (sabour2017.CapsNet, "kernel_size", 5),
        (hinton2018.MatrixCapsNet, "padding", "same"),
        (heinsen2019.ImageCapsNet, "filters", 32),
    ],
)
def test_an_argument_of_what_the_backbone_replaces_is_refused(model, name, value):
    with pytest.raises(ValueError, match=f"`{name}` is of a convolution that `backbone` replaces. Received: {value!r}"):
        model(backbone=keras.layers.Identity(), **{name: value})
