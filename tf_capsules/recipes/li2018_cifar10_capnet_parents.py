"""CIFAR-10, CapNet, competition between parents.

Paper: Li et al. 2018, appendix
Command: tf-capsules train li2018-cifar10-capnet-parents
Device: either, with --batch-size 8 or less: the couplings of all pairs are kept for the gradient
Published: does not converge
Measured: not yet
"""

from tf_capsules.recipes.li2018_cifar10_capnet import RECIPE as CAPNET

RECIPE = CAPNET.but(model_options=dict(competition="parents"))
