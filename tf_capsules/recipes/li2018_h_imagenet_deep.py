"""h-ImageNet, EncapNet of 101 layers, two feedback units in each module, images of 128.

Paper: Li et al. 2018, table 4, EncapNet_v2
Command: tf-capsules train li2018-h-imagenet-deep --class-list CLASSES.txt --box-file BOXES.csv
Device: several GPUs
Published: 43.15% test error
Measured: not yet: the images are not at hand

How many of the layers are in which module is not published.
"""

from tf_capsules.recipes.li2018_h_imagenet import RECIPE as H_IMAGENET

RECIPE = H_IMAGENET.but(
    model_options=dict(
        layers=(3, 20, 60, 12), coefficients=(None, None, "both", "both"), skips=("convolution", "layer")
    ),
)
