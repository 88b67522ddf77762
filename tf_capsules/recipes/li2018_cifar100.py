"""CIFAR-100, EncapNet of 18 layers, two feedback units in each module.

Paper: Li et al. 2018, table 4
Command: tf-capsules train li2018-cifar100
Device: one GPU
Published: 26.77% test error
Measured: not yet
"""

from tf_capsules.recipes.li2018_cifar10_feedback_2 import RECIPE as CIFAR10

RECIPE = CIFAR10.but(dataset="cifar100")
