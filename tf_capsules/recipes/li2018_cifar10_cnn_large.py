"""CIFAR-10, convolutional network of CapNet's size.

Paper: Li et al. 2018, table 1 (d)
Command: tf-capsules train li2018-cifar10-cnn-large
Device: one GPU, or two CPU cores for a few epochs
Published: 12.09% test error
Measured: 60.05% after 25,000 images, half an epoch, at ten times the rate, seed 0 (results/li2018_cifar10.csv)
"""

from tf_capsules.models.li2018 import SameSizeCNN
from tf_capsules.recipes.li2018_cifar10 import RECIPE as CIFAR10

RECIPE = CIFAR10.but(model=SameSizeCNN)
