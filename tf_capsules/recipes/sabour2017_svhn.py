"""SVHN, a network of one million parameters on the training images alone.

Paper: Sabour et al. 2017, section 7
Command: tf-capsules train sabour2017-svhn
Device: one GPU, or two CPU cores for a few epochs
Published: 4.3% test error
Measured: not yet
"""

from tf_capsules.models.sabour2017 import CapsNet
from tf_capsules.recipes import Recipe

RECIPE = Recipe(
    model=CapsNet,
    model_options=dict(filters=64, types=16, pose=6, dim=8, decoder_units=None),
    dataset="svhn",
    epochs=200,
    figures=("training_curves", "routing_changes"),
)
