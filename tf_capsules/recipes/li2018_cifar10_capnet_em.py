"""CIFAR-10, CapNet, EM routing.

Paper: Li et al. 2018, table 1 (b)
Command: tf-capsules train li2018-cifar10-capnet-em
Device: one GPU, or two CPU cores for a small part of an epoch
Published: 12.66% test error
Measured: 90.28% of 2,500 test images, chance, after 5,000 images, form of 4x4 positions, one run, seed 0
  (results/li2018_cifar10_capnet_curves.csv)
"""

from tf_capsules.models.li2018 import CapNet
from tf_capsules.recipes.li2018_cifar10 import RECIPE as CIFAR10

RECIPE = CIFAR10.but(model=CapNet, model_options=dict(routing="em"), figures=("training_curves", "vote_similarities"))
