"""affNIST protocol, the convolutional baseline.

Paper: Sabour et al. 2017, section 5.2
Command: tf-capsules train sabour2017-affnist-cnn
Device: one GPU, or two CPU cores for a few epochs
Hours: 0.15 for 20,000 images on two CPU cores (mixed_bfloat16)
Published: 66% on affNIST at 99.22% on expanded MNIST
Measured: 77.9% on the affNIST stand-in at 96.5% on expanded MNIST, after 20,000 images (results/affnist.csv)
"""

import keras

from tf_capsules.models.sabour2017 import PoolingCNN
from tf_capsules.recipes.sabour2017_affnist import RECIPE as AFFNIST

RECIPE = AFFNIST.but(
    model=PoolingCNN,
    model_options=dict(activation="softmax", dropout=0.5),
    loss=keras.losses.SparseCategoricalCrossentropy,
    figures=("training_curves",),
)
