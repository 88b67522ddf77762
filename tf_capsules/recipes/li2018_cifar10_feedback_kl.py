"""CIFAR-10, EncapNet of 18 layers, feedback units by Kullback-Leibler divergence.

Paper: Li et al. 2018, table 3, ablations, row (b)
Command: tf-capsules train li2018-cifar10-feedback-kl
Device: one GPU
Published: 5.31% test error
Measured: not yet
"""

from tf_capsules.recipes.li2018_cifar10_feedback import RECIPE as FEEDBACK

RECIPE = FEEDBACK.but(feedback_options=dict(divergence="kl"))
