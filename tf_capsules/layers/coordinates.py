"""Where on the image a feature or a capsule lies: as channels of a map, and as a part of votes."""

import keras
from keras import ops

from tf_capsules.layers.arguments import known_axes
from tf_capsules.layers.connections import on_grid, rows_of


@keras.saving.register_keras_serializable("tf_capsules")
class CoordinateChannels(keras.layers.Layer):
    """Appends each position's row and column to the channels of a feature map.

    Source: Heinsen 2019, section 3.1 (the smallNORB network). Both run from -1 to 1 with the end points included; a
    single row or column is at 0. First the row, then the column.

    Call arguments:
        features: (batch, height, width, channels).

    Returns:
        (batch, height, width, channels + 2).

    Raises:
        ValueError: features that are not of rank 4.

    Example:
        >>> CoordinateChannels()(np.zeros((1, 3, 2, 1)))[0, :, 0, 1].numpy().tolist()
        [-1.0, 0.0, 1.0]
    """

    def build(self, input_shape):
        if len(input_shape) != 4:
            raise ValueError(
                f"CoordinateChannels takes (batch, height, width, channels). Received input shape {tuple(input_shape)}."
            )
        known_axes(self, input_shape, {-1: "number of channels"})
        super().build(input_shape)

    def call(self, features):
        batch, height, width = ops.shape(features)[0], ops.shape(features)[1], ops.shape(features)[2]
        rows = ops.broadcast_to(_positions(height)[None, :, None, None], (batch, height, width, 1))
        columns = ops.broadcast_to(_positions(width)[None, None, :, None], (batch, height, width, 1))
        return ops.concatenate([features, ops.cast(rows, features.dtype), ops.cast(columns, features.dtype)], axis=-1)

    def compute_output_shape(self, input_shape):
        return (*input_shape[:3], input_shape[3] + 2)


def _positions(size):
    steps = ops.cast(ops.maximum(size - 1, 1), "float32")
    return (2 * ops.arange(size, dtype="float32") - ops.cast(size - 1, "float32")) / steps


def check_coordinates(poses_shape, dim):
    """Raises a ValueError unless votes of parents with `dim` columns have room for coordinates."""
    room = (rows_of(poses_shape) or (dim,))[0]
    if not on_grid(poses_shape):
        raise ValueError(
            "`coordinates` needs poses on a grid (batch, height, width, types, ...). "
            f"Received input shape {tuple(poses_shape)}."
        )
    if room < 2:
        raise ValueError(
            "`coordinates` needs two entries in the right-hand column of a vote, or in a vector. Received "
            f"{room} for input shape {tuple(poses_shape)} and dim {dim}."
        )


def add_coordinates(poses, kernel):
    """Coordinate addition: poses with further columns for the position, and a kernel with the rows that place them.

    Votes stay affine in the child's pose, so they need not be stored. Poses are (batch, height, width, types, d), which
    get two columns, or (batch, height, width, types, rows, d), which get one. The kernel (groups, parents, d, dim) then
    adds the row, scaled to (0, 1), to the first entry of a vote's last column, or of a vector, and the column to the
    second.
    """
    dim, rows = kernel.shape[-1], rows_of(poses.shape)
    batch, height, width, types = ops.shape(poses)[:4]
    row, column = ops.meshgrid(_centers(height), _centers(width), indexing="ij")
    where = ops.stack([row, column], axis=-1)[None, :, :, None]
    if rows:
        where = ops.pad(where, [[0, 0]] * 4 + [[0, rows[0] - 2]])[..., None]
        placed = ops.one_hot([dim - 1], dim, dtype=kernel.dtype)
    else:
        placed = ops.one_hot([0, 1], dim, dtype=kernel.dtype)
    where = ops.cast(where, poses.dtype)
    where = ops.broadcast_to(where, (batch, height, width, types, *where.shape[4:]))
    placed = ops.broadcast_to(placed, (*kernel.shape[:2], *placed.shape))
    return ops.concatenate([poses, where], axis=-1), ops.concatenate([kernel, placed], axis=2)


def _centers(size):
    """Centers of `size` equal parts of [0, 1]."""
    return (ops.arange(size, dtype="float32") + 0.5) / ops.cast(size, "float32")
