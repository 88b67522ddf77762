"""CIFAR-10, EncapNet of six layers, master branch alone.

Paper: Li et al. 2018, table 1 (e)
Command: tf-capsules train li2018-cifar10-short-master
Device: one GPU, or two CPU cores for a few epochs
Published: 13.87% test error
Measured: 45.64% after 25,000 images, half an epoch, at ten times the rate, seed 0 (results/li2018_cifar10.csv)
"""

from tf_capsules.models.li2018 import ShortEncapNet
from tf_capsules.recipes.li2018_cifar10 import RECIPE as CIFAR10

RECIPE = CIFAR10.but(model=ShortEncapNet)
