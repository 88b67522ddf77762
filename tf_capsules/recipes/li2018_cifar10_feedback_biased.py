"""CIFAR-10, EncapNet of 18 layers, feedback units without the correction of its bias.

Paper: Li et al. 2018, table 3, ablations, row (d1)
Command: tf-capsules train li2018-cifar10-feedback-biased
Device: one GPU
Published: 4.71% test error
Measured: not yet
"""

from tf_capsules.recipes.li2018_cifar10_feedback import RECIPE as FEEDBACK

RECIPE = FEEDBACK.but(feedback_options=dict(unbiased=False))
