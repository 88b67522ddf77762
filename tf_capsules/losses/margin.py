"""Margin loss on capsule lengths."""

import keras
from keras import ops

from tf_capsules.argument_types import Dtype
from tf_capsules.arguments import is_number
from tf_capsules.layers.arguments import one_of
from tf_capsules.layers.labels import class_rows
from tf_capsules.losses.base import Loss


@keras.saving.register_keras_serializable("tf_capsules")
class MarginLoss(Loss):
    """Present classes should be longer than `present`, absent ones shorter than `absent`.

    Source: Sabour et al. 2017, eq. 4, for each sample, in which several classes may be present:
    `sum_k T_k max(0, present - |v_k|)^2 + down_weight (1 - T_k) max(0, |v_k| - absent)^2`.

    Args:
        present, absent: the lengths that the capsule of a present class should exceed, and of an absent one stay below.
        down_weight: weight of the absent classes.
        variant: "paper"; or "code": the authors' released code, which halves the terms and averages them over the
            classes: for ten classes 1/20 of the paper's, so that a reconstruction loss beside it weighs 20 times more.
        name, reduction, dtype: of `keras.losses.Loss`; computed in at least float32.

    Call arguments:
        y_true: class numbers (batch,) or (batch, 1), or one-hot or multi-hot rows (batch, classes). With one class
            (batch, 1) is read as rows. A number that is no class makes the loss NaN.
        y_pred: capsule lengths (batch, classes).

    Raises:
        ValueError: numbers out of [0, 1], `absent` not below `present`, an unknown variant, predictions of
            another shape.

    Example:
        >>> round(float(MarginLoss()(np.array([0]), np.array([[0.8, 0.3]]))), 4)
        0.03
    """

    def __init__(
        self,
        present: float = 0.9,
        absent: float = 0.1,
        down_weight: float = 0.5,
        variant: str = "paper",
        name: str | None = "margin_loss",
        reduction: str | None = "sum_over_batch_size",
        dtype: Dtype = None,
    ):
        super().__init__(name, reduction, dtype)
        for argument, value in (("present", present), ("absent", absent), ("down_weight", down_weight)):
            if not is_number(value, 0, 1):
                raise ValueError(f"`{argument}` must be a number from 0 to 1. Received: {value!r}")
        if not absent < present:
            raise ValueError(f"`absent` must be below `present`. Received: absent={absent!r}, present={present!r}")
        self.present, self.absent, self.down_weight = present, absent, down_weight
        self.variant = one_of("variant", variant, ("paper", "code"))

    def call(self, y_true, y_pred):
        targets, y_pred = class_rows("MarginLoss takes lengths", y_true, y_pred)
        missing = ops.square(ops.relu(self.present - y_pred))
        excess = ops.square(ops.relu(y_pred - self.absent))
        losses = targets * missing + self.down_weight * (1 - targets) * excess
        return ops.sum(losses, axis=-1) if self.variant == "paper" else 0.5 * ops.mean(losses, axis=-1)
