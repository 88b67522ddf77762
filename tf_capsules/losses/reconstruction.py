"""Reconstruction loss."""

import keras
from keras import ops

from tf_capsules.argument_types import Dtype
from tf_capsules.arguments import is_number
from tf_capsules.layers.connections import alike
from tf_capsules.losses.base import Loss


@keras.saving.register_keras_serializable("tf_capsules")
class ReconstructionLoss(Loss):
    """The squared error, summed over the pixels, times a weight.

    Source: Sabour et al. 2017, section 4.1: 0.0005 times the sum, not the mean (for MNIST 0.392 times the mean).

    Args:
        weight: factor on the sum.
        name, reduction, dtype: of `keras.losses.Loss`; computed in at least float32.

    Call arguments:
        y_true, y_pred: images (batch, ...), any number of further axes.

    Raises:
        ValueError: a weight that is no number of at least 0; images of different shapes.

    Example:
        >>> round(float(ReconstructionLoss(weight=0.5)(np.zeros((1, 2, 3)), np.ones((1, 2, 3)))), 4)
        3.0
    """

    def __init__(
        self,
        weight: float = 0.0005,
        name: str | None = "reconstruction_loss",
        reduction: str | None = "sum_over_batch_size",
        dtype: Dtype = None,
    ):
        super().__init__(name, reduction, dtype)
        if not is_number(weight, 0):
            raise ValueError(f"`weight` of the reconstruction must be a number of at least 0. Received: {weight!r}")
        self.weight = weight

    def call(self, y_true, y_pred):
        y_true, y_pred = map(ops.convert_to_tensor, (y_true, y_pred))
        given, decoded = tuple(y_true.shape), tuple(y_pred.shape)
        if not alike(given, decoded):
            raise ValueError(f"Images and reconstructions must have one shape. Received {given} and {decoded}.")
        return self.weight * ops.sum(ops.square(y_true - y_pred), axis=tuple(range(1, len(y_pred.shape))))
