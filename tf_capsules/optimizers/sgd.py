"""Stochastic gradient descent with the weight decay that Keras does not have."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("tf_capsules")
class CoupledSGD(keras.optimizers.SGD):
    """Stochastic gradient descent in which the decay of the weights is a part of the gradient.

    Source: the released code of Tsai et al. 2020 (PyTorch's SGD): `gradient += decay * weight` for every trainable
    weight, before the momentum. The `weight_decay` of Keras is taken off the weights beside the momentum, which at a
    momentum of 0.9 makes it ten times weaker.

    Args:
        learning_rate, momentum: as in `keras.optimizers.SGD`.
        decay: factor on the weights, not negative.
        kwargs: further arguments of `keras.optimizers.SGD`.

    Raises:
        ValueError: a negative decay.

    Example:
        >>> weight = keras.Variable([1.0])
        >>> CoupledSGD(0.1, momentum=0.0, decay=0.5).apply([ops.zeros(1)], [weight])
        >>> round(float(weight[0]), 4)
        0.95
    """

    def __init__(self, learning_rate=0.1, momentum=0.9, decay=5e-4, name="coupled_sgd", **kwargs):
        super().__init__(learning_rate, momentum, name=name, **kwargs)
        if not decay >= 0:
            raise ValueError(f"`decay` must not be negative. Received: {decay!r}")
        self.decay = decay

    def update_step(self, gradient, variable, learning_rate):
        gradient = ops.add(gradient, self.decay * ops.cast(variable, gradient.dtype))
        super().update_step(gradient, variable, learning_rate)

    def get_config(self):
        return {**super().get_config(), "decay": self.decay}
