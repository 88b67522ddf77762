"""DiverseMultiMNIST, inverted attention, matrix poses, 2 iterations.

Paper: Tsai et al. 2020, section 5.3 and table 3
Command: tf-capsules train tsai2020-diverse-multimnist
Device: one GPU, or two CPU cores for a few thousand images
Published: 80.59% test accuracy (the set of digits must be right)
Measured: 25.32% after 40,000 images, smaller form, one run, seed 0 (results/tsai2020_diverse_multimnist.csv)

An epoch is 60,000 images, made anew. The number of iterations is not stated.
"""

import keras

from tf_capsules.models.tsai2020 import AttentionCapsNet
from tf_capsules.recipes import Recipe

RECIPE = Recipe(
    model=AttentionCapsNet,
    model_options=dict(
        filters=1024,
        types=16,
        pose=(8, 8),
        primary_kernel_size=3,
        primary_strides=2,
        convolutions=((16, 3, 1),),
        probabilities="sigmoid",
    ),
    dataset="diverse_multimnist",
    loss=keras.losses.BinaryCrossentropy,
    metric="exact_match",
    threshold=0.5,
    epochs=350,
    batch_size=128,
    optimizer=keras.optimizers.SGD,
    learning_rate=0.1,
    decay_steps=None,
    drops=(150 / 350, 250 / 350),
    figures=("training_curves", "pose_changes", "routing_maps"),
)
