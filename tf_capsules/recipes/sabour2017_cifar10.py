"""CIFAR-10, leaky routing, 64 primary capsule types.

Paper: Sabour et al. 2017, section 7
Command: tf-capsules train sabour2017-cifar10
Device: one GPU, or two CPU cores for a few epochs
Published: 10.6% test error (ensemble of 7 networks)
Measured: not yet
"""

from tf_capsules.models.sabour2017 import CapsNet
from tf_capsules.recipes import Recipe

RECIPE = Recipe(
    model=CapsNet,
    model_options=dict(types=64, padding="same", leaky=True, decoder_units=None),
    dataset="cifar10",
    preprocess=(("crop", 24), ("flip",), ("brightness", 63), ("contrast", 0.2, 1.8), ("standardize",)),
    epochs=1500,
    figures=("training_curves", "routing_changes"),
)
