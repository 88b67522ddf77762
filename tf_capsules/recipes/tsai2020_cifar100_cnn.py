"""CIFAR-100, the convolutional baseline.

Paper: Tsai et al. 2020, section 4.2 and table 1
Command: tf-capsules train tsai2020-cifar100-cnn
Device: one GPU, or two CPU cores for a few epochs
Published: 62.30% test accuracy, the best of all epochs
Measured: not yet
"""

from tf_capsules.recipes.tsai2020_cifar10_cnn import RECIPE as CIFAR10_CNN

RECIPE = CIFAR10_CNN.but(dataset="cifar100")
