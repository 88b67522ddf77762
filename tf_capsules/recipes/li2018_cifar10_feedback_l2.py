"""CIFAR-10, EncapNet of 18 layers, feedback units at the cost of distances.

Paper: Li et al. 2018, table 3, ablations, row (d5)
Command: tf-capsules train li2018-cifar10-feedback-l2
Device: one GPU
Published: 4.90% test error
Measured: not yet
"""

from tf_capsules.recipes.li2018_cifar10_feedback import RECIPE as FEEDBACK

RECIPE = FEEDBACK.but(feedback_options=dict(cost="l2"))
