"""MultiMNIST, the convolutional baseline of 24.56 million parameters.

Paper: Sabour et al. 2017, table 1, first row
Command: tf-capsules train sabour2017-multimnist-cnn
Device: one GPU, or two CPU cores for a few epochs
Hours: 0.20 for 30,000 pairs on two CPU cores (mixed_bfloat16)
Published: 8.1% test error (both digits must be right)
Measured: 43.0% test error after 30,000 pairs (results/multimnist.csv)
"""

import keras

from tf_capsules.models.sabour2017 import PoolingCNN
from tf_capsules.recipes.sabour2017_multimnist import RECIPE as MULTIMNIST

RECIPE = MULTIMNIST.but(model=PoolingCNN, loss=keras.losses.BinaryCrossentropy, figures=("training_curves",))
