"""The Kullback-Leibler divergence of each sample's two feature vectors."""

import math

import keras
from keras import ops

from tf_capsules.argument_types import Dtype
from tf_capsules.layers.arguments import truth_value
from tf_capsules.losses.base import Loss, two_features


@keras.saving.register_keras_serializable("tf_capsules")
class PairedKLDivergence(Loss):
    """The Kullback-Leibler divergence of each sample's two feature vectors, after a softmax over the features.

    Source: Li et al. 2018. Their ablation compares the Sinkhorn divergence with this loss, but only names it. This form
    is ours: `KL(softmax(y_i) || softmax(x_i))` for each sample i.

    Args:
        symmetric: True: the Jensen-Shannon divergence, the mean of each distribution's divergence from their average.
        name, reduction, dtype: of `keras.losses.Loss`; computed in at least float32.

    Call arguments:
        y_true, y_pred: features (batch, features), y and x.

    Raises:
        ValueError: features of another shape.

    Example:
        >>> x, y = np.log([[0.5, 0.5]]), np.log([[0.25, 0.75]])
        >>> round(float(PairedKLDivergence()(y, x)), 4), round(float(PairedKLDivergence(symmetric=True)(y, x)), 4)
        (0.1308, 0.0338)
    """

    def __init__(
        self,
        symmetric: bool = False,
        name: str | None = "paired_kl_divergence",
        reduction: str | None = "sum_over_batch_size",
        dtype: Dtype = None,
    ):
        super().__init__(name, reduction, dtype)
        self.symmetric = truth_value("symmetric", symmetric)

    def call(self, y_true, y_pred):
        p, q = (ops.log_softmax(x, axis=-1) for x in two_features(self, y_true, y_pred))
        if not self.symmetric:
            return _divergence(p, q)
        middle = ops.logaddexp(p, q) - math.log(2)
        return (_divergence(p, middle) + _divergence(q, middle)) / 2


def _divergence(p, q):
    """The Kullback-Leibler divergence of two distributions, given by their logarithms."""
    return ops.sum(ops.exp(p) * (p - q), axis=-1)
