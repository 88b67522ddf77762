"""The optimizers and schedules that Keras lacks."""

from tf_capsules.optimizers.schedules import FlooredExponentialDecay

__all__ = ["FlooredExponentialDecay"]
