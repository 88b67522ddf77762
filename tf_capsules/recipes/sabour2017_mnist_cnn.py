"""MNIST, the convolutional baseline of 35.4 million parameters.

Paper: Sabour et al. 2017, table 1, first row
Command: tf-capsules train sabour2017-mnist-cnn
Device: one GPU, or two CPU cores for a few epochs
Published: 0.39% test error
Measured: not yet
"""

import keras

from tf_capsules.models.sabour2017 import BaselineCNN
from tf_capsules.recipes.sabour2017_mnist import RECIPE as MNIST

RECIPE = MNIST.but(model=BaselineCNN, loss=keras.losses.SparseCategoricalCrossentropy, figures=("training_curves",))
