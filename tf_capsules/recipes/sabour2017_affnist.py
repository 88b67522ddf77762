"""affNIST protocol: trained on shifted MNIST, tested on affine MNIST without fine-tuning.

Paper: Sabour et al. 2017, section 5.2
Command: tf-capsules train sabour2017-affnist
Device: one GPU, or two CPU cores for a few epochs
Published: 79% on affNIST at 99.23% on expanded MNIST
Measured: not yet
"""

from tf_capsules.models.sabour2017 import CapsNet
from tf_capsules.recipes import Recipe

RECIPE = Recipe(
    model=CapsNet,
    dataset="expanded_mnist",
    figures=("training_curves", "reconstructions"),
)
