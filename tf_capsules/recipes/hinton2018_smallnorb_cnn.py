"""smallNORB, the convolutional baseline of 4.2 million parameters.

Paper: Hinton et al. 2018, section 4 and table 1
Command: tf-capsules train hinton2018-smallnorb-cnn
Device: one GPU, or two CPU cores for a few epochs
Published: 5.2% test error
Measured: 10.2% test error after 4 epochs (results/smallnorb.csv); 300 epochs not run

The paper names neither optimizer nor learning rate of the baseline; these are Adam and Keras' own.
"""

import dataclasses

import keras

from tf_capsules.models.hinton2018 import BaselineCNN
from tf_capsules.recipes.hinton2018_smallnorb import RECIPE as SMALLNORB

RECIPE = dataclasses.replace(
    SMALLNORB,
    model=BaselineCNN,
    model_options={},
    loss=keras.losses.SparseCategoricalCrossentropy,
    margin_schedule=None,
    learning_rate=0.001,
    figures=("training_curves",),
)
