"""CIFAR-10, inverted attention, 2 iterations layer by layer.

Paper: Tsai et al. 2020, section 5.2, ablation B
Command: tf-capsules train tsai2020-cifar10-sequential
Device: one GPU, or two CPU cores for a few epochs
Published: none; more iterations do not help
Measured: 30.72% after 10,000 images, one run, seed 0 (results/tsai2020_cifar10_ablations.csv)
"""

from tf_capsules.recipes.tsai2020_cifar10 import RECIPE as CIFAR10

RECIPE = CIFAR10.but(model_options=dict(schedule="sequential"))
