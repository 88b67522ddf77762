"""The optimizers of PyTorch, which differ from Keras's of the same name."""

import math

import keras
from keras import ops

from tf_capsules.argument_types import Rate
from tf_capsules.arguments import decay_rate, is_number
from tf_capsules.optimizers.gradients import dense


class _Coupled:
    """What PyTorch's optimizers share: `gradient += decay * weight`, then `weight -= learning_rate * step`."""

    def __init__(self, learning_rate, *args, decay, **kwargs):
        super().__init__(learning_rate, *args, **kwargs)
        if not is_number(decay, 0):
            raise ValueError(f"`decay` must be a number of at least 0. Received: {decay!r}")
        self.decay = decay

    def update_step(self, gradient, variable, learning_rate):
        gradient = dense(gradient, variable)
        if self._use_weight_decay(variable):
            gradient += self.decay * ops.convert_to_tensor(variable)
        step = self._step(gradient, self._get_variable_index(variable))
        self.assign_sub(variable, ops.cast(learning_rate, variable.dtype) * step)

    def _follow(self, average, value, decay):
        """Moves an exponential moving average towards a value, and returns it."""
        self.assign_add(average, (1 - decay) * (value - average))
        return ops.convert_to_tensor(average)

    def _accumulate(self, momentum, step):
        self.assign(momentum, self.momentum * momentum + step)
        return ops.convert_to_tensor(momentum)

    def get_config(self):
        return {**super().get_config(), "decay": self.decay}


@keras.saving.register_keras_serializable("tf_capsules")
class CoupledSGD(_Coupled, keras.optimizers.SGD):
    """PyTorch's SGD: the weight decay is part of the gradient, and the momentum does not contain the learning rate.

    Source: the released code of Tsai et al. 2020 (`torch.optim.SGD`). With `g` the gradient plus `decay * weight`,
    `buffer = momentum * buffer + g` and `weight -= learning_rate * buffer`. Keras differs in both. Its `weight_decay`
    bypasses the momentum, which at momentum 0.9 makes it ten times weaker. A drop of its learning rate does not scale
    down the gradients that the momentum already holds.

    Args:
        learning_rate, momentum, kwargs: as in `keras.optimizers.SGD`.
        decay: factor on every trainable weight that `exclude_from_weight_decay` does not name, at least 0; also on
            biases and on those of normalization.

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

    def _step(self, gradient, index):
        if not self.momentum:
            return gradient
        momentum = self._accumulate(self.momentums[index], gradient)
        return gradient + self.momentum * momentum if self.nesterov else momentum


@keras.saving.register_keras_serializable("tf_capsules")
class CoupledAdam(_Coupled, keras.optimizers.Adam):
    """PyTorch's Adam: the weight decay is part of the gradient, and epsilon is added to the bias-corrected root.

    Source: the released code of Li et al. 2018 (`torch.optim.Adam`). With `g` the gradient plus `decay * weight`, `m`
    and `v` the moments of `g`, and `t = 1, 2, ...` the step,
    `weight -= learning_rate * m / (1 - beta_1^t) / (sqrt(v / (1 - beta_2^t)) + epsilon)`.
    Keras's Adam has `sqrt(v) + 1e-7`, whose epsilon weighs `1 / sqrt(1 - beta_2^t)` times as much: 32 times at step 1.

    Args:
        learning_rate, beta_1, beta_2, kwargs: as in `keras.optimizers.Adam`.
        epsilon: added to the root of the bias-corrected second moment.
        decay: see `CoupledSGD`.

    Raises:
        ValueError: a negative decay, or a beta outside [0, 1).

    Example:
        >>> weight = keras.Variable([1.0])
        >>> CoupledAdam(0.1, decay=0.5).apply([ops.zeros(1)], [weight])
        >>> round(float(weight[0]), 4)
        0.9
    """

    def __init__(
        self,
        learning_rate: Rate = 1e-4,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        decay: float = 5e-4,
        name: str | None = "coupled_adam",
        **kwargs,
    ):
        betas = decay_rate("beta_1", beta_1), decay_rate("beta_2", beta_2)
        super().__init__(learning_rate, *betas, epsilon, decay=decay, name=name, **kwargs)

    def _step(self, gradient, index):
        mean = self._follow(self._momentums[index], gradient, self.beta_1)
        square = self._follow(self._velocities[index], ops.square(gradient), self.beta_2)
        if self.amsgrad:
            square = ops.maximum(self._velocity_hats[index], square)
            self.assign(self._velocity_hats[index], square)
        t = ops.cast(self.iterations + 1, gradient.dtype)
        mean, square = mean / _correction(self.beta_1, t), square / _correction(self.beta_2, t)
        return mean / (ops.sqrt(square) + self.epsilon)


def _correction(beta, t):
    """`1 - beta^t`, computed so that no digits cancel."""
    return -ops.expm1(math.log(beta) * t) if beta else 1.0


@keras.saving.register_keras_serializable("tf_capsules")
class CoupledRMSprop(_Coupled, keras.optimizers.RMSprop):
    """PyTorch's RMSprop: the weight decay is part of the gradient, and epsilon is added outside the root.

    Source: the released code of Li et al. 2018 (`torch.optim.RMSprop`, centered and with momentum). With `g` the
    gradient plus `decay * weight`, and `v` and `a` the moving averages of `g^2` and `g`,
    `buffer = momentum * buffer + g / (sqrt(v - a^2) + epsilon)` and `weight -= learning_rate * buffer`.
    Keras's RMSprop has 1e-7 inside the root, and its momentum contains the learning rate. If rounding makes `v - a^2`
    negative, PyTorch gives NaN; here it is 0.

    Args:
        learning_rate, rho, momentum, kwargs: as in `keras.optimizers.RMSprop`; PyTorch calls `rho` alpha.
        epsilon: added to the root.
        centered: False leaves `a` out.
        decay: see `CoupledSGD`.

    Raises:
        ValueError: a negative decay, or a rho outside [0, 1).

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
        epsilon: float = 1e-8,
        centered: bool = True,
        decay: float = 5e-4,
        name: str | None = "coupled_rmsprop",
        **kwargs,
    ):
        rho = decay_rate("rho", rho)
        super().__init__(learning_rate, rho, momentum, epsilon, centered, decay=decay, name=name, **kwargs)

    def _step(self, gradient, index):
        square = self._follow(self._velocities[index], ops.square(gradient), self.rho)
        if self.centered:
            mean = self._follow(self._average_gradients[index], gradient, self.rho)
            square = ops.maximum(square - ops.square(mean), 0)
        step = gradient / (ops.sqrt(square) + self.epsilon)
        return self._accumulate(self._momentums[index], step) if self.momentum else step
