"""MNIST brought to 32x32, EncapNet of six layers, co-efficients from the other branch.

Paper: Li et al. 2018, table 1 (f)
Command: tf-capsules train li2018-mnist-short
Device: one GPU, or two CPU cores for a few epochs
Published: 0.25% test error
Measured: 1.66% after 25,000 images, four tenths of an epoch, at ten times the rate, seed 0 (results/li2018_mnist.csv)
"""

from tf_capsules.recipes.li2018_cifar10_short import RECIPE as CIFAR10

RECIPE = CIFAR10.but(dataset="mnist", preprocess=(("resize", 32),))
