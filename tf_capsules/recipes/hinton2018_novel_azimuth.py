"""smallNORB from novel azimuths: capsules trained on at 300 to 40, tested at 60 to 280 degrees.

Paper: Hinton et al. 2018, section 5.1 and table 2
Command: tf-capsules train hinton2018-novel-azimuth
Device: one GPU, or two CPU cores for a few epochs
Published: 13.5% test error at novel, 3.7% at familiar azimuths, which is the CNN's there
Measured: not yet; the small network 34.2% and 32.7%, 12 epochs, seed 0 (results/novel_viewpoints.csv)

The published figures are of all test toys after training on the training toys, as --dataset smallnorb_novel_azimuth
does. This recipe stays inside the test toys, of which it trains on three a category and tests on two: so it needs no
pose labels of the training pairs, which some copies of smallNORB lack. The toys tested on are the validation split at
familiar azimuths. The paper compares networks that are equally good there: --stop-at with the CNN's accuracy.
"""

from tf_capsules.recipes.hinton2018_smallnorb import RECIPE as SMALLNORB

RECIPE = SMALLNORB.but(dataset="smallnorb_novel_azimuth_test_toys")
