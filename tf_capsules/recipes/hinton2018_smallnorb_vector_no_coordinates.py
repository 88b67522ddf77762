"""smallNORB, vectors of 16 as poses, without coordinate addition.

Paper: Hinton et al. 2018, section 4 and table 1
Command: tf-capsules train hinton2018-smallnorb-vector-no-coordinates
Device: one GPU, or two CPU cores for a few epochs
Published: 3.2% test error
Measured: not yet
"""

from tf_capsules.recipes.hinton2018_smallnorb import RECIPE as SMALLNORB

RECIPE = SMALLNORB.but(model_options=dict(pose=16, coordinates=False))
