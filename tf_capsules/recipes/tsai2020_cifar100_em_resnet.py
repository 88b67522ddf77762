"""CIFAR-100, EM routing, residual backbone, 2 iterations.

Paper: Tsai et al. 2020, section 4.2 and table 1
Command: tf-capsules train tsai2020-cifar100-em-resnet
Device: one GPU
Published: 58.08% test accuracy, the best of 1 to 5 iterations
Measured: not yet
"""

from tf_capsules.recipes.tsai2020_cifar10_em_resnet import RECIPE as CIFAR10_EM_RESNET

RECIPE = CIFAR10_EM_RESNET.but(dataset="cifar100")
