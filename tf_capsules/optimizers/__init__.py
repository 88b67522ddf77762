"""The optimizers and schedules that Keras lacks."""

from tf_capsules.optimizers.coupled import CoupledAdam, CoupledRMSprop, CoupledSGD
from tf_capsules.optimizers.radam import RAdam
from tf_capsules.optimizers.schedules import FlooredExponentialDecay, MomentumCycle, WarmupCosine

__all__ = [
    "CoupledAdam",
    "CoupledRMSprop",
    "CoupledSGD",
    "FlooredExponentialDecay",
    "MomentumCycle",
    "RAdam",
    "WarmupCosine",
]
