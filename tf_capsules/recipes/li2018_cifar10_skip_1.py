"""CIFAR-10, EncapNet of 18 layers, skips of Type I.

Paper: Li et al. 2018, table 3, row 5
Command: tf-capsules train li2018-cifar10-skip-1
Device: one GPU
Published: 6.81% test error
Measured: not yet
"""

from tf_capsules.recipes.li2018_cifar10 import RECIPE as CIFAR10

RECIPE = CIFAR10.but(model_options=dict(skips=("convolution",)))
