"""Mazzia, Salvetti, Chiaberge 2021: Efficient-CapsNet: capsule network with self-attention routing."""

from tf_capsules.models.mazzia2021 import MULTIMNIST, SMALLNORB, EfficientCapsNet
from tf_capsules.optimizers import Adam
from tf_capsules.recipes.recipe import Recipe


def adam(learning_rate, **options):
    """Adam with Keras's epsilon, as in the released code, in one kernel on TensorFlow."""
    return Adam(learning_rate, epsilon=1e-7, **options)


adam.__name__ = "Adam"  # runs that began with Keras's go on with it

# fmt: off
DIGITS = Recipe("mazzia2021-mnist", "MNIST, self-attention routing, 161,824 parameters and a decoder",
    model=EfficientCapsNet, dataset="mnist",
    preprocess=(("rotate", 30), ("shift_within",), ("narrow", 0.25), ("erase", 4)),
    epochs=150, batch_size=16, optimizer=adam, learning_rate=5e-4,
    decays=112, lowest_rate=5e-5,  # 0.97 an epoch, as 0.96 112 times in 150 epochs
    figures=("training_curves", "reconstructions", "dimension_perturbation"), published="0.26% error",
    source="section 4 and table 1",
    note="The paper's figure is the mean of single models; 0.16% is that of an ensemble. Pixels are divided by 255, "
    "not 256; images are resampled bilinearly.")
TOYS = DIGITS.row(
    "mazzia2021-smallnorb", "smallNORB, self-attention routing, 151,664 parameters and a decoder", "1.77% error",
    note="The decoder's images lie between 0 and 1, the standardized ones it is compared with do not.",
    dataset="smallnorb",
    preprocess=(("normalize", (0.7513, 0.7563), (0.1776, 0.1737)),  # of the left and the right training images
        ("resize", 64), ("crop", 48), ("brightness", 2 * 255), ("contrast", 0.5, 1.5)),
    convolutions=SMALLNORB, normalization="instance", decoder="upsampling", figures=("training_curves",))
TWO_DIGITS = DIGITS.row(
    "mazzia2021-multimnist", "MultiMNIST, self-attention routing, with reconstruction of both digits", "1.3% error",
    note="Both digits must be right. The paper shifts digits by up to 6 pixels, this data set by up to 4.",
    dataset="multimnist", preprocess=(), metric="exact_match", epochs=1,
    convolutions=MULTIMNIST, primary_kernel_size=5, primary_strides=2,
    figures=("training_curves", "overlapping_reconstructions"))

RECIPES = (
    DIGITS,
    DIGITS.short("mazzia2021-mnist-short", 60, batch_size=64, learning_rate=3e-3,
        device="two CPU cores; about 40 minutes with AMX and --dtype mixed_bfloat16"),
    TOYS,
    TOYS.short("mazzia2021-smallnorb-short", 60, batch_size=64, learning_rate=3e-3, mixup=1.0, decoder=None,
        title="smallNORB, self-attention routing without a decoder",
        note="The decoder would take most of a training step. Mixed pairs keep the network from learning the training "
        "toys by heart."),
    TWO_DIGITS,
    TWO_DIGITS.short("mazzia2021-multimnist-short", 90, batch_size=64, learning_rate=3e-3,
        dataset_options=dict(pairs_per_digit=1),
        note="Both digits must be right. An epoch has each training digit as a base once, with a new partner."),
)
