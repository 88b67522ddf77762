"""DiverseMultiMNIST, inverted attention, matrix poses, 41.6 million parameters.

Paper: Tsai et al. 2020, section 5.3 and table 3
Command: tf-capsules train tsai2020-diverse-multimnist-wide
Device: one GPU, or two CPU cores for a few thousand images
Published: 91.17% test accuracy; how the network is enlarged is not said: here it has 64 types of capsules
Measured: not yet
"""

from tf_capsules.recipes.tsai2020_diverse_multimnist import RECIPE as DIVERSE

RECIPE = DIVERSE.but(model_options=dict(types=64, convolutions=((64, 3, 1),)))
