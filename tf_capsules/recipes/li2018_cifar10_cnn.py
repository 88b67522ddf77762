"""CIFAR-10, convolutional network of CapNet's shapes.

Paper: Li et al. 2018, table 1 (c)
Command: tf-capsules train li2018-cifar10-cnn
Device: one GPU, or two CPU cores for a few epochs
Published: 14.43% test error
Measured: 48.77% after 25,000 images, half an epoch, at ten times the rate, seed 0 (results/li2018_cifar10.csv)
"""

from tf_capsules.models.li2018 import SameShapeCNN
from tf_capsules.recipes.li2018_cifar10 import RECIPE as CIFAR10

RECIPE = CIFAR10.but(model=SameShapeCNN)
