"""smallNORB, stereo pairs at 32x32.

Paper: Sabour et al. 2017, section 7
Command: tf-capsules train sabour2017-smallnorb
Device: one GPU, or two CPU cores for a few epochs
Published: 2.7% test error
Measured: not yet
"""

from tf_capsules.models.sabour2017 import CapsNet
from tf_capsules.recipes import Recipe

RECIPE = Recipe(
    model=CapsNet,
    model_options=dict(decoder_units=None),
    dataset="smallnorb",
    preprocess=(("downscale", 2), ("brightness", 63), ("contrast", 0.2, 1.8), ("crop", 32), ("standardize",)),
    epochs=200,
    figures=("training_curves", "routing_changes"),
)
