"""CIFAR-10, the residual network of EncapNet's shapes, feedback by Kullback-Leibler divergence.

Paper: Li et al. 2018, section 4.3
Command: tf-capsules train li2018-cifar10-resnet-kl
Device: one GPU, or two CPU cores for a few epochs
Published: 7.72% test error
Measured: not yet
"""

from tf_capsules.models.li2018 import feedback
from tf_capsules.recipes.li2018_cifar10_resnet import RECIPE as RESNET

RECIPE = RESNET.but(feedback=feedback, feedback_options=dict(divergence="kl"))
