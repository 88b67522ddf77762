"""CIFAR-10, the residual network of EncapNet's shapes.

Paper: Li et al. 2018, section 4.3
Command: tf-capsules train li2018-cifar10-resnet
Device: one GPU, or two CPU cores for a few epochs
Published: 8.03% test error
Measured: not yet
"""

import keras

from tf_capsules.models.li2018 import ResNetTwin
from tf_capsules.recipes.li2018_cifar10 import RECIPE as CIFAR10

RECIPE = CIFAR10.but(model=ResNetTwin, loss=keras.losses.SparseCategoricalCrossentropy)
