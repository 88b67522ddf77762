"""CIFAR-10, 3 routing iterations, A = 256.

Paper: Hinton et al. 2018, section 4.2
Command: tf-capsules train hinton2018-cifar10
Device: one GPU, or two CPU cores for a few epochs
Published: 11.9% test error
Measured: not yet

The preprocessing is that of Sabour et al. 2017; the paper does not state its own.
"""

from tf_capsules.recipes.hinton2018_smallnorb import RECIPE as SMALLNORB
from tf_capsules.recipes.sabour2017_cifar10 import RECIPE as CIFAR10

RECIPE = SMALLNORB.but(model_options=dict(filters=256), dataset="cifar10", preprocess=CIFAR10.preprocess)
