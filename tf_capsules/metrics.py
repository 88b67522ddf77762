"""The metrics that Keras lacks."""

import keras
from keras import ops

from tf_capsules.layers.arguments import class_targets
from tf_capsules.routing.precision import at_least_float32


@keras.saving.register_keras_serializable("tf_capsules")
class ExactMatch(keras.metrics.MeanMetricWrapper):
    """Share of the samples whose predicted classes are exactly the present ones.

    Source: Sabour et al. 2017, section 6 (MultiMNIST: the two most active capsules, correct only if both are right).
    The k most active classes are predicted; k is the sample's number of present classes. So a sample is right if its
    least active present class beats its most active absent class. Tsai et al. 2020, section 6 (the number of classes
    is not known): all classes above a threshold are predicted. A class number that is no class is never right.

    Args:
        threshold: None: the k most active classes are predicted. A number: the classes with a higher activation.
        name, dtype: of the metric.

    Call arguments:
        y_true: multi-hot rows (batch, classes), or class numbers (batch,).
        y_pred: (batch, classes).

    Raises:
        ValueError: labels of another shape.

    Example:
        >>> float(ExactMatch()(np.array([[1, 1, 0]]), np.array([[0.9, 0.3, 0.4]])))
        0.0
        >>> float(ExactMatch(0.5)(np.array([[1, 1, 0]]), np.array([[0.9, 0.6, 0.4]])))
        1.0
    """

    def __init__(
        self,
        threshold: float | None = None,
        name: str | None = "exact_match",
        dtype: str | keras.DTypePolicy | None = None,
    ):
        super().__init__(_exact_match, name=name, dtype=dtype, threshold=threshold)
        self.threshold = threshold

    def get_config(self):
        return {"threshold": self.threshold, "name": self.name, "dtype": self.dtype}


def _exact_match(y_true, y_pred, threshold):
    y_pred = at_least_float32(y_pred)
    targets = class_targets(y_true, y_pred)
    present = targets > 0
    far = ops.cast(3e38, y_pred.dtype)
    weakest_present = ops.min(ops.where(present, y_pred, far), axis=-1)
    strongest_absent = ops.max(ops.where(present, -far, y_pred), axis=-1)
    right = weakest_present > strongest_absent
    if threshold is not None:
        right = ops.logical_and(weakest_present > threshold, strongest_absent <= threshold)
    known = ops.logical_not(ops.any(ops.isnan(targets), axis=-1))  # a number that is no class is never right
    return ops.cast(ops.logical_and(right, known), "float32")
