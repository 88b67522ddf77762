"""Networks of "Capsules with inverted dot-product attention routing" (Tsai et al. 2020), and those it compares with."""

from collections.abc import Sequence
from typing import Any

import keras

from tf_capsules import layers
from tf_capsules.argument_types import Shape, Size, Weights
from tf_capsules.layers.arguments import CHANNELS_LAST, one_of, pair, positive_int, truth_value
from tf_capsules.models import backbones, hinton2018, sabour2017
from tf_capsules.models.classifier import CapsuleClassifier, classifier
from tf_capsules.models.weights import load_weights


def AttentionCapsNet(
    image_shape: Shape = (32, 32, 3),
    classes: int = 10,
    backbone: str | keras.Model = "simple",
    filters: int | None = None,
    types: int = 32,
    pose: Size = (4, 4),
    primary_kernel_size: Size = 1,
    primary_strides: Size = 1,
    convolutions: Sequence[Sequence[int]] = ((32, 3, 2), (32, 3, 1)),
    hidden: Sequence[int] = (),
    iterations: int = 2,
    schedule: str = "concurrent",
    scaled: bool = True,
    layer_norm: bool = True,
    dropout: float = 0.0,
    initial_pose: str = "zeros",
    activations: bool = False,
    votes_memory: str = "auto",
    probabilities: str = "softmax",
    weights: Weights = None,
    name: str | None = "attention_capsnet",
) -> CapsuleClassifier:
    """The capsule network: a backbone, primary capsules, and capsule layers that are routed together.

    Source: Tsai et al. 2020, section 3 and tables 8 to 11; trainable parameters 561,297 with the simple backbone
    and 1,828,817 with the residual one. A linear unit, shared by all classes, computes a class's logit from its pose.

    Args:
        image_shape, classes, weights, name: as of all networks, see `tf_capsules.models`.
        backbone: "simple"; "resnet"; or a Keras model from images to a feature map.
        filters: channels of the simple backbone, an error with any other backbone; None: 256.
        types: types of primary capsules.
        pose: of every capsule: (rows, columns), or the number of entries of a vector.
        primary_kernel_size, primary_strides: of the primary capsules' convolution, which has no bias.
        convolutions: (types, kernel size, strides) of each convolutional capsule layer.
        hidden: number of capsules of each fully connected layer below the classes.
        iterations, schedule: of the routing, see `ConcurrentRouting`.
        scaled, layer_norm, dropout, initial_pose, votes_memory: see `InvertedAttentionRouting`.
        activations: whether all capsules below the classes have activations (ablation C), see the same layer.
        probabilities: "softmax": the network's "activations" are logits, for `SoftmaxCrossentropy`; "sigmoid", where
            several classes may be present: "activations" are probabilities, and "logits" are a further output.

    Example:
        >>> AttentionCapsNet().count_params()
        561297
    """
    one_of("probabilities", probabilities, ("softmax", "sigmoid"))
    rows, columns = pair("primary_kernel_size", primary_kernel_size)
    backbones.check_convolutions(convolutions)
    if not isinstance(hidden, (tuple, list)):
        raise ValueError(f"`hidden` must be a list: the number of capsules of each layer. Received: {hidden!r}")
    dim = backbones.columns_of(pose)
    images = backbones.image_input(image_shape, classes)
    x = backbones.features_of(images, _backbone(backbone, image_shape, filters))
    options: dict[str, Any] = dict(activation="layer_norm", use_bias=False, name="primary_capsules")
    options["capsule_activation"] = "sigmoid" if truth_value("activations", activations) else None
    options["kernel_initializer"] = backbones.fan_in_uniform(rows * columns * x.shape[-1])
    x = layers.PrimaryCapsules(types, pose, primary_kernel_size, primary_strides, **options)(x)
    options = dict(scaled=scaled, layer_norm=layer_norm, dropout=dropout, initial_pose=initial_pose, dtype="float32")
    options["votes_memory"] = votes_memory
    below = options | {"use_activations": activations}
    chain: list[keras.Layer] = []
    for number, (capsules, kernel_size, strides) in enumerate(convolutions, start=1):
        below["name"] = f"convolutional_capsules_{number}"
        chain.append(layers.ConvInvertedAttentionRouting(capsules, dim, kernel_size, strides, **below))
    for number, capsules in enumerate(hidden, start=1):
        below["name"] = f"capsules_{number}"
        chain.append(layers.InvertedAttentionRouting(capsules, dim, **below))
    chain.append(layers.InvertedAttentionRouting(classes, dim, name="class_capsules", **options))
    routing = layers.ConcurrentRouting(chain, iterations, schedule, dtype="float32", name="routing")
    poses = routing(*x) if activations else routing(x)
    entries = keras.layers.Reshape((classes, -1), dtype="float32")(poses)
    logits = _dense(entries, 1, dtype="float32", name="logit")
    logits = keras.layers.Reshape((classes,), dtype="float32")(logits)
    outputs = {"activations": logits, "poses": poses}
    if probabilities == "sigmoid":
        outputs |= {"activations": keras.layers.Activation("sigmoid", dtype="float32")(logits), "logits": logits}
    return classifier(images, outputs, weights, logits=probabilities == "softmax", name=name)


