"""Learning-rate schedules of the papers."""

import keras
from keras import ops


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

    def __init__(self, initial_learning_rate=0.001, decay_steps=2000, decay_rate=0.96, floor=1e-6):
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
