"""CIFAR-10, inverted attention, capsules with activations (ablation C), 2 iterations.

Paper: Tsai et al. 2020, section 5.2
Command: tf-capsules train tsai2020-cifar10-activations
Device: one GPU, or two CPU cores for a few epochs
Published: worse than without activations; no figure
Measured: 36.87% after 10,000 images, one run, seed 0 (results/tsai2020_cifar10_ablations.csv)

How activations are made the paper does not say: see `InvertedAttentionRouting`.
"""

from tf_capsules.recipes.tsai2020_cifar10 import RECIPE as CIFAR10

RECIPE = CIFAR10.but(model_options=dict(activations=True))
