"""CIFAR-10, EncapNet of 18 layers, two feedback units in each module, random crops.

Paper: Li et al. 2018, table 4, EncapNet+
Command: tf-capsules train li2018-cifar10-mild
Device: one GPU
Published: 3.13% test error, with ten crops in the test
Measured: not yet
"""

from tf_capsules.recipes.li2018_cifar10_feedback_2 import RECIPE as CIFAR10

RECIPE = CIFAR10.but(preprocess=(("resize", 34), ("crop", 32)))
