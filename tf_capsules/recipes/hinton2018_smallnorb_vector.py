"""smallNORB, vectors of 16 as poses, transformed by matrices of 16 x 16.

Paper: Hinton et al. 2018, section 4 and table 1
Command: tf-capsules train hinton2018-smallnorb-vector
Device: one GPU, or two CPU cores for a few epochs
Published: 2.9% test error
Measured: not yet

Coordinates are added to the first two entries of a vote.
"""

from tf_capsules.recipes.hinton2018_smallnorb import RECIPE as SMALLNORB

RECIPE = SMALLNORB.but(model_options=dict(pose=16))
