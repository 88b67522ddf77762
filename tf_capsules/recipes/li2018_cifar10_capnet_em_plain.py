"""CIFAR-10, CapNet, EM routing without normalised costs.

Paper: Li et al. 2018, appendix
Command: tf-capsules train li2018-cifar10-capnet-em-plain
Device: one GPU, or two CPU cores for a small part of an epoch
Published: sigmoid inputs above 100, all activations one
Measured: not yet
"""

from tf_capsules.recipes.li2018_cifar10_capnet_em import RECIPE as CAPNET

RECIPE = CAPNET.but(model_options=dict(normalization=1.0))
