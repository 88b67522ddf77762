"""smallNORB, 3 routing iterations, A = 64, B = 8, C = D = 16: the small network.

Paper: Hinton et al. 2018, section 4
Command: tf-capsules train hinton2018-smallnorb-small
Device: one GPU, or two CPU cores for a few epochs
Published: 2.2% test error, 68K parameters
Measured: 26.5% test error after 4 epochs, 2 iterations, batches of 16 (results/smallnorb.csv); 300 epochs not run
"""

from tf_capsules.recipes.hinton2018_smallnorb import RECIPE as SMALLNORB

RECIPE = SMALLNORB.but(model_options=dict(filters=64, types=8, capsules=(16, 16)))
