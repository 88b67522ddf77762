"""CIFAR-100, dynamic routing, residual backbone, 3 iterations.

Paper: Tsai et al. 2020, section 4.2 and table 1
Command: tf-capsules train tsai2020-cifar100-dynamic-resnet
Device: one GPU
Published: 71.70% test accuracy, the best of 1 to 5 iterations
Measured: not yet
"""

from tf_capsules.recipes.tsai2020_cifar10_dynamic_resnet import RECIPE as CIFAR10_DYNAMIC_RESNET

RECIPE = CIFAR10_DYNAMIC_RESNET.but(dataset="cifar100")
