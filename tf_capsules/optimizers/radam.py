"""Rectified Adam."""

import itertools
import math

import keras
from keras import ops

from tf_capsules.argument_types import Rate
from tf_capsules.arguments import is_number, is_positive
from tf_capsules.optimizers.gradients import dense
from tf_capsules.routing.precision import precise


@keras.saving.register_keras_serializable("tf_capsules")
class RAdam(keras.optimizers.Optimizer):
    """Adam whose step becomes adaptive, and rectified, once the second moment rests on enough gradients.

    Source: Liu et al. 2020, "On the Variance of the Adaptive Learning Rate and Beyond", algorithm 2; the constants are
    those of the released code of Heinsen 2019. With `m`, `v` Adam's moments, `t = 1, 2, ...` the step and
    `rho_inf = 2 / (1 - beta_2) - 1`, `rho_t = rho_inf - 2 t beta_2^t / (1 - beta_2^t)`, a step subtracts
    `learning_rate / (1 - beta_1^t)` times `m` while `rho_t < threshold`, and then `m / (sqrt(v) + epsilon)` times the
    square root of `(1 - beta_2^t) (rho_t - 4) (rho_t - 2) rho_inf / ((rho_inf - 4) (rho_inf - 2) rho_t)`.

    Args:
        learning_rate: a number or a `LearningRateSchedule`.
        beta_1: decay of the first moment, a number in [0, 1) or a schedule of such numbers, as `one_cycle` makes it.
            The moment's update and `1 - beta_1^t` use the value at the current step.
        beta_2: decay of the second moment, in (0, 1).
        epsilon: added to the root of the second moment, not bias-corrected, as in the author's code and in PyTorch's.
        threshold: smallest `rho_t` with an adaptive step, at least 4. The paper has 4: with beta_2 0.999 the first
            adaptive step is then the fifth, with 5 it is the sixth. `torch.optim.RAdam` asks for more than 5.
        kwargs: of `keras.optimizers.Optimizer`, for instance `weight_decay` or `global_clipnorm`.

    Raises:
        ValueError: a value out of its range.

    Example:
        >>> weight = keras.Variable([1.0])
        >>> RAdam(0.1).apply([np.array([3.0], "float32")], [weight])  # not adaptive yet: 1 - 0.1 * 3
        >>> round(float(weight[0]), 5)
        0.7
    """

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        beta_1: Rate = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        threshold: float = 5,
        name: str | None = "radam",
        **kwargs,
    ):
        scheduled = isinstance(beta_1, keras.optimizers.schedules.LearningRateSchedule)
        first = float(beta_1(0)) if scheduled else beta_1
        if not is_number(first, 0) or first >= 1:
            raise ValueError(f"`beta_1` must be a number in [0, 1) or a schedule of such. Received: {beta_1!r}")
        if not is_positive(beta_2) or beta_2 >= 1:
            raise ValueError(f"`beta_2` must be between 0 and 1. Received: {beta_2!r}")
        if not is_number(epsilon, 0):
            raise ValueError(f"`epsilon` must be 0 or more. Received: {epsilon!r}")
        if not is_number(threshold, 4):
            raise ValueError(f"`threshold` must be at least 4, below which no variance exists. Received: {threshold!r}")
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        self.beta_1, self.beta_2, self.epsilon, self.threshold = beta_1, beta_2, epsilon, threshold
        self._rho_inf = 2 / (1 - beta_2) - 1
        # Found in float64: in float32 rho_t is too coarse to be compared with a whole number.
        self._first_adaptive_step = None
        if self._rho_inf > threshold:
            self._first_adaptive_step = next(t for t in itertools.count(1) if self._rho(t, math) >= threshold)

    def _rho(self, t, xp):
        """`rho_t`; beta_2^t / (1 - beta_2^t) is written so that nothing cancels."""
        return self._rho_inf - 2 * t / xp.expm1(-math.log(self.beta_2) * t)

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self._momentums, self._velocities = self.add_optimizer_variables(variables, ["momentum", "velocity"])

    def update_step(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        m, v = self._momentums[index], self._velocities[index]
        dtype = precise(variable.dtype)  # of the scalars
        # The same count as Keras gives to a learning-rate schedule, so that the two stay in step.
        beta_1 = ops.cast(self.beta_1(self._iterations) if callable(self.beta_1) else self.beta_1, dtype)
        t = ops.cast(self.iterations + 1, dtype)
        rate = ops.cast(learning_rate, dtype) / (1 - ops.power(beta_1, t))

        gradient = dense(gradient, variable)
        self.assign_add(m, ops.multiply(ops.subtract(gradient, m), ops.cast(1 - beta_1, variable.dtype)))
        self.assign_add(v, ops.multiply(ops.subtract(ops.square(gradient), v), 1 - self.beta_2))
        step = ops.multiply(m, ops.cast(rate, variable.dtype))
        if self._first_adaptive_step is not None:
            factor = ops.cast(self._rectification(t), variable.dtype)
            adaptive = ops.divide(ops.multiply(step, factor), ops.add(ops.sqrt(v), self.epsilon))
            step = ops.where(t >= self._first_adaptive_step, adaptive, step)
        self.assign_sub(variable, step)

    def _rectification(self, t):
        # At least the first adaptive step: before it the root may be of a negative number.
        t = ops.maximum(t, self._first_adaptive_step)
        rho, rho_inf = self._rho(t, ops), self._rho_inf
        ratio = (rho - 4) / (rho_inf - 4) * (rho - 2) / (rho_inf - 2) * rho_inf / rho
        return ops.sqrt(-ops.expm1(math.log(self.beta_2) * t) * ratio)

    def get_config(self):
        beta_1 = keras.saving.serialize_keras_object(self.beta_1) if callable(self.beta_1) else self.beta_1
        own = {"beta_1": beta_1, "beta_2": self.beta_2, "epsilon": self.epsilon, "threshold": self.threshold}
        return {**super().get_config(), **own}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        if isinstance(config.get("beta_1"), dict):
            config["beta_1"] = keras.saving.deserialize_keras_object(config["beta_1"], custom_objects=custom_objects)
        return super().from_config(config, custom_objects)
