"""Layers that read class capsules: the lengths of all, and a mask that keeps the capsule of one class."""

import keras
from keras import ops

from tf_capsules.layers.connections import alike
from tf_capsules.layers.labels import class_targets
from tf_capsules.routing.squash import length


def _check_poses(layer, shape):
    if len(shape) not in (3, 4) or isinstance(shape[0], (tuple, list)):
        forms = "(batch, capsules, dim) or (batch, capsules, rows, dim)"
        raise ValueError(f"{type(layer).__name__} takes poses {forms}. Received shape {tuple(shape)}.")


def _shape(poses):
    """The shape of an array; of several arrays their shapes."""
    return poses.shape if hasattr(poses, "shape") else tuple(tuple(x.shape) for x in poses)


@keras.saving.register_keras_serializable("tf_capsules")
class CapsuleLength(keras.layers.Layer):
    """The length of each capsule: of squashed poses, the probability that its entity is present.

    Source: Sabour et al. 2017, section 2. Lengths are computed in at least float32 and returned in the compute dtype.
    As a model's last layer give it `dtype="float32"`: near 1, bfloat16 has steps of 1/256.

    Call arguments:
        poses: (batch, capsules, *pose).

    Returns:
        (batch, capsules), not negative.

    Raises:
        ValueError: poses with other axes.

    Example:
        >>> round(float(CapsuleLength()(np.array([[[0.3, 0.4]]]))[0, 0]), 4)
        0.5
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, poses):
        _check_poses(self, _shape(poses))
        return ops.cast(length(poses, tuple(range(2, len(poses.shape)))), self.compute_dtype)

    def compute_output_shape(self, input_shape):
        _check_poses(self, input_shape)
        return tuple(input_shape[:2])


@keras.saving.register_keras_serializable("tf_capsules")
class LabelMask(keras.layers.Layer):
    """Keeps the capsule of one class and sets the others to zero.

    Source: Sabour et al. 2017, section 4.1. In training the label selects the class, at inference the activation.

    Call arguments:
        poses: (batch, classes, *pose).
        labels: class numbers (batch,) or (batch, 1), or one-hot rows (batch, classes); with one class (batch, 1) is
            read as rows. None keeps the capsule of the largest activation.
        activations: (batch, classes); None takes the lengths.

    Returns:
        Poses of the same shape; NaN where a number is no class.

    Raises:
        ValueError: poses or activations with other axes; labels that are neither class numbers nor one row a sample.

    Example:
        >>> LabelMask()(np.ones((1, 3, 2)), labels=np.array([1]))[0, :, 0].numpy().tolist()
        [0.0, 1.0, 0.0]
    """

    def __init__(self, **kwargs):
        super().__init__(autocast=False, **kwargs)  # half precision would round class numbers

    def build(self, poses_shape, labels_shape=None, activations_shape=None):
        super().build(poses_shape)

    def call(self, poses, labels=None, activations=None):
        activations = None if activations is None else ops.convert_to_tensor(activations)
        self.compute_output_shape(_shape(poses), activations_shape=getattr(activations, "shape", None))
        poses = ops.cast(poses, self.compute_dtype)
        if labels is None:
            if activations is None:
                activations = length(poses, tuple(range(2, len(poses.shape))))
            labels = ops.argmax(activations, axis=-1)
        keep = class_targets(ops.convert_to_tensor(labels), poses)
        return poses * ops.reshape(keep, (-1, poses.shape[1]) + (1,) * (len(poses.shape) - 2))

    def compute_output_shape(self, poses_shape, labels_shape=None, activations_shape=None):
        _check_poses(self, poses_shape)
        if activations_shape is not None and not alike(activations_shape, poses_shape[:2]):
            wanted = f"(batch, classes), here {tuple(poses_shape[:2])}"
            raise ValueError(f"`activations` must be {wanted}. Received shape {tuple(activations_shape)}.")
        return tuple(poses_shape)