def DynamicCapsNet(
    image_shape: Shape = (32, 32, 3),
    classes: int = 10,
    backbone: str | keras.Model = "simple",
    filters: int | None = None,
    types: int = 32,
    iterations: int = 3,
    weights: Weights = None,
    name: str | None = "dynamic_capsnet",
) -> CapsuleClassifier:
    """The dynamic routing network of the paper's comparison: that of Sabour et al. 2017 without decoder.

    Source: Tsai et al. 2020, tables 4 and 5; 7,992,576 parameters, with the residual backbone 12,451,136 trainable
    ones. Different from the appendix: the last stage of that backbone has 256 channels, to match the published count.

    Args:
        image_shape, classes, weights, name: as of all networks, see `tf_capsules.models`.
        types, iterations: see `tf_capsules.models.sabour2017.CapsNet`.
        backbone: as of `AttentionCapsNet`; "simple" is a convolution of 9x9.
        filters: channels of the simple backbone; None: 256.
    """
    options: dict[str, Any] = dict(types=types, iterations=iterations, decoder_units=None, weights=weights, name=name)
    if isinstance(backbone, str) and backbone == "simple":
        return sabour2017.CapsNet(image_shape, classes, 256 if filters is None else filters, **options)
    backbone = _backbone(backbone, image_shape, filters, resnet=(64, 256))
    return sabour2017.CapsNet(image_shape, classes, backbone=backbone, primary_strides=1, **options)


def ConvDynamicCapsNet(
    image_shape: Shape = (36, 36, 1),
    classes: int = 10,
    backbone: str | keras.Model = "simple",
    filters: int | None = None,
    types: int = 16,
    pose: int = 64,
    convolutions: Sequence[Sequence[int]] = ((16, 3, 1),),
    iterations: int = 3,
    votes_memory: str = "auto",
    weights: Weights = None,
    name: str | None = "conv_dynamic_capsnet",
) -> CapsuleClassifier:
    """Dynamic routing for DiverseMultiMNIST, in convolutional capsule layers too.

    Source: Tsai et al. 2020, section 6 and figure 5 ("CapsNet*"); 42,478,592 parameters. The paper gives only the size.
    The rest is as in the paper's own network of vectors, with three changes: poses are squashed instead of layer
    normalized, layers are routed one after the other, and probabilities are lengths.

    Args:
        image_shape, classes, weights, name: as of all networks, see `tf_capsules.models`.
        backbone, types, convolutions: see `AttentionCapsNet`.
        filters: channels of the simple backbone; None: 1,024.
        pose: of every capsule, the number of entries of a vector.
        iterations: of the routing, at least 1.
        votes_memory: of the convolutional capsule layers, see `ConvDynamicRouting`; "store" trains faster and, for 128
            channels, takes 21 MB more for each image of a batch.
    """
    pose = positive_int("pose", pose)
    backbones.check_convolutions(convolutions)
    images = backbones.image_input(image_shape, classes)
    x = backbones.features_of(images, _backbone(backbone, image_shape, filters, simple=1024))
    x = layers.PrimaryCapsules(types, pose, 3, 2, name="primary_capsules")(x)
    options: dict[str, Any] = dict(iterations=iterations, dtype="float32")
    for number, (capsules, kernel_size, strides) in enumerate(convolutions, start=1):
        windowed = options | dict(votes_memory=votes_memory, name=f"convolutional_capsules_{number}")
        x = layers.ConvDynamicRouting(capsules, pose, kernel_size, strides, **windowed)(x)
    poses = layers.DynamicRouting(classes, pose, name="class_capsules", **options)(x)
    return classifier(images, {"poses": poses}, weights, name=name)


def EMCapsNet(
    image_shape: Shape = (32, 32, 3),
    classes: int = 10,
    backbone: str | keras.Model = "simple",
    filters: int | None = None,
    types: int = 32,
    capsules: Sequence[int] = (32, 32),
    iterations: int = 2,
    weights: Weights = None,
    name: str | None = "em_capsnet",
) -> CapsuleClassifier:
    """The EM routing network of the paper's comparison: `MatrixCapsNet` on another backbone, with its activations.

    Source: Tsai et al. 2020, tables 6 and 7; trainable parameters without the betas (148 with ten classes): 452,896,
    and 1,710,432 with the residual backbone.

    Args:
        image_shape, classes, weights, name: as of all networks, see `tf_capsules.models`.
        types, capsules, iterations: see `tf_capsules.models.hinton2018.MatrixCapsNet`.
        filters: channels of the simple backbone; None: 256.
        backbone: as of `AttentionCapsNet`; "simple" is a normalized convolution of 4x4.
    """
    backbone = _backbone(backbone, image_shape, filters, kernel_size=4, batch_norm=True)
    options: dict[str, Any] = dict(types=types, capsules=capsules, iterations=iterations, weights=weights, name=name)
    return hinton2018.MatrixCapsNet(image_shape, classes, backbone=backbone, **options)


