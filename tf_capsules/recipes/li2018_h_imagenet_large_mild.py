"""h-ImageNet, EncapNet of 101 layers, two feedback units in each module, random crops of 224.

Paper: Li et al. 2018, table 4, EncapNet_v3+
Command: tf-capsules train li2018-h-imagenet-large-mild --class-list CLASSES.txt --box-file BOXES.csv
Device: several GPUs
Published: 40.18% test error, with ten crops in the test
Measured: not yet: the images are not at hand
"""

from tf_capsules.recipes.li2018_h_imagenet_large import RECIPE as LARGE

RECIPE = LARGE.but(dataset_options=dict(image_size=256), preprocess=(("crop", 224), *LARGE.preprocess))
