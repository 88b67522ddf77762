"""Coordinate channels: where on the image a feature lies."""

import keras
from keras import ops

from tf_capsules.layers.arguments import check_feature_map
from tf_capsules.routing.precision import precise


@keras.saving.register_keras_serializable("tf_capsules")
class CoordinateChannels(keras.layers.Layer):
    """Appends each position's row and column to the channels of a feature map.

    Source: Heinsen 2019, section 3.1 (the smallNORB network). The row comes first, then the column. Both run from -1 to
    1, end points included; a single row or column is at 0.

    Call arguments:
        features: (batch, height, width, channels).

    Returns:
        (batch, height, width, channels + 2).

    Raises:
        ValueError: features that are not of rank 4, or an unknown number of channels.

    Example:
        >>> CoordinateChannels()(np.zeros((1, 3, 2, 1)))[0, :, 0, 1].numpy().tolist()
        [-1.0, 0.0, 1.0]
    """

    def build(self, input_shape):
        check_feature_map(self, input_shape)
        super().build(input_shape)

    def call(self, features):
        features = ops.cast(features, self.compute_dtype)  # Keras leaves whole numbers as they are
        batch, height, width, _ = ops.shape(features)
        dtype = precise(features.dtype)
        rows = ops.broadcast_to(_positions(height, dtype)[None, :, None, None], (batch, height, width, 1))
        columns = ops.broadcast_to(_positions(width, dtype)[None, None, :, None], (batch, height, width, 1))
        return ops.concatenate([features, ops.cast(rows, features.dtype), ops.cast(columns, features.dtype)], axis=-1)

    def compute_output_shape(self, input_shape):
        return (*input_shape[:3], input_shape[3] + 2)


def _positions(size, dtype):
    steps = ops.cast(ops.maximum(size - 1, 1), dtype)
    return (2 * ops.arange(size, dtype=dtype) - ops.cast(size - 1, dtype)) / steps
