"""Backbones, which lie below the capsules: Keras models from images to a map (batch, height, width, channels)."""

import inspect
from collections.abc import Callable, Sequence

import keras

from tf_capsules.argument_types import Dtype, Shape, Size, Tensor
from tf_capsules.layers.arguments import CHANNELS_LAST, image_sizes, positive_int, positive_ints
from tf_capsules.layers.batch_normalization import BatchNormalization
from tf_capsules.layers.connections import alike


def fan_in_uniform(fan_in: int):
    """An initializer of weights and biases, uniform within `1 / sqrt(fan_in)`."""
    limit = fan_in**-0.5
    return keras.initializers.RandomUniform(-limit, limit)


def padded_convolution(
    x: Tensor,
    filters: int,
    kernel_size: int = 3,
    strides: int = 1,
    padding: int | None = None,
    use_bias: bool = True,
    initializers: Sequence | None = None,
    name: str | None = None,
):
    """A convolution of an image with `padding` zeros on every side; None: `(kernel_size - 1) // 2`.

    Keras's "same" is different for a 3x3 kernel with stride 2 and even sizes: it pads below and on the right alone.
    `initializers` draw kernel and bias; None: `fan_in_uniform`.
    """
    padding = (kernel_size - 1) // 2 if padding is None else padding
    fan_in = kernel_size**2 * x.shape[-1]
    x = keras.layers.ZeroPadding2D(padding, **CHANNELS_LAST)(x) if padding else x
    kernel, bias = initializers or (fan_in_uniform(fan_in), fan_in_uniform(fan_in))
    options = dict(kernel_initializer=kernel, bias_initializer=bias, use_bias=use_bias, name=name)
    return keras.layers.Conv2D(filters, kernel_size, strides, **options, **CHANNELS_LAST)(x)


def batch_normalized(x: Tensor, name: str | None = None, dtype: Dtype = None):
    return BatchNormalization(momentum=0.9, epsilon=1e-5, name=name, dtype=dtype)(x)


def SimpleBackbone(
    image_shape: Shape = (32, 32, 3),
    filters: int = 256,
    kernel_size: int = 3,
    batch_norm: bool = False,
    name: str | None = "simple_backbone",
):
    """One convolution with stride 2, zero padding and ReLU.

    Source: Tsai et al. 2020, table 8. Table 6 (EM routing) has a kernel of 4 and batch normalization.

    Args:
        image_shape, name: as of all networks, see `tf_capsules.models`.
        filters, kernel_size: of the convolution.
        batch_norm: whether batch normalization comes between the convolution and ReLU.

    Example:
        >>> SimpleBackbone().output_shape
        (None, 16, 16, 256)
    """
    images = image_input(image_shape)
    x = padded_convolution(images, filters, kernel_size, strides=2, name="convolution")
    x = keras.layers.ReLU()(batch_normalized(x) if batch_norm else x)
    return keras.Model(images, x, name=name)


def ResNetBackbone(
    image_shape: Shape = (32, 32, 3),
    stem: int | None = 64,
    filters: Sequence[int] = (64, 128),
    blocks: Sequence[int] = (3, 4),
    name: str | None = "resnet_backbone",
    convolution: Callable = padded_convolution,
):
    """A residual network without a head: a convolution, then stages of basic blocks; each but the first halves the map.

    Source: He et al. 2016, in the form of Tsai et al. 2020, table 9 (1,340,224 trainable parameters). The layers
    "stem", "stage_1", "stage_2", ... give the outputs of the first convolution and of the stages.

    Args:
        image_shape, name: as of all networks, see `tf_capsules.models`.
        stem: channels of the first convolution; None: as many as the first stage has.
        filters, blocks: channels and basic blocks of each stage.
        convolution: makes each convolution, called as `padded_convolution`.

    Raises:
        ValueError: arguments out of range, or `filters` and `blocks` of different lengths.

    Example:
        >>> ResNetBackbone().output_shape
        (None, 16, 16, 128)
    """
    filters = positive_ints("filters", filters, "stage", (64, 128))
    blocks = positive_ints("blocks", blocks, "stage", (3, 4))
    if len(filters) != len(blocks):
        raise ValueError(f"`filters` and `blocks` must have a number for each stage. Received: {filters} and {blocks}")
    stem = filters[0] if stem is None else positive_int("stem", stem)
    images = image_input(image_shape)
    x = keras.layers.ReLU(name="stem")(batch_normalized(convolution(images, stem, use_bias=False)))
    for stage, (channels, count) in enumerate(zip(filters, blocks, strict=True), start=1):
        for block in range(count):
            strides = 2 if stage > 1 and not block else 1
            end = f"stage_{stage}" if block == count - 1 else None
            x = basic_block(x, channels, strides, convolution, name=end)
    return keras.Model(images, x, name=name)


