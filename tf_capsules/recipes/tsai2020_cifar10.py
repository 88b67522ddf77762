"""CIFAR-10, inverted attention, simple backbone, 2 concurrent iterations.

Paper: Tsai et al. 2020, section 4.2 and table 1
Command: tf-capsules train tsai2020-cifar10
Device: one GPU, or two CPU cores for a few epochs
Published: 85.17% test accuracy, the best of 1 to 5 iterations and of all epochs
Measured: 57.43% after three epochs, 42.06% after 25,000 images; one run each, seed 0 (results/tsai2020_cifar10.csv)
"""

from tf_capsules.losses import SoftmaxCrossentropy
from tf_capsules.models.tsai2020 import AttentionCapsNet
from tf_capsules.optimizers import CoupledSGD
from tf_capsules.recipes import Recipe

RECIPE = Recipe(
    model=AttentionCapsNet,
    dataset="cifar10",
    preprocess=(
        ("pad_crop", 4, "zero"),
        ("flip",),
        ("normalize", (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    ),
    loss=SoftmaxCrossentropy,
    epochs=350,
    batch_size=128,
    optimizer=CoupledSGD,
    learning_rate=0.1,
    decay_steps=None,
    drops=(150 / 350, 250 / 350),
    figures=("training_curves", "pose_changes", "routing_maps"),
)
