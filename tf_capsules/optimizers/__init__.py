"""The optimizers and schedules that Keras lacks."""

from tf_capsules.optimizers.radam import RAdam
from tf_capsules.optimizers.schedules import FlooredExponentialDecay, MomentumCycle, WarmupCosine
from tf_capsules.optimizers.sgd import CoupledSGD

__all__ = ["CoupledSGD", "FlooredExponentialDecay", "MomentumCycle", "RAdam", "WarmupCosine"]
