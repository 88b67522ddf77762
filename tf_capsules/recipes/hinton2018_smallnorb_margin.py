"""smallNORB, with the margin loss of dynamic routing.

Paper: Hinton et al. 2018, section 4 and table 1
Command: tf-capsules train hinton2018-smallnorb-margin
Device: one GPU, or two CPU cores for a few epochs
Published: 3.2% test error
Measured: not yet
"""

from tf_capsules.losses import MarginLoss
from tf_capsules.recipes.hinton2018_smallnorb import RECIPE as SMALLNORB

RECIPE = SMALLNORB.but(loss=MarginLoss, margin_schedule=None)
