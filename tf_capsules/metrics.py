"""The metrics that Keras lacks."""

import keras
from keras import ops

from tf_capsules.argument_types import Dtype
from tf_capsules.arguments import is_number
from tf_capsules.layers.arguments import positive_int
from tf_capsules.layers.labels import class_rows
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
        ValueError: a threshold that is no number; labels or predictions of another shape.

    Example:
        >>> float(ExactMatch()(np.array([[1, 1, 0]]), np.array([[0.9, 0.3, 0.4]])))
        0.0
        >>> float(ExactMatch(0.5)(np.array([[1, 1, 0]]), np.array([[0.9, 0.6, 0.4]])))
        1.0
    """

    def __init__(self, threshold: float | None = None, name: str | None = "exact_match", dtype: Dtype = None):
        if threshold is not None and not is_number(threshold):
            raise ValueError(f"`threshold` must be a number or None. Received: {threshold!r}")
        super().__init__(_exact_match, name=name, dtype=dtype, threshold=threshold)
        self.threshold = threshold

    def get_config(self):
        return {"threshold": self.threshold, "name": self.name, "dtype": self.dtype}


@keras.saving.register_keras_serializable("tf_capsules")
class TopKAccuracy(keras.metrics.MeanMetricWrapper):
    """Share of the samples whose class is among the k most active ones, for class numbers and for rows alike.

    The class of a row is that of its largest entry: of a mixed example, the one with the larger share. A class number
    that is no class is never right. With `k=1`, of equal activations only the first counts. With a larger k, all
    classes that tie with the k-th count, as in Keras.

    Args:
        k: at least 1.
        name, dtype: of the metric.

    Call arguments:
        y_true: class numbers (batch,), or rows (batch, classes).
        y_pred: (batch, classes).

    Raises:
        ValueError: k out of range, labels or predictions of another shape.

    Example:
        >>> float(TopKAccuracy()(np.array([[0.3, 0.7], [1.0, 0.0]]), np.array([[0.4, 0.6], [0.2, 0.8]])))
        0.5
    """

    def __init__(self, k: int = 1, name: str | None = "accuracy", dtype: Dtype = None):
        super().__init__(_among_top_k, name=name, dtype=dtype, k=positive_int("k", k))
        self.k = k

    def get_config(self):
        return {"k": self.k, "name": self.name, "dtype": self.dtype}


def _among_top_k(y_true, y_pred, k):
    y_pred = ops.cast(y_pred, "float32")  # TensorFlow's in_top_k takes nothing else
    targets, y_pred = class_rows("TopKAccuracy takes activations", y_true, y_pred)
    best = ops.argmax(targets, axis=-1)
    # Equal outputs are all among the top, but only one of them is the most active: otherwise a network that gives the
    # same output to every class would always be right.
    right = ops.equal(ops.argmax(y_pred, axis=-1), best) if k == 1 else ops.in_top_k(best, y_pred, k)
    unknown = ops.any(ops.isnan(targets + y_pred), axis=-1)  # a class or an output
    return ops.cast(ops.logical_and(right, ops.logical_not(unknown)), "float32")


def _exact_match(y_true, y_pred, threshold):
    targets, y_pred = class_rows("ExactMatch takes activations", y_true, at_least_float32(y_pred))
    present = targets > 0
    far = ops.cast(3e38, y_pred.dtype)
    # With the initial values Keras takes an empty batch, too.
    weakest_present = ops.min(ops.where(present, y_pred, far), axis=-1, initial=3e38)
    strongest_absent = ops.max(ops.where(present, -far, y_pred), axis=-1, initial=-3e38)
    right = weakest_present > strongest_absent
    if threshold is not None:
        right = ops.logical_and(weakest_present > threshold, strongest_absent <= threshold)
    known = ops.logical_not(ops.any(ops.isnan(targets), axis=-1))  # a number that is no class is never right
    return ops.cast(ops.logical_and(right, known), "float32")
