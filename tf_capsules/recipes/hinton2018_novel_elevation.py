"""smallNORB from novel elevations: capsules trained on at 30 to 40, tested at 45 to 70 degrees.

Paper: Hinton et al. 2018, section 5.1 and table 2
Command: tf-capsules train hinton2018-novel-elevation
Device: one GPU, or two CPU cores for a few epochs
Published: 12.3% test error at novel, 4.3% at familiar elevations, which is the CNN's there
Measured: not yet

The published figures are of all test toys after training on the training toys, as --dataset smallnorb_novel_elevation
does. This recipe stays inside the test toys, of which it trains on three a category and tests on two: so it needs no
pose labels of the training pairs, which some copies of smallNORB lack. The toys tested on are the validation split at
familiar elevations. The paper compares networks that are equally good there: --stop-at with the CNN's accuracy.
"""

from tf_capsules.recipes.hinton2018_smallnorb import RECIPE as SMALLNORB

RECIPE = SMALLNORB.but(dataset="smallnorb_novel_elevation_test_toys")
