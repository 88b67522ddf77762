"""Networks of "Dynamic routing between capsules" (Sabour, Frosst, Hinton 2017)."""

from collections.abc import Callable, Sequence
from typing import Any

import keras

from tf_capsules.argument_types import Shape, Size, Weights
from tf_capsules.layers import Decoder, DynamicRouting, PrimaryCapsules
from tf_capsules.layers.arguments import CHANNELS_LAST
from tf_capsules.models.backbones import check_unused, features_of, image_input
from tf_capsules.models.classifier import CapsuleClassifier, classifier
from tf_capsules.models.convolutional_network import convolutional_network


def CapsNet(
    image_shape: Shape = (28, 28, 1),
    classes: int = 10,
    filters: int = 256,
    kernel_size: Size = 9,
    types: int = 32,
    pose: Size = 8,
    primary_kernel_size: Size = 9,
    primary_strides: Size = 2,
    primary_scale: float = 1.0,
    padding: str = "valid",
    dim: int = 16,
    iterations: int = 3,
    leaky: bool = False,
    use_bias: bool = False,
    competition: str = "parents",
    initial_logits: str = "zeros",
    decoder_units: Sequence[int] | None = (512, 1024),
    reconstruction_weight: float = 0.0005,
    backbone: keras.Model | None = None,
    weights: Weights = None,
    name: str | None = "capsnet",
) -> CapsuleClassifier:
    """The capsule network: a convolution, primary capsules, routed class capsules, and a decoder.

    Source: Sabour et al. 2017, section 4 and figures 1 and 2; the default values are those of MNIST: 8,215,568
    parameters, 6,804,224 without the decoder.

    Args:
        image_shape, classes, weights, name: as of all networks, see `tf_capsules.models`.
        filters, kernel_size: of the first convolution.
        types, pose: types of primary capsules, and entries of their poses.
        primary_kernel_size, primary_strides, primary_scale: of the primary capsules, see `PrimaryCapsules`.
        padding: of both convolutions, "valid" or "same".
        dim: entries of a class capsule's pose.
        iterations, leaky, use_bias, competition, initial_logits: see `DynamicRouting`.
        decoder_units: units of the decoder's hidden layers; None for no decoder.
        reconstruction_weight: factor on the summed squared error of the reconstruction.
        backbone: None; or a Keras model from images to a feature map, in place of the first convolution: then leave
            out `filters` and `kernel_size`.

    Example:
        >>> CapsNet().count_params()
        8215568
    """
    images = image_input(image_shape, classes)
    if backbone is None:
        backbone = keras.layers.Conv2D(
            filters, kernel_size, padding=padding, activation="relu", name="convolution", **CHANNELS_LAST
        )
    else:
        check_unused(CapsNet, filters=filters, kernel_size=kernel_size)
    x = features_of(images, backbone)
    primary: dict[str, Any] = dict(scale=primary_scale, name="primary_capsules")
    x = PrimaryCapsules(types, pose, primary_kernel_size, primary_strides, padding, **primary)(x)
    routing: dict[str, Any] = dict(leaky=leaky, use_bias=use_bias, competition=competition, dtype="float32")
    routing |= dict(initial_logits=initial_logits, name="class_capsules")
    poses = DynamicRouting(classes, dim, iterations, **routing)(x)
    decoder = None if decoder_units is None else Decoder(image_shape, decoder_units, name="decoder")
    options: dict[str, Any] = dict(decoder=decoder, reconstruction_weight=reconstruction_weight, name=name)
    return classifier(images, {"poses": poses}, weights, **options)


def BaselineCNN(
    image_shape: Shape = (28, 28, 1),
    classes: int = 10,
    dropout: float = 0.5,
    weights: Weights = None,
    name: str | None = "baseline_cnn",
) -> keras.Model:
    """The convolutional baseline for MNIST, 35,445,522 parameters.

    Source: Sabour et al. 2017, section 5. The count is met with "same" padding; the dropout rate is not stated.

    Args:
        image_shape, classes, weights, name: as of all networks, see `tf_capsules.models`.
        dropout: share of the last hidden units that is dropped in training.
    """
    options: dict[str, Any] = dict(dropout=dropout, weights=weights, name=name)
    return convolutional_network(image_shape, classes, ((256, 5), (256, 5), (128, 5)), (328, 192), **options)


def PoolingCNN(
    image_shape: Shape = (36, 36, 1),
    classes: int = 10,
    activation: str | Callable | None = "sigmoid",
    dropout: float = 0.0,
    weights: Weights = None,
    name: str | None = "pooling_cnn",
) -> keras.Model:
    """The convolutional baseline with max pooling for MultiMNIST, 24,563,978 parameters.

    Source: Sabour et al. 2017, section 6. The count is met with "same" padding. For affNIST the paper only says
    "similar size, max pooling and dropout": this network with `activation="softmax"` and `dropout=0.5` stands in.

    Args:
        image_shape, classes, weights, name: as of all networks, see `tf_capsules.models`.
        activation: "sigmoid" where several classes may be present, "softmax" where one is.
        dropout: share of the hidden units that is dropped in training.
    """
    options: dict[str, Any] = dict(pooling=True, dropout=dropout, activation=activation, weights=weights, name=name)
    return convolutional_network(image_shape, classes, ((512, 9), (256, 5)), (1024,), **options)
