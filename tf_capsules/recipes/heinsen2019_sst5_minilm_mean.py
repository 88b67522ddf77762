"""The baseline of heinsen2019-sst5-minilm: hidden states averaged over tokens, one dense layer.

Paper: none; the control that routing has to beat on the same phrases
Command: tf-capsules train heinsen2019-sst5-minilm-mean
Device: two CPU cores
Published: -
Measured: 45.84%, one run, seed 0 (results/sst.csv)
"""

import keras

from tf_capsules.models.heinsen2019 import MeanPooling
from tf_capsules.recipes.heinsen2019_sst5_minilm import RECIPE as SST5

RECIPE = SST5.but(
    model=MeanPooling,
    loss=keras.losses.SparseCategoricalCrossentropy,
    mixup=None,
    figures=("training_curves",),
)
