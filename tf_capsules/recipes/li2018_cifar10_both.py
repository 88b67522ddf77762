"""CIFAR-10, EncapNet of 18 layers, co-efficients from both branches (version 3), no skips.

Paper: Li et al. 2018, table 3, row 4
Command: tf-capsules train li2018-cifar10-both
Device: one GPU
Published: 7.41% test error
Measured: not yet
"""

from tf_capsules.recipes.li2018_cifar10 import RECIPE as CIFAR10

RECIPE = CIFAR10.but(model_options=dict(coefficients="both", skips=()))
