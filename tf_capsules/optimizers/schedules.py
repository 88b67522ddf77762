"""Schedules of the papers, for learning rates and for Adam's beta_1."""

import math

import keras
from keras import ops

from tf_capsules.layers.arguments import positive_int


@keras.saving.register_keras_serializable("tf_capsules")
class FlooredExponentialDecay(keras.optimizers.schedules.LearningRateSchedule):
    """`max(floor, initial_learning_rate * decay_rate ** (step / decay_steps))`, the exponent not rounded.

    Source: the released code of Sabour et al. 2017 (0.001, 0.96 every 2,000 steps, floor 1e-6).

    Args:
        initial_learning_rate: rate at step 0.
        decay_steps: optimizer steps after which the rate has been multiplied by `decay_rate`.
        decay_rate: factor.
        floor: smallest rate.

    Example:
        >>> round(float(FlooredExponentialDecay(0.001, 2000, 0.96)(2000)), 7)
        0.00096
    """

    def __init__(
        self,
        initial_learning_rate: float = 0.001,
        decay_steps: int = 2000,
        decay_rate: float = 0.96,
        floor: float = 1e-6,
    ):
        self.initial_learning_rate = initial_learning_rate
        self.decay_steps = decay_steps
        self.decay_rate = decay_rate
        self.floor = floor

    def __call__(self, step):
        exponent = ops.cast(step, "float32") / self.decay_steps
        return ops.maximum(self.initial_learning_rate * ops.power(self.decay_rate, exponent), self.floor)

    def get_config(self):
        return {
            "initial_learning_rate": self.initial_learning_rate,
            "decay_steps": self.decay_steps,
            "decay_rate": self.decay_rate,
            "floor": self.floor,
        }


@keras.saving.register_keras_serializable("tf_capsules")
class WarmupCosine(keras.optimizers.schedules.LearningRateSchedule):
    """`floor + (peak - floor) * phi`: a straight line from `floor` up to `peak`, then a half cosine back to `floor`.

    Source: Heinsen 2019, section 4.5; the released code. With `turn = warmup * total_steps`, which need not be a whole
    number, `phi = step / turn` up to the turn and `(1 + cos(pi (step - turn) / (total_steps - turn))) / 2` after it.
    Step 0 has the floor, and so have the steps beyond `total_steps`.

    Args:
        peak: the highest rate, above 0.
        total_steps: optimizer steps of the whole training, at least 1.
        warmup: share of the steps on the way up, between 0 and 1.
        floor: rate at both ends.

    Raises:
        ValueError: a value out of its range.

    Example:
        >>> schedule = WarmupCosine(0.0005, total_steps=1000)
        >>> [round(float(schedule(step)), 7) for step in (0, 50, 100, 500, 1000)]
        [1e-05, 0.000255, 0.0005, 0.0002975, 1e-05]
    """

    def __init__(self, peak: float, total_steps: int, warmup: float = 0.1, floor: float = 1e-5):
        if not 0 < peak < math.inf:
            raise ValueError(f"`peak` must be above 0. Received: {peak!r}")
        if not 0 <= floor <= peak:
            raise ValueError(f"`floor` must be from 0 to `peak` {peak!r}. Received: {floor!r}")
        self.peak, self.floor = peak, floor
        self.total_steps, self.warmup = positive_int("total_steps", total_steps), _share("warmup", warmup)

    def __call__(self, step):
        return self.floor + (self.peak - self.floor) * _up_and_down(step, self.total_steps, self.warmup)

    def get_config(self):
        return {"peak": self.peak, "total_steps": self.total_steps, "warmup": self.warmup, "floor": self.floor}


@keras.saving.register_keras_serializable("tf_capsules")
class MomentumCycle(keras.optimizers.schedules.LearningRateSchedule):
    """`low + (high - low) * (1 - phi)`, `phi` as in `WarmupCosine`: beta_1 is low where the learning rate is high.

    Source: the released code of Heinsen 2019; the paper does not mention it.

    Args:
        total_steps: optimizer steps of the whole training, at least 1.
        warmup: share of the steps on the way down, between 0 and 1.
        high: value at both ends.
        low: value at the turn; 0 <= low <= high < 1.

    Raises:
        ValueError: a value out of its range.

    Example:
        >>> beta_1 = MomentumCycle(total_steps=1000)
        >>> [round(float(beta_1(step)), 3) for step in (0, 50, 100, 1000)]
        [0.9, 0.855, 0.81, 0.9]
    """

    def __init__(self, total_steps: int, warmup: float = 0.1, high: float = 0.9, low: float = 0.81):
        if not 0 <= low <= high < 1:
            raise ValueError(f"`low` and `high` must be 0 <= low <= high < 1. Received: low={low!r}, high={high!r}")
        self.high, self.low = high, low
        self.total_steps, self.warmup = positive_int("total_steps", total_steps), _share("warmup", warmup)

    def __call__(self, step):
        return self.low + (self.high - self.low) * (1 - _up_and_down(step, self.total_steps, self.warmup))

    def get_config(self):
        return {"total_steps": self.total_steps, "warmup": self.warmup, "high": self.high, "low": self.low}


def _share(name, value):
    if not 0 < value < 1:
        raise ValueError(f"`{name}` must be between 0 and 1. Received: {value!r}")
    return value


def _up_and_down(step, total_steps, warmup):
    """0 at step 0, 1 at the turn, 0 from `total_steps` on."""
    turn = warmup * total_steps
    step = ops.minimum(ops.cast(step, "float32"), total_steps)
    down = (1 + ops.cos(math.pi * (step - turn) / (total_steps - turn))) / 2
    return ops.where(step <= turn, step / turn, down)
