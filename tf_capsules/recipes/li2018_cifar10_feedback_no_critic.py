"""CIFAR-10, EncapNet of 18 layers, feedback units without critics.

Paper: Li et al. 2018, table 3, ablations, row (d3)
Command: tf-capsules train li2018-cifar10-feedback-no-critic
Device: one GPU
Published: 5.79% test error
Measured: not yet
"""

from tf_capsules.recipes.li2018_cifar10_feedback import RECIPE as FEEDBACK

RECIPE = FEEDBACK.but(feedback_options=dict(critic=False))
