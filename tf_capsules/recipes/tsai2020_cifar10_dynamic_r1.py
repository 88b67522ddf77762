"""CIFAR-10, dynamic routing, simple backbone, no routing.

Paper: Tsai et al. 2020, section 4.2 and table 1
Command: tf-capsules train tsai2020-cifar10-dynamic-r1
Device: one GPU, or two CPU cores for a few epochs
Published: 84.08% test accuracy, the best of 1 to 5 iterations
Measured: 40.26% after 25,000 images, half an epoch, one run, seed 0 (results/tsai2020_cifar10.csv)
"""

from tf_capsules.recipes.tsai2020_cifar10_dynamic import RECIPE as CIFAR10_DYNAMIC

RECIPE = CIFAR10_DYNAMIC.but(model_options=dict(iterations=1))
