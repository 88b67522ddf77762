"""CIFAR-10, the convolutional baseline.

Paper: Tsai et al. 2020, section 4.2 and table 1
Command: tf-capsules train tsai2020-cifar10-cnn
Device: one GPU, or two CPU cores for a few epochs
Published: 87.10% test accuracy, the best of all epochs
Measured: 42.55% after 25,000 images, half an epoch, one run, seed 0 (results/tsai2020_cifar10.csv)
"""

import keras

from tf_capsules.models.tsai2020 import BaselineCNN
from tf_capsules.recipes.tsai2020_cifar10 import RECIPE as CIFAR10

RECIPE = CIFAR10.but(model=BaselineCNN, loss=keras.losses.SparseCategoricalCrossentropy, figures=("training_curves",))
