"""CIFAR-10, inverted attention without layer normalization, 2 iterations.

Paper: Tsai et al. 2020, section 5.2, ablation A
Command: tf-capsules train tsai2020-cifar10-no-layer-norm
Device: one GPU, or two CPU cores for a few epochs
Published: 10% with 5 iterations, no other number
Measured: 21.07% after 10,000 images, 25.07% with 5 iterations, one run each, seed 0
  (results/tsai2020_cifar10_ablations.csv)
"""

from tf_capsules.recipes.tsai2020_cifar10 import RECIPE as CIFAR10

RECIPE = CIFAR10.but(model_options=dict(layer_norm=False))
