"""Networks of "Matrix capsules with EM routing" (Hinton, Sabour, Frosst 2018)."""

from collections.abc import Sequence
from typing import Any

import keras

from tf_capsules.argument_types import Shape, Size, Weights
from tf_capsules.layers import ConvEMRouting, EMRouting, PrimaryCapsules
from tf_capsules.layers.arguments import CHANNELS_LAST, one_of, positive_ints, truth_value
from tf_capsules.models.backbones import check_unused, columns_of, features_of, image_input
from tf_capsules.models.classifier import CapsuleClassifier, classifier
from tf_capsules.models.convolutional_network import convolutional_network

_CONVOLUTION, _WINDOW = 5, 3  # rows and columns of the convolution's kernel, and of a window of capsules


def MatrixCapsNet(
    image_shape: Shape = (32, 32, 2),
    classes: int = 5,
    filters: int = 32,
    types: int = 32,
    capsules: Sequence[int] = (32, 32),
    strides: Sequence[int] | None = None,
    padding: str = "valid",
    pose: Size = (4, 4),
    iterations: int = 3,
    inverse_temperature: float | Sequence[float] = 0.01,
    coordinates: bool = True,
    normalization: float | str = "data",
    l2: float | None = None,
    logits: bool = False,
    backbone: keras.Model | None = None,
    weights: Weights = None,
    name: str | None = "matrix_capsnet",
) -> CapsuleClassifier:
    """The capsule network: a convolution, primary capsules, convolutional routing layers, routed class capsules.

    Source: Hinton et al. 2018, section 4 and figure 1; 317,194 parameters (the paper says 310K) and, with `filters=64,
    types=8, capsules=(16, 16)`, 68,754 (the paper says 68K). Different from the paper: `normalization`, without which
    the activations of an untrained network are about 1/2 or above.

    Args:
        image_shape: (height, width, channels); by default at least 17 x 17, or a feature map of at least 7 x 7.
        classes, weights, name: as of all networks, see `tf_capsules.models`.
        filters: channels of the convolution, the paper's A.
        types: types of primary capsules, B.
        capsules: types of capsules, a number for each convolutional routing layer: the paper's C and D.
        strides: of these layers, whose windows are 3x3; None: 2 in the first and 1 in all others.
        padding: of the convolution, "valid" (the paper: grids of 14, 6 and 4) or "same" (Gritzman 2019: 16, 7 and 5).
        pose: of every capsule: (rows, columns), or the number of entries of a vector.
        iterations: of each routing layer.
        inverse_temperature: see `EMRouting`; a list has a number for each iteration.
        coordinates: whether a child's position is added to its votes for the classes.
        normalization: see `EMRouting`; the paper has 1.0.
        l2: None; or a factor on the sum of the squared kernel weights, which is then added to the loss.
        logits: whether the activations are the logits of a softmax over the classes, for a cross-entropy.
        backbone: None; or a Keras model from images to a feature map, in place of the convolution: then leave out
            `filters` and `padding`. It gets no `l2`.

    Returns:
        A `CapsuleClassifier`, not compiled. Its "activations" (batch, classes) are in (0, 1), the logistic function of
        its further output "logits"; with `logits=True` they are these logits.

    Example:
        >>> MatrixCapsNet().count_params()
        317194
    """
    capsules = positive_ints("capsules", capsules, "convolutional layer", (32, 32))
    strides = (2, *[1] * (len(capsules) - 1)) if strides is None else strides
    strides = positive_ints("strides", strides, "convolutional layer", (2, 1))
    if len(strides) != len(capsules):
        raise ValueError(f"`strides` must have {len(capsules)} numbers, as `capsules` has. Received: {strides!r}")
    one_of("padding", padding, ("valid", "same"))
    grid = 1  # the smallest grid of each layer, from the last to the first
    for stride in reversed(strides):
        grid = (grid - 1) * stride + _WINDOW
    smallest = 2 * grid - 1 if padding == "same" else 2 * (grid - 1) + _CONVOLUTION
    regularized: dict[str, Any] = dict(kernel_regularizer=None if l2 is None else keras.regularizers.L2(l2))
    # In float32 under every dtype policy: the sums of the routing are over thousands of votes.
    routed: dict[str, Any] = dict(iterations=iterations, inverse_temperature=inverse_temperature, dtype="float32")
    routed |= dict(normalization=normalization, **regularized)
    columns = columns_of(pose)
    images = image_input(image_shape, classes, smallest if backbone is None else 1)
    if backbone is None:
        options: dict[str, Any] = dict(padding=padding, activation="relu", name="convolution", **regularized)
        backbone = keras.layers.Conv2D(filters, _CONVOLUTION, 2, **options, **CHANNELS_LAST)
    else:
        check_unused(MatrixCapsNet, filters=filters, padding=padding)
    x = features_of(images, backbone)
    options = dict(activation=None, capsule_activation="sigmoid", name="primary_capsules", **regularized)
    x = PrimaryCapsules(types, pose, **options)(x)
    for number, (parents, stride) in enumerate(zip(capsules, strides, strict=True), 1):
        options = dict(kernel_size=_WINDOW, strides=stride, name=f"convolutional_capsules_{number}", **routed)
        *x, _ = ConvEMRouting(parents, columns, **options)(*x)
    options = dict(sharing="positions", coordinates=coordinates, name="class_capsules", **routed)
    poses, activations, class_logits = EMRouting(classes, columns, **options)(*x)
    activations = class_logits if truth_value("logits", logits) else activations
    outputs = {"activations": activations, "poses": poses, "logits": class_logits}
    return classifier(images, outputs, weights, logits=logits, name=name)


def BaselineCNN(
    image_shape: Shape = (32, 32, 2),
    classes: int = 5,
    dropout: float = 0.5,
    weights: Weights = None,
    name: str | None = "baseline_cnn",
) -> keras.Model:
    """The convolutional baseline for smallNORB, 4,253,349 parameters (the paper says 4.2M).

    Source: the baseline of Hinton et al. 2018. The count is met with "same" padding; the dropout rate is not stated.

    Args:
        image_shape, classes, weights, name: as of all networks, see `tf_capsules.models`.
        dropout: share of the hidden units that is dropped in training.
    """
    options: dict[str, Any] = dict(pooling=True, dropout=dropout, weights=weights, name=name)
    return convolutional_network(image_shape, classes, ((32, 5), (64, 5)), (1024,), **options)
