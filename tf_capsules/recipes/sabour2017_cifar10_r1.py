"""CIFAR-10, 1 routing iteration: for the training-loss figure.

Paper: Sabour et al. 2017, appendix, figure of training loss with 1 and 3 iterations
Command: tf-capsules train sabour2017-cifar10-r1
Device: one GPU, or two CPU cores for a few epochs
Published: a slower fall of the loss than with 3 iterations
Measured: not yet
"""

from tf_capsules.recipes.sabour2017_cifar10 import RECIPE as CIFAR10

RECIPE = CIFAR10.but(model_options=dict(iterations=1))
