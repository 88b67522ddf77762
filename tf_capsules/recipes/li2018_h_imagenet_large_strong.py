"""h-ImageNet, EncapNet of 101 layers, two feedback units a module, random crops, flips, colours.

Paper: Li et al. 2018, table 4, EncapNet_v3++
Command: tf-capsules train li2018-h-imagenet-large-strong --class-list CLASSES.txt --box-file BOXES.csv
Device: several GPUs
Published: 40.05% test error, with ten crops in the test
Measured: not yet: the images are not at hand

How much longer the training is the paper does not say: here half as long again, as all of its schedule.
"""

from tf_capsules.recipes.li2018_h_imagenet_large_mild import RECIPE as MILD

CROP, NORMALIZE = MILD.preprocess
RECIPE = MILD.but(preprocess=(CROP, ("flip",), ("jitter", 0.2), NORMALIZE), epochs=900)
