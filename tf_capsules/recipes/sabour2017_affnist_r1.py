"""affNIST protocol, 1 routing iteration: the control with uniform couplings.

Paper: Sabour et al. 2017, section 5.2 has no such row
Command: tf-capsules train sabour2017-affnist-r1
Device: one GPU, or two CPU cores for a few epochs
Published: none
Measured: not yet
"""

from tf_capsules.recipes.sabour2017_affnist import RECIPE as AFFNIST

RECIPE = AFFNIST.but(model_options=dict(iterations=1))
