"""CIFAR-100, dynamic routing, simple backbone, 3 iterations.

Paper: Tsai et al. 2020, section 4.2 and table 1
Command: tf-capsules train tsai2020-cifar100-dynamic
Device: one GPU, or two CPU cores for a few epochs
Published: 56.96% test accuracy, the best of 1 to 5 iterations
Measured: not yet
"""

from tf_capsules.recipes.tsai2020_cifar10_dynamic import RECIPE as CIFAR10_DYNAMIC

RECIPE = CIFAR10_DYNAMIC.but(dataset="cifar100")
