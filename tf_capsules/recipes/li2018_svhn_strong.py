"""SVHN without extras, EncapNet of 18 layers, two feedback units, random crops, flips, colours.

Paper: Li et al. 2018, table 4, EncapNet++
Command: tf-capsules train li2018-svhn-strong
Device: one GPU
Published: 1.52% test error, with ten crops in the test
Measured: not yet
"""

from tf_capsules.recipes.li2018_cifar10_strong import RECIPE as STRONG

RECIPE = STRONG.but(dataset="svhn")
