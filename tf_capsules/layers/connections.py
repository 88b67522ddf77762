"""The layout of children, flat or on a grid, and how they share transformations."""

import functools
import math
import operator

import keras
from keras import ops

from tf_capsules.layers.arguments import known_axes


def flatten_grid(poses):
    """Poses on a grid (batch, height, width, types, *pose) as (batch, capsules, *pose), in the order row, column, type.

    Poses without a grid are returned unchanged. Vectors have rank 3 without a grid and 5 on one, matrices 4 and 6.
    """
    shape = tuple(poses.shape)
    if not on_grid(shape):
        return poses
    capsules = -1 if None in shape[1:4] else math.prod(shape[1:4])
    return ops.reshape(poses, (ops.shape(poses)[0], capsules, *shape[4:]))


def on_grid(shape):
    """Whether poses of this shape lie on a grid. Raises a ValueError if they are neither vectors nor matrices."""
    if isinstance(shape[0], (tuple, list)):
        raise ValueError(f"Poses must be one array; give other inputs as further arguments. Received shapes {shape}.")
    if len(shape) not in (3, 4, 5, 6):
        raise ValueError(
            "Capsule poses are (batch, capsules, dim), (batch, capsules, rows, columns), or either on a grid "
            f"(batch, height, width, types, ...). Received shape {tuple(shape)}."
        )
    return len(shape) > 4


def need_grid(what, shape):
    """Raises a ValueError unless poses of this shape lie on a grid; `what` begins its message."""
    if not on_grid(shape):
        raise ValueError(
            f"{what} poses on a grid (batch, height, width, types, ...). Received input shape {tuple(shape)}."
        )


def rows_of(shape):
    """() for vectors, (rows,) for matrices: the shape of a pose without its columns."""
    return tuple(shape[-2:-1]) if len(shape) in (4, 6) else ()


def children_of(shape):
    """Number of children in poses of this shape, None where it is unknown."""
    places = shape[1:4] if on_grid(shape) else shape[1:2]
    return None if None in places else math.prod(places)


def count_groups(layer, shape, sharing):
    """Number of groups of children with their own transformations: 1, the capsule types, or all children."""
    known_axes(layer, shape, {-1: "size of a child's pose"} | ({-2: "rows of a pose"} if rows_of(shape) else {}))
    if sharing == "positions":
        need_grid('sharing="positions" needs', shape)
    counted = _counted_axes(shape, sharing)
    meaning = "number of capsule types" if sharing == "positions" else "number of children"
    known_axes(layer, shape, dict.fromkeys(counted, meaning))
    return math.prod(shape[axis] for axis in counted)


def input_spec(shape, sharing):
    """The `InputSpec` of a layer that is built for poses of this shape."""
    pose = range((4 if on_grid(shape) else 2) - len(shape), 0)
    axes = {axis: shape[axis] for axis in (*_counted_axes(shape, sharing), *pose)}
    return keras.layers.InputSpec(ndim=len(shape), axes=axes)


def _counted_axes(shape, sharing):
    """The axes of `shape` whose sizes give the number of groups of children."""
    return {"none": (1, 2, 3) if on_grid(shape) else (1,), "positions": (3,), "all": ()}[sharing]


def check_per_child(poses, **values):
    """Raises a ValueError unless the values have the shape of the poses without their pose axes, on a grid or flat."""
    shape = tuple(poses.shape)
    wanted = [(shape[0], children_of(shape)), *([shape[:4]] if on_grid(shape) else [])]
    for name, value in values.items():
        if value is not None and not hasattr(value, "shape"):
            value = ops.convert_to_tensor(value)
        given = None if value is None else tuple(value.shape)
        if given is not None and not any(alike(given, one) for one in wanted):
            raise ValueError(
                f"`{name}` must be shaped like `poses` without pose axes, {wanted[-1]}. Received shape {given} for "
                f"poses of shape {shape}."
            )


def alike(a, b):
    return len(a) == len(b) and all(None in pair or pair[0] == pair[1] for pair in zip(a, b, strict=True))


def bool_mask(mask, shape):
    """The mask in that shape, true where it is not 0; None stays None."""
    return None if mask is None else ops.cast(ops.reshape(mask, shape), "bool")


def masked(activations, mask, shape, dtype):
    """Activations, 0 where masked, in that shape and dtype; None if neither is given, which stands for ones."""
    factors = activations, bool_mask(mask, shape)
    given = [ops.cast(ops.reshape(x, shape), dtype) for x in factors if x is not None]
    return functools.reduce(operator.mul, given) if given else None
