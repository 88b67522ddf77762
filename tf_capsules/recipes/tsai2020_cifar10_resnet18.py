"""CIFAR-10, ResNet-18.

Paper: Tsai et al. 2020, section 4.2 and table 1
Command: tf-capsules train tsai2020-cifar10-resnet18
Device: one GPU
Published: 95.11% test accuracy, the best of all epochs
Measured: not yet
"""

import keras

from tf_capsules.models.tsai2020 import ResNet18
from tf_capsules.recipes.tsai2020_cifar10 import RECIPE as CIFAR10

RECIPE = CIFAR10.but(model=ResNet18, loss=keras.losses.SparseCategoricalCrossentropy, figures=("training_curves",))
