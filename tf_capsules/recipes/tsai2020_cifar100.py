"""CIFAR-100, inverted attention, simple backbone, 2 concurrent iterations.

Paper: Tsai et al. 2020, section 4.2 and table 1
Command: tf-capsules train tsai2020-cifar100
Device: one GPU, or two CPU cores for a few epochs
Published: 57.32% test accuracy, the best of 1 to 5 iterations and of all epochs
Measured: not yet
"""

from tf_capsules.recipes.tsai2020_cifar10 import RECIPE as CIFAR10

RECIPE = CIFAR10.but(dataset="cifar100", model_options=dict(filters=128, pose=(6, 6), hidden=(20,)))
