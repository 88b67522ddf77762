"""A small capsule network for scikit-learn's 8x8 digits: the default, ready in seconds.

Paper: the architecture of Sabour et al. 2017 at an eighth of the size; the data set is not the paper's.
Command: tf-capsules train
Device: two CPU cores
Hours: 0.02
Published: none
Measured: 99.17% test accuracy (results/digits.csv)
"""

from tf_capsules.models.sabour2017 import CapsNet
from tf_capsules.recipes import Recipe

RECIPE = Recipe(
    model=CapsNet,
    model_options=dict(
        filters=64,
        kernel_size=3,
        types=8,
        primary_kernel_size=3,
        primary_strides=1,
        decoder_units=(128, 256),
        # The weight that the mean squared error has for MNIST: 0.0005 * 784 pixels of 64.
        reconstruction_weight=0.006,
    ),
    dataset="digits",
    preprocess=(("shift", 1),),
    epochs=30,
    batch_size=32,
    learning_rate=0.002,
    decay_steps=40,
    figures=("training_curves", "reconstructions", "dimension_perturbation", "routing_changes"),
)
