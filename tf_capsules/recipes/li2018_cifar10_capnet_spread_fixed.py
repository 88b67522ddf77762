"""CIFAR-10, CapNet, dynamic routing, Adam, spread loss with margin 0.9.

Paper: Li et al. 2018, table 5
Command: tf-capsules train li2018-cifar10-capnet-spread-fixed
Device: one GPU, or two CPU cores for a small part of an epoch
Published: 14.97% test error
Measured: not yet
"""

from tf_capsules.losses import SpreadLoss
from tf_capsules.recipes.li2018_cifar10_capnet import RECIPE as CAPNET

RECIPE = CAPNET.but(loss=SpreadLoss)
