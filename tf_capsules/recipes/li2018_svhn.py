"""SVHN, EncapNet of 18 layers, trained on the training split alone.

Paper: Li et al. 2018, table 4, without its transport units
Command: tf-capsules train li2018-svhn
Device: one GPU; two CPU cores take about 40 minutes an epoch
Published: 2.01% test error, with them
Measured: not yet
"""

from tf_capsules.recipes.li2018_cifar10 import RECIPE as CIFAR10

RECIPE = CIFAR10.but(dataset="svhn")
