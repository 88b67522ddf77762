"""CIFAR-10, EncapNet of 18 layers, master branch alone.

Paper: Li et al. 2018, table 3, row 1
Command: tf-capsules train li2018-cifar10-master
Device: one GPU, or two CPU cores for a few epochs
Published: 9.83% test error; the authors' kept logs have 22.5%
Measured: not yet
"""

from tf_capsules.recipes.li2018_cifar10 import RECIPE as CIFAR10

RECIPE = CIFAR10.but(model_options=dict(coefficients=None, skips=()))
