"""Coordinate addition: a child's position on the grid is added to its votes (Hinton et al. 2018, section 4)."""

from keras import ops

from tf_capsules.layers.connections import need_grid, rows_of


def check_coordinates(poses_shape, dim):
    """Raises a ValueError unless votes of parents with `dim` columns have room for coordinates."""
    room = (rows_of(poses_shape) or (dim,))[0]
    need_grid("`coordinates` needs", poses_shape)
    if room < 2:
        raise ValueError(
            "`coordinates` needs votes with two rows or, if they are vectors, with two entries. Received "
            f"{room} for input shape {tuple(poses_shape)} and dim {dim}."
        )


def add_coordinates(poses, kernel):
    """Appends columns for the position to the poses, and rows to the kernel that add it to votes.

    Votes stay affine in the child's pose, so they need not be stored. A vector gets two columns, a matrix one. The new
    rows add them to the first two entries of a vector vote, or of a matrix vote's last column.
    """
    dim, rows = kernel.shape[-1], rows_of(poses.shape)
    batch, height, width, types = ops.shape(poses)[:4]
    row, column = ops.meshgrid(_centers(height, poses.dtype), _centers(width, poses.dtype), indexing="ij")
    where = ops.stack([row, column], axis=-1)[None, :, :, None]
    if rows:
        where = ops.pad(where, [[0, 0]] * 4 + [[0, rows[0] - 2]])[..., None]
        placed = ops.one_hot([dim - 1], dim, dtype=kernel.dtype)
    else:
        placed = ops.one_hot([0, 1], dim, dtype=kernel.dtype)
    where = ops.broadcast_to(where, (batch, height, width, types, *where.shape[4:]))
    placed = ops.broadcast_to(placed, (*kernel.shape[:2], *placed.shape))
    return ops.concatenate([poses, where], axis=-1), ops.concatenate([kernel, placed], axis=2)


def _centers(size, dtype):
    """Centers of `size` equal parts of [0, 1]."""
    return (ops.arange(size, dtype=dtype) + 0.5) / ops.cast(size, dtype)
