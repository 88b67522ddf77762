"""CIFAR-10, EM routing, simple backbone, 2 iterations.

Paper: Tsai et al. 2020, section 4.2 and table 1
Command: tf-capsules train tsai2020-cifar10-em
Device: one GPU, or two CPU cores for a few epochs
Published: 82.19% test accuracy, the best of 1 to 5 iterations
Measured: 27.64% after 25,000 images, half an epoch, one run, seed 0 (results/tsai2020_cifar10.csv)
"""

import keras

from tf_capsules.losses import SpreadLoss
from tf_capsules.models.tsai2020 import EMCapsNet
from tf_capsules.recipes.tsai2020_cifar10 import RECIPE as CIFAR10

RECIPE = CIFAR10.but(
    model=EMCapsNet,
    loss=SpreadLoss,
    margin_schedule="sigmoid",
    optimizer=keras.optimizers.Adam,
    learning_rate=0.01,
    figures=("training_curves",),
)
