"""SVHN without its extra images, EncapNet of 18 layers, two feedback units, random crops.

Paper: Li et al. 2018, table 4, EncapNet+
Command: tf-capsules train li2018-svhn-mild
Device: one GPU
Published: 1.64% test error, with ten crops in the test
Measured: not yet
"""

from tf_capsules.recipes.li2018_cifar10_mild import RECIPE as MILD

RECIPE = MILD.but(dataset="svhn")
