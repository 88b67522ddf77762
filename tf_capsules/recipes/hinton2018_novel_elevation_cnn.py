"""smallNORB from novel elevations: the CNN trained on at 30 to 40, tested at 45 to 70 degrees.

Paper: Hinton et al. 2018, section 5.1 and table 2
Command: tf-capsules train hinton2018-novel-elevation-cnn
Device: one GPU, or two CPU cores
Published: 17.8% test error at novel, 4.3% at familiar elevations
Measured: not yet

On the toys of `hinton2018-novel-elevation`, which says how they differ from those of the published figures.
"""

from tf_capsules.recipes.hinton2018_smallnorb_cnn import RECIPE as SMALLNORB_CNN

RECIPE = SMALLNORB_CNN.but(dataset="smallnorb_novel_elevation_test_toys")
