"""MNIST, 3 routing iterations.

Paper: Hinton et al. 2018, section 4.2
Command: tf-capsules train hinton2018-mnist
Device: one GPU, or two CPU cores for a few epochs
Published: 0.44% test error
Measured: not yet

The preprocessing is that of Sabour et al. 2017; the paper does not state its own.
"""

from tf_capsules.recipes.hinton2018_smallnorb import RECIPE as SMALLNORB

RECIPE = SMALLNORB.but(dataset="mnist", preprocess=(("shift", 2),))
