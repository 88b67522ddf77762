"""Optimizers with the weight decay that Keras does not have."""

import keras
from keras import ops

from tf_capsules.hints import Rate


class _Coupled:
    """An optimizer in which the decay of the weights is a part of the gradient: `gradient += decay * weight`."""

    def __init__(self, learning_rate, *args, decay, **kwargs):
        super().__init__(learning_rate, *args, **kwargs)
        if not decay >= 0:
            raise ValueError(f"`decay` must not be negative. Received: {decay!r}")
        self.decay = decay

    def update_step(self, gradient, variable, learning_rate):
        gradient = ops.add(gradient, self.decay * ops.cast(variable, gradient.dtype))
        super().update_step(gradient, variable, learning_rate)

    def get_config(self):
        return {**super().get_config(), "decay": self.decay}


@keras.saving.register_keras_serializable("tf_capsules")
class CoupledSGD(_Coupled, keras.optimizers.SGD):
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

    def __init__(
        self,
        learning_rate: Rate = 0.1,
        momentum: float = 0.9,
        decay: float = 5e-4,
        name: str | None = "coupled_sgd",
        **kwargs,
    ):
        super().__init__(learning_rate, momentum, decay=decay, name=name, **kwargs)


@keras.saving.register_keras_serializable("tf_capsules")
class CoupledAdam(_Coupled, keras.optimizers.Adam):
    """Adam in which the decay of the weights is a part of the gradient.

    Source: the released code of Li et al. 2018 (PyTorch's Adam): `gradient += decay * weight` for every trainable
    weight, biases and those of normalization included, before the moments.

    Args:
        learning_rate: as in `keras.optimizers.Adam`.
        decay: factor on the weights, not negative.
        kwargs: further arguments of `keras.optimizers.Adam`.

    Raises:
        ValueError: a negative decay.

    Example:
        >>> weight = keras.Variable([1.0])
        >>> CoupledAdam(0.1, decay=0.5).apply([ops.zeros(1)], [weight])
        >>> round(float(weight[0]), 4)
        0.9
    """

    def __init__(self, learning_rate: Rate = 1e-4, decay: float = 5e-4, name: str | None = "coupled_adam", **kwargs):
        super().__init__(learning_rate, decay=decay, name=name, **kwargs)


@keras.saving.register_keras_serializable("tf_capsules")
class CoupledRMSprop(_Coupled, keras.optimizers.RMSprop):
    """RMSprop, centered and with momentum, in which the decay of the weights is a part of the gradient.

    Source: the released code of Li et al. 2018 (PyTorch's RMSprop): `gradient += decay * weight` for every trainable
    weight, biases and those of normalization included, before the moments.

    Args:
        learning_rate, rho, momentum, centered: as in `keras.optimizers.RMSprop`.
        decay: factor on the weights, not negative.
        kwargs: further arguments of `keras.optimizers.RMSprop`.

    Raises:
        ValueError: a negative decay.

    Example:
        >>> weight = keras.Variable([1.0])
        >>> CoupledRMSprop(0.03, centered=False, decay=0.5).apply([ops.zeros(1)], [weight])
        >>> round(float(weight[0]), 3)
        0.905
    """

    def __init__(
        self,
        learning_rate: Rate = 1e-4,
        rho: float = 0.9,
        momentum: float = 0.9,
        centered: bool = True,
        decay: float = 5e-4,
        name: str | None = "coupled_rmsprop",
        **kwargs,
    ):
        super().__init__(learning_rate, rho, momentum, centered=centered, decay=decay, name=name, **kwargs)