def BaselineCNN(
    image_shape: Shape = (32, 32, 3),
    classes: int = 10,
    filters: int = 1024,
    weights: Weights = None,
    name: str | None = "baseline_cnn",
) -> keras.Model:
    """The convolutional baseline for CIFAR, 18,919,434 trainable parameters (Tsai et al. 2020, tables 2 and 3).

    Args:
        image_shape: at least 21 x 21, to be halved five times.
        classes, weights, name: as of all networks, see `tf_capsules.models`.
        filters: channels of each convolution.
    """
    images = backbones.image_input(image_shape, classes, smallest=21)  # 21, 11, 6, 3, 2, 1
    x = keras.layers.ReLU()(backbones.padded_convolution(images, filters, strides=2))
    for _ in range(2):
        x = backbones.batch_normalized(keras.layers.ReLU()(backbones.padded_convolution(x, filters, strides=2)))
        x = keras.layers.AveragePooling2D(2, **CHANNELS_LAST)(x)
    x = keras.layers.Flatten(**CHANNELS_LAST)(x)
    return load_weights(keras.Model(images, _probabilities(x, classes, "softmax"), name=name), weights)


def ResNet18(
    image_shape: Shape = (32, 32, 3),
    classes: int = 10,
    filters: Sequence[int] = (64, 128, 256, 512),
    weights: Weights = None,
    name: str | None = "resnet18",
) -> keras.Model:
    """The residual network of 18 layers for CIFAR, 11,173,962 trainable parameters.

    Source: He et al. 2016; Tsai et al. 2020, section 5: no pooling after the first convolution, which is 3x3.

    Args:
        image_shape, classes, weights, name: as of all networks, see `tf_capsules.models`.
        filters: channels of each of the four stages.
    """
    images = backbones.image_input(image_shape, classes)
    x = backbones.ResNetBackbone(image_shape, filters=filters, blocks=(2, 2, 2, 2), stem=None)(images)
    x = keras.layers.GlobalAveragePooling2D(**CHANNELS_LAST)(x)
    return load_weights(keras.Model(images, _probabilities(x, classes, "softmax"), name=name), weights)


def DiverseCNN(
    image_shape: Shape = (36, 36, 1),
    classes: int = 10,
    pooling: str = "average",
    filters: int = 1024,
    hidden: int = 640,
    weights: Weights = None,
    name: str | None = "diverse_cnn",
) -> keras.Model:
    """The convolutional baselines for DiverseMultiMNIST, whose class probabilities are independent.

    Source: Tsai et al. 2020, table 12; trainable parameters 19,553,162 with average pooling, 42,490,762 with learned
    pooling. The paper states no non-linearity between the last two layers, and there is none here.

    Args:
        image_shape, classes, weights, name: as of all networks, see `tf_capsules.models`.
        pooling: "average": means of `hidden` channels over positions; "learned": `hidden` units that see all positions.
        filters, hidden: channels of each convolution; see `pooling`.
    """
    one_of("pooling", pooling, ("average", "learned"))
    images = backbones.image_input(image_shape, classes)
    x = keras.layers.ReLU()(backbones.padded_convolution(images, filters, strides=2))
    for strides in (2, 1):
        x = keras.layers.ReLU()(backbones.padded_convolution(x, filters, strides=strides, padding=0))
        x = backbones.batch_normalized(x)
    if pooling == "average":
        x = backbones.padded_convolution(x, hidden, 1)
        x = keras.layers.GlobalAveragePooling2D(**CHANNELS_LAST)(x)
    else:
        x = _dense(keras.layers.Flatten(**CHANNELS_LAST)(x), hidden)
    return load_weights(keras.Model(images, _probabilities(x, classes, "sigmoid"), name=name), weights)


def _backbone(backbone, image_shape, filters, simple=256, kernel_size=3, batch_norm=False, resnet=(64, 128)):
    """The model that a name stands for, or the one that was given."""
    if isinstance(backbone, str):
        one_of("backbone", backbone, ("simple", "resnet"))
    if backbone == "simple":
        return backbones.SimpleBackbone(image_shape, simple if filters is None else filters, kernel_size, batch_norm)
    if filters is not None:
        raise ValueError(f"`filters` is only for the simple backbone. Received {filters!r} with {backbone!r}.")
    return backbones.ResNetBackbone(image_shape, filters=resnet) if backbone == "resnet" else backbone


def _dense(x, units, **options):
    start = [backbones.fan_in_uniform(x.shape[-1]) for _ in range(2)]
    return keras.layers.Dense(units, kernel_initializer=start[0], bias_initializer=start[1], **options)(x)


def _probabilities(x, classes, activation):
    return _dense(x, classes, activation=activation, dtype="float32", name="probabilities")
