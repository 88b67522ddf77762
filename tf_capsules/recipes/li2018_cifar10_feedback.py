"""CIFAR-10, EncapNet of 18 layers, a feedback unit in each module.

Paper: Li et al. 2018, table 3, ablations, row (c)
Command: tf-capsules train li2018-cifar10-feedback
Device: one GPU
Published: 4.58% test error
Measured: not yet
"""

from tf_capsules.models.li2018 import feedback
from tf_capsules.recipes.li2018_cifar10 import RECIPE as CIFAR10

RECIPE = CIFAR10.but(feedback=feedback)
