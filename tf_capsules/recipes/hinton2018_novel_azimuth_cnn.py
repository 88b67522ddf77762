"""smallNORB from novel azimuths: the CNN trained on at 300 to 40, tested at 60 to 280 degrees.

Paper: Hinton et al. 2018, section 5.1 and table 2
Command: tf-capsules train hinton2018-novel-azimuth-cnn
Device: one GPU, or two CPU cores
Published: 20.0% test error at novel, 3.7% at familiar azimuths
Measured: 17.6% at novel, 14.7% at familiar azimuths, 12 epochs, seed 0 (results/novel_viewpoints.csv)

On the toys of `hinton2018-novel-azimuth`, which says how they differ from those of the published figures.
"""

from tf_capsules.recipes.hinton2018_smallnorb_cnn import RECIPE as SMALLNORB_CNN

RECIPE = SMALLNORB_CNN.but(dataset="smallnorb_novel_azimuth_test_toys")
