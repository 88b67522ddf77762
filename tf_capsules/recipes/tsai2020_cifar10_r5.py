"""CIFAR-10, inverted attention, simple backbone, 5 iterations.

Paper: Tsai et al. 2020, section 4.2 and table 1
Command: tf-capsules train tsai2020-cifar10-r5
Device: one GPU, or two CPU cores for a few epochs
Published: 85.17% test accuracy, the best of 1 to 5 iterations
Measured: 29.36% after 10,000 images, one run, seed 0 (results/tsai2020_cifar10_ablations.csv)
"""

from tf_capsules.recipes.tsai2020_cifar10 import RECIPE as CIFAR10

RECIPE = CIFAR10.but(model_options=dict(iterations=5))
