"""DiverseMultiMNIST, inverted attention, vector poses, 2 iterations.

Paper: Tsai et al. 2020, section 5.3 and table 3
Command: tf-capsules train tsai2020-diverse-multimnist-vector
Device: one GPU, or two CPU cores for a few thousand images
Published: 85.74% test accuracy
Measured: 28.04% after 40,000 images, smaller form, one run, seed 0 (results/tsai2020_diverse_multimnist.csv)
"""

from tf_capsules.recipes.tsai2020_diverse_multimnist import RECIPE as DIVERSE

RECIPE = DIVERSE.but(model_options=dict(pose=64))
