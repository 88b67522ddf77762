"""DiverseMultiMNIST, the convolutional baseline with learned pooling.

Paper: Tsai et al. 2020, section 5.3 and table 3
Command: tf-capsules train tsai2020-diverse-multimnist-cnn-learned
Device: one GPU, or two CPU cores for a few thousand images
Published: 84.84% test accuracy
Measured: 39.00% after 40,000 images, smaller form, one run, seed 0 (results/tsai2020_diverse_multimnist.csv)
"""

import dataclasses

from tf_capsules.models.tsai2020 import DiverseCNN
from tf_capsules.recipes.tsai2020_diverse_multimnist import RECIPE as DIVERSE

RECIPE = dataclasses.replace(
    DIVERSE, model=DiverseCNN, model_options=dict(pooling="learned"), figures=("training_curves",)
)
