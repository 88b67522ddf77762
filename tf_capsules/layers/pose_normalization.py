"""Layer normalization of poses, with a gradient of few operations."""

import math

import keras
from keras import ops

from tf_capsules.routing.precision import at_least_float32


class PoseNormalization(keras.layers.LayerNormalization):
    """Keras's layer normalization over the last axes, faster in training on CPUs.

    A map of capsules has very many poses of few entries, so most of the time goes into reading and writing the map.
    With TensorFlow, 27 of Keras's operations and of their gradients read or write the whole map. Here 18 do, and one
    map is kept for the backward pass. Other backends run Keras's own code. Weights and results are Keras's.

    Source: Ba, Kiros, Hinton 2016, "Layer Normalization", eqs. 3 and 4.

    Args:
        pose_shape: the shape of a pose: the sizes of the last axes, over which the layer normalizes.
        epsilon: added to the variance.
    """

    def __init__(self, pose_shape: tuple, epsilon: float = 1e-5, **kwargs):
        super().__init__(tuple(range(-len(pose_shape), 0)), epsilon, name="layer_normalization", **kwargs)

    def call(self, inputs):
        if keras.backend.backend() != "tensorflow":
            return super().call(inputs)
        x, entries = at_least_float32(inputs), math.prod(self.gamma.shape)

        @ops.custom_gradient
        def normalize(x, gain, offset):  # x is (poses, entries)
            centered = x - ops.mean(x, axis=1, keepdims=True)
            scale = ops.rsqrt(ops.mean(ops.square(centered), axis=1, keepdims=True) + self.epsilon)
            standard = centered * scale

            def gradient(*args, upstream=None):
                upstream = args[0] if upstream is None else upstream
                products = upstream * standard
                mean = ops.reshape(gain / entries, (-1, 1))  # a product of y with it is the mean of `y * gain`
                d_x = upstream * gain - ops.matmul(upstream, mean) - standard * ops.matmul(products, mean)
                return scale * d_x, ops.sum(products, axis=0), ops.sum(upstream, axis=0)

            return standard * gain + offset, gradient

        gain, offset = (ops.reshape(ops.cast(weight, x.dtype), (-1,)) for weight in (self.gamma, self.beta))
        normalized = normalize(ops.reshape(x, (-1, entries)), gain, offset)
        return ops.cast(ops.reshape(normalized, ops.shape(x)), self.compute_dtype)
