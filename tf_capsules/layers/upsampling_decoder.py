"""The convolutional decoder: class capsules back to an image."""

import math

import keras
from keras import ops

from tf_capsules.argument_types import Constraint, Initializer, Regularizer
from tf_capsules.layers.arguments import CHANNELS_LAST, known_axes, positive_int
from tf_capsules.layers.configured import Configured


@keras.saving.register_keras_serializable("tf_capsules")
class UpsamplingDecoder(Configured):
    """Reconstructs an image from masked class capsules: a small map, enlarged and convolved three times.

    Source: the released code of Mazzia et al. 2021 for smallNORB. A dense layer makes a map of 8x8. Three blocks
    follow: each doubles the map's size bilinearly and applies a 3x3 convolution without padding (64, 128 and 128
    filters, leaky ReLU of 0.2). A last 3x3 convolution with a sigmoid gives the channels of the image.

    Args:
        channels: of the image, which is 48x48.
        kernel_initializer, ..., bias_constraint: initializers, regularizers and constraints of all layers.

    Call arguments:
        poses: (batch, classes, *pose), masked.

    Returns:
        (batch, 48, 48, channels) in (0, 1).

    Raises:
        ValueError: channels below 1, or capsules of unknown number or size.

    Example:
        >>> UpsamplingDecoder(channels=2)(np.zeros((1, 5, 16))).shape
        TensorShape([1, 48, 48, 2])
    """

    def __init__(
        self,
        channels: int = 2,
        kernel_initializer: Initializer = "glorot_uniform",
        bias_initializer: Initializer = "zeros",
        kernel_regularizer: Regularizer = None,
        bias_regularizer: Regularizer = None,
        kernel_constraint: Constraint = None,
        bias_constraint: Constraint = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self._set_weight_options(locals())
        self.channels = positive_int("channels", channels)
        self.image_shape = (48, 48, self.channels)
        self.dense = keras.layers.Dense(64, **self._weight_options(clone=True), **self._inner, name="dense")
        self.enlarge = keras.layers.UpSampling2D(2, interpolation="bilinear", **self._inner, **CHANNELS_LAST)
        self.convolutions = [self._convolution(f"convolution_{n}", size) for n, size in enumerate((64, 128, 128))]
        self.last = self._convolution("last", self.channels, "sigmoid")

    def _convolution(self, name, filters, activation=None):
        options = {**self._weight_options(clone=True), **self._inner, **CHANNELS_LAST}
        return keras.layers.Conv2D(filters, 3, activation=activation, name=name, **options)

    def build(self, input_shape):
        known_axes(self, input_shape, {axis: "capsules and their size" for axis in range(1, len(input_shape))})
        self.input_spec = keras.layers.InputSpec(shape=(None, *input_shape[1:]))
        self.dense.build((None, math.prod(input_shape[1:])))
        self.enlarge.build((None, None, None, 1))  # Keras quantizes no model with a layer that is not built
        channels = 1
        for convolution in (*self.convolutions, self.last):
            convolution.build((None, None, None, channels))
            channels = convolution.filters
        super().build(input_shape)

    def call(self, poses):
        x = self.dense(ops.reshape(poses, (ops.shape(poses)[0], self.dense.kernel.shape[0])))
        x = ops.reshape(x, (-1, 8, 8, 1))
        for convolution in self.convolutions:
            x = ops.leaky_relu(convolution(self.enlarge(x)), 0.2)
        return self.last(x)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], *self.image_shape)
