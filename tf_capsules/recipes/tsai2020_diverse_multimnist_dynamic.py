"""DiverseMultiMNIST, dynamic routing, vector poses, 3 iterations ("CapsNet*").

Paper: Tsai et al. 2020, section 5.3 and table 3
Command: tf-capsules train tsai2020-diverse-multimnist-dynamic
Device: one GPU, or two CPU cores for a few thousand images
Published: 83.39% test accuracy
Measured: 0.00% after 40,000 images, smaller form, one run, seed 0 (results/tsai2020_diverse_multimnist.csv)

The number of iterations, the loss and the threshold are not stated.
"""

import dataclasses

from tf_capsules.models.tsai2020 import ConvDynamicCapsNet
from tf_capsules.recipes.tsai2020_diverse_multimnist import RECIPE as DIVERSE

RECIPE = dataclasses.replace(DIVERSE, model=ConvDynamicCapsNet, model_options={}, figures=("training_curves",))
