"""CIFAR-10, inverted attention from learned initial poses, 2 iterations.

Paper: Tsai et al. 2020, footnote 1
Command: tf-capsules train tsai2020-cifar10-learned-start
Device: one GPU, or two CPU cores for a few epochs
Published: none; as good as zeros
Measured: 36.38% after 10,000 images, one run, seed 0 (results/tsai2020_cifar10_ablations.csv)
"""

from tf_capsules.recipes.tsai2020_cifar10 import RECIPE as CIFAR10

RECIPE = CIFAR10.but(model_options=dict(initial_pose="learned"))
