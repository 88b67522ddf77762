"""Sabour, Frosst, Hinton 2017: Dynamic routing between capsules."""

import keras

from tf_capsules.models.sabour2017 import BaselineCNN, CapsNet, PoolingCNN
from tf_capsules.optimizers import Adam
from tf_capsules.recipes.recipe import Recipe

DIGITS = Recipe(
    "sabour2017-digits",
    "scikit-learn's 8x8 digits, a small network: the default",
    model=CapsNet,
    model_options=dict(
        filters=64,
        kernel_size=3,
        types=8,
        primary_kernel_size=3,
        primary_strides=1,
        decoder_units=(128, 256),
        reconstruction_weight=0.006,  # as the mean squared error has for MNIST: 0.0005 * 784 pixels of 64
    ),
    dataset="digits",
    preprocess=(("shift", 1),),
    epochs=30,
    batch_size=32,
    optimizer=Adam,
    learning_rate=0.002,
    decays=34,
    figures=("training_curves", "reconstructions", "dimension_perturbation", "routing_changes"),
    source="the architecture of the paper with a quarter of the filters and types; the data set is not the paper's",
    device="two CPU cores, half a minute",
)

MNIST = Recipe(
    "sabour2017-mnist",
    "MNIST, 3 routing iterations, with reconstruction: the paper's main result",
    model=CapsNet,
    dataset="mnist",
    preprocess=(("shift", 2),),
    optimizer=Adam,
    # The released code: 300,000 steps, the rate falling by 4% every 2,000.
    decays=150,
    figures=("training_curves", "reconstructions", "dimension_perturbation", "routing_changes"),
    source="table 1, last row; figures 3 and 4",
    published="0.25% error",
    note="The paper's figure is the mean of 3 runs, standard deviation 0.005; the released code has 640 epochs.",
)

_OF_3_RUNS = "Mean of 3 runs, standard deviation {}."
NO_RECONSTRUCTION = MNIST.row(
    "sabour2017-mnist-no-reconstruction",
    "MNIST, 3 routing iterations, without reconstruction",
    "0.35% error",
    "table 1",
    model_options=dict(decoder_units=None),
    figures=("training_curves", "routing_changes"),
    note=_OF_3_RUNS.format(0.036),
)

MULTIMNIST = MNIST.row(
    "sabour2017-multimnist",
    "MultiMNIST, 3 routing iterations, with reconstruction of both digits",
    "5.2% error",
    "table 1 and figure 5",
    dataset="multimnist",
    preprocess=(),
    metric="exact_match",
    epochs=1,
    # One epoch is 60 million pairs, 468,750 steps; the rate falls by 4% every 20,000.
    decays=23,
    figures=("training_curves", "overlapping_reconstructions"),
    note="Both digits must be right. An epoch is 60 million pairs; `--train-limit` takes fewer.",
)

AFFNIST = MNIST.row(
    "sabour2017-affnist",
    "MNIST shifted on 40x40 pixels, to be tested on affine digits without fine-tuning",
    "0.77% error",
    dataset="expanded_mnist",
    preprocess=(),
    figures=("training_curves", "reconstructions"),
    source="section 5.2",
    note="21% error on affNIST, of a network stopped at 99.23% (`--stop-at 0.9923`): `tf-capsules evaluate RUN "
    "--dataset affnist`.",
)
CIFAR10 = NO_RECONSTRUCTION.row(
    "sabour2017-cifar10",
    "CIFAR-10, leaky routing, 64 primary capsule types",
    "10.6% error",
    "section 7",
    model_options=dict(types=64, padding="same", leaky=True),
    dataset="cifar10",
    preprocess=(("crop", 24), ("flip",), ("brightness", 63), ("contrast", 0.2, 1.8), ("standardize",)),
    epochs=1500,
    # The released code: 600,000 steps, the rate falling by 4% every 2,000.
    decays=300,
    note="The paper's figure is of 7 networks together: `tf-capsules evaluate RUN RUN ...`.",
)


def _unrouted(name, row, published, note=""):
    """The row with one iteration, which leaves the couplings uniform: the control for routing."""
    title = row.title.partition(": ")[0].replace("3 routing iterations", "1 routing iteration")
    return row.ablation(name, title, published, "table 1", note, iterations=1)


RECIPES = (
    DIGITS,
    MNIST.row(
        "sabour2017-mnist-cnn",
        "MNIST, the convolutional baseline of 35.4 million parameters",
        "0.39% error",
        "table 1, first row",
        model=BaselineCNN,
        loss=keras.losses.SparseCategoricalCrossentropy,
    ),
    MNIST.short("sabour2017-mnist-short", 16, learning_rate=2e-3),
    _unrouted("sabour2017-mnist-r1-no-reconstruction", NO_RECONSTRUCTION, "0.34% error", note=_OF_3_RUNS.format(0.032)),
    _unrouted("sabour2017-mnist-r1", MNIST, "0.29% error", note=_OF_3_RUNS.format(0.011)),
    NO_RECONSTRUCTION,
    MNIST,
    MNIST.ablation(
        "sabour2017-mnist-mean",
        "MNIST, the mean of the votes instead of routing, with reconstruction",
        source="no row of the paper: a control",
        iterations=1,
        competition="children",  # of one iteration: the mean
    ),
    MULTIMNIST,
    MULTIMNIST.short(
        "sabour2017-multimnist-short",
        6,
        learning_rate=2e-3,
        dataset_options=dict(pairs_per_digit=1),
        note="Both digits must be right. An epoch has each training digit as a base once, with a new partner.",
    ),
    _unrouted("sabour2017-multimnist-r1", MULTIMNIST, "7.5% error"),
    MULTIMNIST.row(
        "sabour2017-multimnist-cnn",
        "MultiMNIST, the convolutional baseline of 24.56 million parameters",
        "8.1% error",
        "table 1, first row",
        model=PoolingCNN,
        loss=keras.losses.BinaryCrossentropy,
    ),
    AFFNIST,
    AFFNIST.ablation(
        "sabour2017-affnist-r1",
        "MNIST shifted on 40x40 pixels, 1 routing iteration",
        source="no row of the paper: the control with uniform couplings",
        iterations=1,
    ),
    AFFNIST.row(
        "sabour2017-affnist-cnn",
        "MNIST shifted on 40x40 pixels, the convolutional baseline",
        "0.78% error",
        model=PoolingCNN,
        model_options=dict(activation="softmax", dropout=0.5),
        loss=keras.losses.SparseCategoricalCrossentropy,
        note="34% error on affNIST, of a network stopped at 99.22% (`--stop-at 0.9922`): `tf-capsules evaluate RUN "
        "--dataset affnist`.",
    ),
    CIFAR10,
    CIFAR10.ablation(
        "sabour2017-cifar10-r1",
        "CIFAR-10, 1 routing iteration",
        source="appendix, the figure of training loss: slower than with 3 iterations",
        iterations=1,
    ),
    NO_RECONSTRUCTION.row(
        "sabour2017-smallnorb",
        "smallNORB, stereo pairs at 32x32",
        "2.7% error",
        "section 7",
        dataset="smallnorb",
        preprocess=(("downscale", 2), ("brightness", 63), ("contrast", 0.2, 1.8), ("crop", 32), ("standardize",)),
        epochs=200,
    ),
    NO_RECONSTRUCTION.row(
        "sabour2017-svhn",
        "SVHN, a network of one million parameters on the training images alone",
        "4.3% error",
        "section 7",
        model_options=dict(filters=64, types=16, pose=6, dim=8),
        dataset="svhn",
        preprocess=(),
        epochs=200,
    ),
)
