"""CIFAR-10, EncapNet of 18 layers, feedback units with the gradient through the plan.

Paper: Li et al. 2018, table 3, ablations, row (d2)
Command: tf-capsules train li2018-cifar10-feedback-plan-gradient
Device: one GPU
Published: 4.77% test error
Measured: not yet
"""

from tf_capsules.recipes.li2018_cifar10_feedback import RECIPE as FEEDBACK

RECIPE = FEEDBACK.but(feedback_options=dict(plan_gradient=True))
