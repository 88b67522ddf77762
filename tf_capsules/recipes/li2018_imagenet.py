"""ImageNet, EncapNet of 18 layers, two feedback units in each module, random crops of 224 and flips.

Paper: Li et al. 2018, section 4.3
Command: tf-capsules train li2018-imagenet
Device: several GPUs
Published: 7.51% test error, where the class is none of the five most probable
Measured: not yet: the images are not at hand

The paper says of this run nothing but its error; size, augmentation and the number of epochs are ours.
"""

from tf_capsules.recipes.li2018_h_imagenet import RECIPE as H_IMAGENET

RECIPE = H_IMAGENET.but(
    dataset="imagenet",
    dataset_options=dict(image_size=256),
    preprocess=(("crop", 224), ("flip",), *H_IMAGENET.preprocess),
    metric="top_5",
    epochs=90,
)
