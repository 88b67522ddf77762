"""The optimizers and schedules that Keras lacks."""

from tf_capsules.optimizers.adam import Adam
from tf_capsules.optimizers.coupled import CoupledAdam, CoupledRMSprop, CoupledSGD
from tf_capsules.optimizers.radam import RAdam
from tf_capsules.optimizers.schedules import FlooredExponentialDecay, one_cycle

__all__ = ["Adam", "CoupledAdam", "CoupledRMSprop", "CoupledSGD", "FlooredExponentialDecay", "RAdam", "one_cycle"]