def basic_block(x: Tensor, channels: int, strides: int, convolution: Callable, name: str | None):
    """Two convolutions and a shortcut, a 1x1 convolution where shapes differ; `name` is the name of the last layer."""
    shortcut = x
    if strides > 1 or x.shape[-1] != channels:
        shortcut = batch_normalized(convolution(x, channels, 1, strides, use_bias=False))
    x = keras.layers.ReLU()(batch_normalized(convolution(x, channels, 3, strides, use_bias=False)))
    x = batch_normalized(convolution(x, channels, use_bias=False))
    return keras.layers.ReLU(name=name)(keras.layers.Add()([x, shortcut]))


def image_input(image_shape: Shape, classes: int = 1, smallest: int = 1):
    """The symbolic images a network begins with, (batch, height, width, channels).

    Raises a ValueError for another shape than (height, width, channels), sides shorter than `smallest`, or no class.
    """
    positive_int("classes", classes)
    sizes = image_sizes(image_shape)
    if min(sizes[:2]) < smallest:
        raise ValueError(f"`image_shape` must be at least {smallest} x {smallest}. Received: {image_shape!r}")
    return keras.Input(sizes, name="images")


def check_convolutions(convolutions: Sequence[Sequence[int]], channels: str = "types"):
    """Raises a ValueError unless each convolution is (channels, kernel size, strides)."""
    for convolution in convolutions if isinstance(convolutions, (tuple, list)) else (convolutions,):
        if not isinstance(convolution, (tuple, list)) or len(convolution) != 3:
            form = f"({channels}, kernel size, strides)"
            raise ValueError(f"`convolutions` must be a list of {form}. Received: {convolutions!r}")
        for number in convolution:
            positive_int("convolutions", number)


def columns_of(pose: Size):
    """The columns of a matrix pose (rows, columns), or the entries of a vector pose, which is a number."""
    if pose in ((), []):
        raise ValueError(f"`pose` must be (rows, columns), or a number of entries. Received: {pose!r}")
    return pose[-1] if isinstance(pose, (tuple, list)) else pose


def check_unused(model: Callable, why: str = "is of a convolution that `backbone` replaces", **given):
    """Raises a ValueError for an argument that a network does not use, unless it has its default."""
    for name, value in given.items():
        if value != inspect.signature(model).parameters[name].default:
            raise ValueError(f"`{name}` {why}. Received: {value!r}")


def features_of(images: Tensor, backbone: keras.Layer | None):
    """The feature map that a backbone makes of symbolic images (batch, height, width, channels).

    Raises a ValueError if the backbone is no Keras layer, is for other images, or makes no map of known size.
    """
    if not isinstance(backbone, keras.Layer):
        raise ValueError(f"`backbone` must be a Keras model or layer. Received: {backbone!r}")
    takes = getattr(backbone, "input_shape", None) if isinstance(backbone, keras.Model) else None
    if isinstance(takes, tuple) and not alike(takes, images.shape):
        raise ValueError(f"`backbone` takes images of {takes[1:]}. Received `image_shape` {images.shape[1:]}.")
    x = backbone(images)
    if not keras.backend.is_keras_tensor(x) or len(x.shape) != 4 or None in x.shape[1:]:
        given = tuple(x.shape) if keras.backend.is_keras_tensor(x) else x
        raise ValueError(f"`backbone` must give features (batch, height, width, channels) of known size, not {given}.")
    return x
