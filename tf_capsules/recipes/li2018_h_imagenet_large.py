"""h-ImageNet, EncapNet of 101 layers, two feedback units in each module, images of 224.

Paper: Li et al. 2018, table 4, EncapNet_v3
Command: tf-capsules train li2018-h-imagenet-large --class-list CLASSES.txt --box-file BOXES.csv
Device: several GPUs
Published: 42.76% test error
Measured: not yet: the images are not at hand
"""

from tf_capsules.recipes.li2018_h_imagenet_deep import RECIPE as DEEP

RECIPE = DEEP.but(dataset_options=dict(image_size=224))
