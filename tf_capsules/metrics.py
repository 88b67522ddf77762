"""The metrics that Keras lacks."""

import keras
from keras import ops

from tf_capsules.layers.arguments import class_targets
from tf_capsules.routing.precision import at_least_float32


@keras.saving.register_keras_serializable("tf_capsules")
class ExactMatch(keras.metrics.MeanMetricWrapper):
    """Share of the samples whose k most active classes are exactly the k present ones.

    Source: Sabour et al. 2017, section 6 (MultiMNIST: the two most active capsules, correct only if both are right).
    k is each sample's own number of present classes. A sample is right when its least active present class beats its
    most active absent one.

    Call arguments:
        y_true: multi-hot rows (batch, classes), or class numbers (batch,).
        y_pred: (batch, classes).

    Raises:
        ValueError: labels of another shape.

    Example:
        >>> float(ExactMatch()(np.array([[1, 1, 0]]), np.array([[0.9, 0.3, 0.4]])))
        0.0
    """

    def __init__(self, name="exact_match", dtype=None):
        super().__init__(_exact_match, name=name, dtype=dtype)

    def get_config(self):
        return {"name": self.name, "dtype": self.dtype}


def _exact_match(y_true, y_pred):
    y_pred = at_least_float32(y_pred)
    present = class_targets(y_true, y_pred) > 0
    far = ops.cast(3e38, y_pred.dtype)
    weakest_present = ops.min(ops.where(present, y_pred, far), axis=-1)
    strongest_absent = ops.max(ops.where(present, -far, y_pred), axis=-1)
    return ops.cast(weakest_present > strongest_absent, "float32")
