"""CIFAR-10, EncapNet of 18 layers, two feedback units, random crops, flips and colours.

Paper: Li et al. 2018, table 4, EncapNet++
Command: tf-capsules train li2018-cifar10-strong
Device: one GPU
Published: 3.10% test error, with ten crops in the test
Measured: not yet

How much longer the training is the paper does not say: here half as long again, as all of its schedule.
"""

from tf_capsules.recipes.li2018_cifar10_mild import RECIPE as MILD

RECIPE = MILD.but(preprocess=(*MILD.preprocess, ("flip",), ("jitter", 0.2)), epochs=900)
