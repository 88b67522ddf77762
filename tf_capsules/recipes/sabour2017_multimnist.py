"""MultiMNIST, 3 routing iterations, with reconstruction of both digits.

Paper: Sabour et al. 2017, table 1 and figure 5
Command: tf-capsules train sabour2017-multimnist
Device: one GPU, or two CPU cores for a few epochs
Hours: 0.16 for 30,000 pairs on two CPU cores (mixed_bfloat16)
Published: 5.2% test error (both digits must be right)
Measured: 40.5% test error after 30,000 pairs (results/multimnist.csv); the paper trained on millions
"""

from tf_capsules.models.sabour2017 import CapsNet
from tf_capsules.recipes import Recipe

RECIPE = Recipe(
    model=CapsNet,
    dataset="multimnist",
    metric="exact_match",
    epochs=1,
    decay_steps=20000,
    figures=("training_curves", "overlapping_reconstructions"),
)
