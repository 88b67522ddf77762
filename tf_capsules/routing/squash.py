"""The length of a capsule and the squashing non-linearity."""

from collections.abc import Sequence

from keras import ops

from tf_capsules.argument_types import Tensor
from tf_capsules.routing.precision import at_least_float32

# Added under the root: value and gradient are finite at zero. The relative error of a length of 1e-3 is 5e-7.
TINY = 1e-12


def length(poses: Tensor, axis: int | Sequence[int] = -1, keepdims: bool = False):
    """Length of each capsule, `sqrt(sum(poses**2) + 1e-12)`. Value and gradient are finite, even at zero.

    Args:
        poses: tensor of any shape.
        axis: the pose axis, or a tuple of them.
        keepdims: keep the reduced axes with size 1.

    Returns:
        The lengths, in at least float32.
    """
    poses = at_least_float32(poses)
    # Squares of a float32 overflow at 1e19: large capsules are measured in units of their largest entry.
    unit = ops.stop_gradient(ops.max(ops.abs(poses), axis=axis, keepdims=True, initial=1.0))
    result = unit * ops.sqrt(ops.sum(ops.square(poses / unit), axis=axis, keepdims=True) + TINY)
    return result if keepdims else ops.squeeze(result, axis=axis)


def squash(poses: Tensor, axis: int | Sequence[int] = -1):
    """Shrinks each capsule to a length below 1, keeping its direction: `|s|^2 / (1 + |s|^2) * s / |s|`.

    Source: Sabour et al. 2017, eq. 1.

    Args:
        poses: tensor of any shape.
        axis: the pose axis, or a tuple of them.

    Returns:
        A tensor of the same shape, in at least float32.

    Example:
        >>> [round(float(x), 6) for x in squash([[3.0, 4.0]])[0]]
        [0.576923, 0.769231]
    """
    poses = at_least_float32(poses)
    norm = length(poses, axis, keepdims=True)
    return poses / (norm + 1 / norm)


def squash_gradient(poses: Tensor, upstream: Tensor):
    """The gradient of `squash` over the last axis with respect to the poses, where `upstream` is that of its result."""
    norm = length(poses, keepdims=True)
    factor = 1 / (norm + 1 / norm)
    along = ops.sum(poses / norm * upstream, axis=-1, keepdims=True)
    return factor * upstream + factor * factor * (1 / norm - norm) * along * (poses / norm)


def squash_exponential(poses: Tensor, axis: int | Sequence[int] = -1):
    """Shrinks each capsule to a length below 1, keeping its direction: `(1 - exp(-|s|)) * s / |s|`.

    Its slope at zero is 1, where that of `squash` is 0. `1 - exp(-n)` is computed as `tanh(n / 2) (1 + exp(-n))`, which
    keeps its digits near 0 and which ONNX has. Arguments: see `squash`. Source: Mazzia et al. 2021, section 3.1.

    Example:
        >>> [round(float(x), 6) for x in squash_exponential([[0.6, 0.8]])[0]]
        [0.379272, 0.505696]
    """
    poses = at_least_float32(poses)
    norm = length(poses, axis, keepdims=True)
    return poses * (ops.minimum(ops.tanh(norm / 2) * (1 + ops.exp(-norm)), 1) / norm)
