"""smallNORB, 5 routing iterations.

Paper: Hinton et al. 2018, section 4 and table 1
Command: tf-capsules train hinton2018-smallnorb-r5
Device: one GPU, or two CPU cores for a few epochs
Published: 3.9% test error
Measured: not yet
"""

from tf_capsules.recipes.hinton2018_smallnorb import RECIPE as SMALLNORB

RECIPE = SMALLNORB.but(model_options=dict(iterations=5))
