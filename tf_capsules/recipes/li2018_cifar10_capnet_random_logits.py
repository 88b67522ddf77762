"""CIFAR-10, CapNet, random initial logits.

Paper: Li et al. 2018, table 5
Command: tf-capsules train li2018-cifar10-capnet-random-logits
Device: one GPU, or two CPU cores for a small part of an epoch
Published: 14.35% test error
Measured: not yet
"""

from tf_capsules.recipes.li2018_cifar10_capnet import RECIPE as CAPNET

RECIPE = CAPNET.but(model_options=dict(initial_logits="random"))
