"""CIFAR-10, EncapNet of 18 layers, co-efficients from the branch itself (version 1), no skips.

Paper: Li et al. 2018, table 3, row 2
Command: tf-capsules train li2018-cifar10-own
Device: one GPU
Published: 8.05% test error
Measured: not yet
"""

from tf_capsules.recipes.li2018_cifar10 import RECIPE as CIFAR10

RECIPE = CIFAR10.but(model_options=dict(coefficients="own", skips=()))
