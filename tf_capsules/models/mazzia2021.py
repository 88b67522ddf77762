"""The networks of "Efficient-CapsNet: capsule network with self-attention routing" (Mazzia et al. 2021)."""

from collections.abc import Sequence

import keras

from tf_capsules.argument_types import Shape, Weights
from tf_capsules.layers import Decoder, DepthwisePrimaryCapsules, SelfAttentionRouting, UpsamplingDecoder
from tf_capsules.layers.arguments import CHANNELS_LAST, image_sizes, one_of, positive_int_or_none
from tf_capsules.layers.batch_normalization import BatchNormalization
from tf_capsules.models.backbones import check_convolutions, image_input
from tf_capsules.models.classifier import CapsuleClassifier, classifier

# Filters, size of the kernel, stride.
MNIST = ((32, 5, 1), (64, 3, 1), (64, 3, 1), (128, 3, 2))
SMALLNORB = ((32, 7, 2), (64, 3, 1), (64, 3, 1), (128, 3, 2))
MULTIMNIST = ((32, 5, 1), (64, 3, 1), (64, 3, 2), (128, 3, 2))


def EfficientCapsNet(
    image_shape: Shape = (28, 28, 1),
    classes: int = 10,
    convolutions: Sequence[Sequence[int]] = MNIST,
    normalization: str = "batch",
    primary_kernel_size: int | None = None,
    primary_strides: int = 1,
    pose: int = 8,
    dim: int = 16,
    decoder: str | None = "dense",
    reconstruction_weight: float | None = None,
    weights: Weights = None,
    name: str | None = "efficient_capsnet",
) -> CapsuleClassifier:
    """The capsule network with self-attention routing: four convolutions, depthwise primary capsules, class capsules.

    Source: Mazzia et al. 2021, section 3, and the released code. The default values are those of MNIST: 161,824
    trainable parameters without the decoder. The smallNORB network, 151,664, is
    `EfficientCapsNet((48, 48, 2), 5, SMALLNORB, "instance", decoder="upsampling")`.

    Args:
        image_shape, classes, name: as of all networks, see `tf_capsules.models`.
        convolutions: (filters, kernel size, stride) of each, unpadded: `MNIST`, `SMALLNORB`, `MULTIMNIST`, or your own.
        normalization: "batch" after a ReLU, or "instance" (each map of each example) after a leaky ReLU of 0.3.
        primary_kernel_size, primary_strides: of the primary capsules' filters; None: the whole feature map. The paper
            has 5 and 2 for MultiMNIST.
        pose, dim: entries of the pose of a primary capsule and of a class capsule.
        decoder: "dense" (512 and 1024 hidden units), "upsampling" (convolutions, for images of 48x48), or None.
        reconstruction_weight: factor on the summed squared error; None: the paper's 0.392 times the mean squared error.
        weights: as of all networks; or the path of the authors' smallNORB file.

    Example:
        >>> model = EfficientCapsNet(decoder=None)
        >>> sum(weight.shape.num_elements() for weight in model.trainable_weights)
        161824
    """
    one_of("normalization", normalization, ("batch", "instance"))
    one_of("decoder", decoder, ("dense", "upsampling", None))
    height, width, channels = image_sizes(image_shape)
    check_convolutions(convolutions, "filters")
    if decoder == "upsampling" and (height, width) != (48, 48):
        raise ValueError(f'decoder="upsampling" makes images of 48x48. Received image_shape {tuple(image_shape)}.')
    smallest = positive_int_or_none("primary_kernel_size", primary_kernel_size) or 1
    for _, kernel_size, strides in reversed(convolutions):
        smallest = (smallest - 1) * strides + kernel_size
    images = image_input(image_shape, classes, smallest)
    x = images
    for index, (filters, kernel_size, strides) in enumerate(convolutions, start=1):
        drawn = dict(kernel_initializer="he_normal", name=f"convolution_{index}")
        x = keras.layers.Conv2D(filters, kernel_size, strides, **drawn, **CHANNELS_LAST)(x)
        if normalization == "batch":
            x = BatchNormalization(name=f"normalization_{index}")(keras.layers.ReLU()(x))
        else:  # each map is a group of its own
            drawn = dict(beta_initializer="random_uniform", gamma_initializer="random_uniform")
            normalize = keras.layers.GroupNormalization(-1, epsilon=1e-3, name=f"normalization_{index}", **drawn)
            x = normalize(keras.layers.LeakyReLU(0.3)(x))
    x = DepthwisePrimaryCapsules(pose, primary_kernel_size, primary_strides, name="primary_capsules")(x)
    poses = SelfAttentionRouting(classes, dim, dtype="float32", name="class_capsules")(x)
    if reconstruction_weight is None:
        reconstruction_weight = 0.392 / (height * width * channels)
    layer = None
    if decoder == "dense":
        layer = Decoder(image_shape, name="decoder")
    elif decoder == "upsampling":
        layer = UpsamplingDecoder(channels, name="decoder")
    options = dict(decoder=layer, reconstruction_weight=reconstruction_weight, name=name)
    return classifier(images, {"poses": poses}, weights, **options)
