"""CIFAR-10, CapNet, dynamic routing, RMSprop, cross-entropy of the lengths.

Paper: Li et al. 2018, table 5
Command: tf-capsules train li2018-cifar10-capnet-rmsprop-cross-entropy
Device: one GPU, or two CPU cores for a small part of an epoch
Published: 14.76% test error
Measured: not yet

The learning rate is not stated; in the authors' logs it is between 0.0001 and 0.01.
"""

from tf_capsules.losses import SoftmaxCrossentropy
from tf_capsules.optimizers import CoupledRMSprop
from tf_capsules.recipes.li2018_cifar10_capnet import RECIPE as CAPNET

RECIPE = CAPNET.but(loss=SoftmaxCrossentropy, optimizer=CoupledRMSprop)
