"""CIFAR-10, EncapNet of 18 layers, co-efficients from both branches, both skips.

Paper: Li et al. 2018, table 3, row 7, and the baseline of the ablations
Command: tf-capsules train li2018-cifar10
Device: one GPU
Published: 5.82% test error
Measured: not yet
"""

from tf_capsules.models.li2018 import EncapNet
from tf_capsules.optimizers import CoupledAdam
from tf_capsules.recipes import Recipe

RECIPE = Recipe(
    model=EncapNet,
    dataset="cifar10",
    epochs=600,
    batch_size=128,
    optimizer=CoupledAdam,
    learning_rate=1e-4,
    decay_steps=None,
    drops=(200 / 600, 300 / 600, 400 / 600),
)
