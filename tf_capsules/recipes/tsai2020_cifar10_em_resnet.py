"""CIFAR-10, EM routing, residual backbone, 2 iterations.

Paper: Tsai et al. 2020, section 4.2 and table 1
Command: tf-capsules train tsai2020-cifar10-em-resnet
Device: one GPU
Published: 92.15% test accuracy, the best of 1 to 5 iterations
Measured: not yet
"""

from tf_capsules.recipes.tsai2020_cifar10_em import RECIPE as CIFAR10_EM

RECIPE = CIFAR10_EM.but(model_options=dict(backbone="resnet"))
