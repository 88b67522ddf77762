"""h-ImageNet, EncapNet of 18 layers, two feedback units in each module, images of 128.

Paper: Li et al. 2018, table 4, EncapNet_v1
Command: tf-capsules train li2018-h-imagenet --class-list CLASSES.txt --box-file BOXES.csv
Device: several GPUs (8 and 2.9 days in the paper)
Published: 48.23% test error
Measured: not yet: the images are not at hand

How the network for images of 32 takes those of 128 is not published: here by a stem with strides.
"""

from tf_capsules.recipes.li2018_cifar10_feedback_2 import RECIPE as CIFAR10

RECIPE = CIFAR10.but(
    dataset="h_imagenet",
    dataset_options=dict(image_size=128),
    model_options=dict(stem="strided"),
    # The means and deviations of ImageNet's channels.
    preprocess=(("normalize", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),),
    batch_size=256,
)
