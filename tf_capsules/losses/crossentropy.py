"""Softmax cross-entropy."""

import keras
from keras import ops

from tf_capsules.argument_types import Dtype
from tf_capsules.layers.arguments import truth_value
from tf_capsules.layers.labels import class_rows
from tf_capsules.losses.base import Loss


@keras.saving.register_keras_serializable("tf_capsules")
class SoftmaxCrossentropy(Loss):
    """`-sum_k T_k log softmax(logits)_k`, for class numbers and for rows alike.

    Source: Heinsen 2019, section 3.2 (soft targets, which come from mixing examples).

    Args:
        from_logits: false: the predictions are probabilities, and none counts as less than `keras.config.epsilon()`.
        name, reduction, dtype: of `keras.losses.Loss`; computed in at least float32.

    Call arguments:
        y_true: class numbers (batch,) or (batch, 1), or rows (batch, classes) that sum to 1. A number that is no class
            makes the loss NaN.
        y_pred: logits (-inf rules a class out), or probabilities, (batch, classes).

    Raises:
        ValueError: predictions of other shapes; labels that are neither class numbers nor one row a sample.

    Example:
        >>> round(float(SoftmaxCrossentropy()(np.array([1]), np.zeros((1, 4)))), 4)
        1.3863
    """

    def __init__(
        self,
        name: str | None = "softmax_crossentropy",
        from_logits: bool = True,
        reduction: str | None = "sum_over_batch_size",
        dtype: Dtype = None,
    ):
        super().__init__(name, reduction, dtype)
        self.from_logits = truth_value("from_logits", from_logits)

    def call(self, y_true, y_pred):
        kind = "logits" if self.from_logits else "probabilities"
        targets, y_pred = class_rows(f"SoftmaxCrossentropy takes {kind}", y_true, y_pred)
        logits = y_pred if self.from_logits else ops.log(ops.maximum(y_pred, keras.config.epsilon()))
        # A class that a logit of -inf rules out adds nothing, unless it is the right one.
        return -ops.sum(ops.where(targets == 0, 0.0, targets * ops.log_softmax(logits)), axis=-1)
