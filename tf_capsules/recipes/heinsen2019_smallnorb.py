"""smallNORB, whole stereo pairs of 96x96.

Paper: Heinsen 2019, section 4.1 and table 1
Command: tf-capsules train heinsen2019-smallnorb
Device: one GPU, or two CPU cores for a few epochs of a quarter of an hour
Published: 99.1% test accuracy
Measured: 77.32% after 5 epochs of 50, on JPEG copies, one run, seed 0 (results/smallnorb.csv)
"""

from tf_capsules.losses import SoftmaxCrossentropy
from tf_capsules.models.heinsen2019 import ImageCapsNet
from tf_capsules.optimizers import RAdam
from tf_capsules.recipes import Recipe

RECIPE = Recipe(
    model=ImageCapsNet,
    dataset="smallnorb",
    preprocess=(("pad_crop", 16, "edge"),),
    loss=SoftmaxCrossentropy,
    epochs=50,
    batch_size=20,
    optimizer=RAdam,
    learning_rate=0.0005,
    decay_steps=None,
    warmup=0.1,
    # In the author's code; the paper does not mention it.
    momentum_cycle=True,
    mixup=0.2,
    figures=(
        "training_curves",
        "parse_tree",
        "stereo_pairs",
        "poses_by_azimuth",
        "poses_by_elevation",
        "pose_trajectories",
    ),
)
