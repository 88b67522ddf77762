"""Schedules of the papers, for learning rates and for Adam's beta_1."""

import keras
from keras import ops

from tf_capsules.arguments import is_number, is_positive, positive_int, positive_number


@keras.saving.register_keras_serializable("tf_capsules")
class FlooredExponentialDecay(keras.optimizers.schedules.LearningRateSchedule):
    """`max(floor, initial_learning_rate * decay_rate ** (step / decay_steps))`, the exponent not rounded.

    Source: the released code of Sabour et al. 2017 (0.001, 0.96 every 2,000 steps, floor 1e-6).

    Args:
        initial_learning_rate: rate at step 0.
        decay_steps: optimizer steps after which the rate has been multiplied by `decay_rate`.
        decay_rate: factor.
        floor: smallest rate.

    Raises:
        ValueError: a value that is not above 0.

    Example:
        >>> round(float(FlooredExponentialDecay(0.001, 2000, 0.96)(2000)), 7)
        0.00096
    """

    def __init__(
        self,
        initial_learning_rate: float = 0.001,
        decay_steps: float = 2000,
        decay_rate: float = 0.96,
        floor: float = 1e-6,
    ):
        self.initial_learning_rate = positive_number("initial_learning_rate", initial_learning_rate)
        self.decay_steps = positive_number("decay_steps", decay_steps)
        self.decay_rate = positive_number("decay_rate", decay_rate)
        self.floor = positive_number("floor", floor)

    def __call__(self, step):
        exponent = ops.cast(step, "float32") / self.decay_steps
        return ops.maximum(self.initial_learning_rate * ops.power(self.decay_rate, exponent), self.floor)

    def get_config(self):
        return {name: getattr(self, name) for name in ("initial_learning_rate", "decay_steps", "decay_rate", "floor")}


def one_cycle(
    low: float, high: float, total_steps: int, warmup: float = 0.1, inverted: bool = False
) -> keras.optimizers.schedules.CosineDecay:
    """Keras's `CosineDecay` as one cycle: a straight line from `low` up to `high`, then half a cosine back to `low`.

    Source: Heinsen 2019, section 3.2, for the learning rate; the released code also cycles beta_1 from 0.9 down to 0.81
    and back, which the paper does not mention. The turn, at step `warmup * total_steps`, may lie between two steps.
    From `total_steps` on the value stays that of step 0.

    Args:
        low: value at both ends.
        high: value at the turn.
        total_steps: optimizer steps of the whole training, at least 1.
        warmup: share of the steps before the turn, between 0 and 1.
        inverted: whether the cycle goes from `high` down to `low` and back, as for beta_1.

    Raises:
        ValueError: a value out of its range.

    Example:
        >>> rate, beta_1 = one_cycle(1e-5, 0.0005, 1000), one_cycle(0.81, 0.9, 1000, inverted=True)
        >>> [round(float(rate(step)), 7) for step in (0, 50, 100, 500, 1000)]
        [1e-05, 0.000255, 0.0005, 0.0002975, 1e-05]
        >>> [round(float(beta_1(step)), 3) for step in (0, 50, 100, 1000)]
        [0.9, 0.855, 0.81, 0.9]
    """
    if not is_number(low, 0) or not is_number(high, low):
        raise ValueError(f"`low` and `high` must satisfy 0 <= low <= high. Received: low={low!r}, high={high!r}")
    end, turn = (high, low) if inverted else (low, high)
    if not turn > 0:
        raise ValueError(f"`{'low' if inverted else 'high'}` must be above 0. Received: {turn!r}")
    if not is_positive(warmup) or warmup >= 1:
        raise ValueError(f"`warmup` must be between 0 and 1. Received: {warmup!r}")
    rising = warmup * positive_int("total_steps", total_steps)
    return keras.optimizers.schedules.CosineDecay(
        float(end), total_steps - rising, end / turn, warmup_target=turn, warmup_steps=rising
    )


# Older files name these two classes. Keras's own schedule takes their place.
@keras.saving.register_keras_serializable("tf_capsules", "WarmupCosine")
class _WarmupCosine(keras.optimizers.schedules.CosineDecay):
    @classmethod
    def from_config(cls, config):
        return one_cycle(config["floor"], config["peak"], config["total_steps"], config["warmup"])


@keras.saving.register_keras_serializable("tf_capsules", "MomentumCycle")
class _MomentumCycle(keras.optimizers.schedules.CosineDecay):
    @classmethod
    def from_config(cls, config):
        return one_cycle(inverted=True, **config)
