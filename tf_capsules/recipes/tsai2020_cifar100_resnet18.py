"""CIFAR-100, ResNet-18.

Paper: Tsai et al. 2020, section 4.2 and table 1
Command: tf-capsules train tsai2020-cifar100-resnet18
Device: one GPU
Published: 77.92% test accuracy, the best of all epochs
Measured: not yet
"""

from tf_capsules.recipes.tsai2020_cifar10_resnet18 import RECIPE as CIFAR10_RESNET18

RECIPE = CIFAR10_RESNET18.but(dataset="cifar100")
