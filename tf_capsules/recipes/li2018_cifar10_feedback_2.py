"""CIFAR-10, EncapNet of 18 layers, two feedback units in each module.

Paper: Li et al. 2018, table 3, row 8, and table 4
Command: tf-capsules train li2018-cifar10-feedback-2
Device: one GPU
Published: 4.55% test error; an unverified claim: the authors' kept logs have 10.8% to 13.9%
Measured: not yet
"""

from tf_capsules.recipes.li2018_cifar10_feedback import RECIPE as FEEDBACK

RECIPE = FEEDBACK.but(feedback_options=dict(links=("half", "same")))
