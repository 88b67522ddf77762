"""The decoder: class capsules back to an image."""

import math
from collections.abc import Sequence

import keras
import numpy as np
from keras import ops

from tf_capsules.argument_types import Constraint, Initializer, Regularizer, Shape
from tf_capsules.layers.arguments import image_sizes, known_axes, positive_ints
from tf_capsules.layers.configured import Configured


@keras.saving.register_keras_serializable("tf_capsules")
class Decoder(Configured):
    """Reconstructs an image from masked class capsules with fully connected layers.

    Source: Sabour et al. 2017, figure 2: 512 and 1024 units with ReLU, then a sigmoid unit for each value. The input is
    all class capsules, flattened (160 numbers for ten classes of 16). All but one of the capsules are zero.

    Args:
        image_shape: (height, width, channels) of the reconstruction.
        units: units of the hidden layers.
        kernel_initializer, ..., bias_constraint: initializers, regularizers and constraints of all layers.

    Call arguments:
        poses: (batch, classes, *pose), masked.

    Returns:
        (batch, height, width, channels) in (0, 1).

    Raises:
        ValueError: an image shape that isn't three positive numbers, units below 1, capsules of unknown number or size.

    Example:
        >>> Decoder((4, 5, 1), units=(8,))(np.zeros((2, 3, 6))).shape
        TensorShape([2, 4, 5, 1])
    """

    def __init__(
        self,
        image_shape: Shape,
        units: Sequence[int] = (512, 1024),
        kernel_initializer: Initializer = "glorot_uniform",
        bias_initializer: Initializer = "zeros",
        kernel_regularizer: Regularizer = None,
        bias_regularizer: Regularizer = None,
        kernel_constraint: Constraint = None,
        bias_constraint: Constraint = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.image_shape = image_sizes(image_shape)
        self.units = () if np.size(units) == 0 else positive_ints("units", units, "hidden layer", (512, 1024))
        self._set_weight_options(locals())
        sizes = (*self.units, math.prod(self.image_shape))
        self.dense = []
        for number, size in enumerate(sizes):
            options = {**self._weight_options(clone=True), **self._inner, "name": f"dense_{number}"}
            self.dense.append(keras.layers.Dense(size, "relu" if number < len(self.units) else "sigmoid", **options))

    def build(self, input_shape):
        known_axes(self, input_shape, {axis: "capsules and their size" for axis in range(1, len(input_shape))})
        self.input_spec = keras.layers.InputSpec(shape=(None, *input_shape[1:]))
        size = math.prod(input_shape[1:])
        for layer in self.dense:
            layer.build((None, size))
            size = layer.units
        super().build(input_shape)

    def call(self, poses):
        x = ops.reshape(poses, (ops.shape(poses)[0], math.prod(poses.shape[1:])))
        for layer in self.dense:
            x = layer(x)
        return ops.reshape(x, (-1, *self.image_shape))

    def compute_output_shape(self, input_shape):
        return (input_shape[0], *self.image_shape)
