"""Softmax cross-entropy of logits."""

import keras
from keras import ops

from tf_capsules.layers.arguments import class_targets


@keras.saving.register_keras_serializable("tf_capsules")
class SoftmaxCrossentropy(keras.losses.Loss):
    """`-sum_k T_k log softmax(logits)_k`, for class numbers and for rows alike.

    Source: Heinsen 2019, section 3.2 (soft targets, which come from mixing examples).

    Args:
        name, kwargs: of `keras.losses.Loss`.

    Call arguments:
        y_true: class numbers (batch,) or (batch, 1), or rows (batch, classes) that sum to 1.
        y_pred: logits (batch, classes).

    Raises:
        ValueError: logits of other shapes; labels that are neither class numbers nor one row a sample.

    Example:
        >>> round(float(SoftmaxCrossentropy()(np.array([1]), np.zeros((1, 4)))), 4)
        1.3863
    """

    def __init__(self, name: str | None = "softmax_crossentropy", **kwargs):
        super().__init__(name, **kwargs)

    def call(self, y_true, y_pred):
        logits = ops.convert_to_tensor(y_pred)
        if len(logits.shape) != 2:
            raise ValueError(f"The predictions are logits (batch, classes). Received shape {tuple(logits.shape)}.")
        return -ops.sum(class_targets(ops.convert_to_tensor(y_true), logits) * ops.log_softmax(logits), axis=-1)
