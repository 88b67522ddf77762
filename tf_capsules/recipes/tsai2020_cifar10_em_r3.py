"""CIFAR-10, EM routing, simple backbone, 3 iterations.

Paper: Tsai et al. 2020, section 4.2 and table 1
Command: tf-capsules train tsai2020-cifar10-em-r3
Device: one GPU, or two CPU cores for a few epochs
Published: 82.19% test accuracy, the best of 1 to 5 iterations
Measured: 17.12% after 25,000 images, half an epoch, one run, seed 0 (results/tsai2020_cifar10.csv)
"""

from tf_capsules.recipes.tsai2020_cifar10_em import RECIPE as CIFAR10_EM

RECIPE = CIFAR10_EM.but(model_options=dict(iterations=3))
