"""CIFAR-10, EncapNet of 18 layers, feedback units with plain generators.

Paper: Li et al. 2018, table 3, ablations, row (d4)
Command: tf-capsules train li2018-cifar10-feedback-vanilla
Device: one GPU
Published: 5.01% test error
Measured: not yet
"""

from tf_capsules.recipes.li2018_cifar10_feedback import RECIPE as FEEDBACK

RECIPE = FEEDBACK.but(feedback_options=dict(vanilla=True))
