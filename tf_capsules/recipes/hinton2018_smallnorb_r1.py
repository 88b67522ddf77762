"""smallNORB, 1 routing iteration.

Paper: Hinton et al. 2018, section 4 and table 1
Command: tf-capsules train hinton2018-smallnorb-r1
Device: one GPU, or two CPU cores for a few epochs
Published: 9.7% test error
Measured: not yet
"""

from tf_capsules.recipes.hinton2018_smallnorb import RECIPE as SMALLNORB

# One iteration leaves the couplings uniform: the control for routing.
RECIPE = SMALLNORB.but(model_options=dict(iterations=1))
