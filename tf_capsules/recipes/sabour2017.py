"""Sabour, Frosst, Hinton 2017: Dynamic routing between capsules."""

from keras.losses import BinaryCrossentropy, SparseCategoricalCrossentropy

from tf_capsules.models.sabour2017 import BaselineCNN, CapsNet, PoolingCNN
from tf_capsules.optimizers import Adam
from tf_capsules.recipes.recipe import Recipe

# A row begins with its name, its title and the paper's figure; source, note and what differs follow.
# fmt: off
DIGITS = Recipe("sabour2017-digits", "scikit-learn's 8x8 digits, a small network: the default",
    model=CapsNet,
    model_options=dict(
        filters=64, kernel_size=3, types=8, primary_kernel_size=3, primary_strides=1, decoder_units=(128, 256),
        reconstruction_weight=0.006),  # as the mean squared error has for MNIST: 0.0005 * 784 pixels of 64
    dataset="digits", preprocess=(("shift", 1),),
    epochs=30, batch_size=32, optimizer=Adam, learning_rate=0.002, decays=34,
    figures=("training_curves", "reconstructions", "dimension_perturbation", "routing_changes"),
    source="the architecture of the paper with a quarter of the filters and types; the data set is not the paper's",
    device="two CPU cores, half a minute")
MNIST = Recipe("sabour2017-mnist", "MNIST, 3 routing iterations, with reconstruction: the paper's main result",
    model=CapsNet, dataset="mnist", preprocess=(("shift", 2),),
    optimizer=Adam, decays=150,  # the released code: 300,000 steps, the rate falling by 4% every 2,000
    figures=DIGITS.figures, published="0.25% error", source="table 1, last row; figures 3 and 4",
    note="The paper's figure is the mean of 3 runs, standard deviation 0.005; the released code has 640 epochs.")
NO_RECONSTRUCTION = MNIST.row(
    "sabour2017-mnist-no-reconstruction", "MNIST, 3 routing iterations, without reconstruction", "0.35% error",
    "table 1", "Mean of 3 runs, standard deviation 0.036.", decoder_units=None,
    figures=("training_curves", "routing_changes"))
MULTIMNIST = MNIST.row("sabour2017-multimnist", "MultiMNIST, 3 routing iterations, with reconstruction of both digits",
    "5.2% error", "table 1 and figure 5",
    "Both digits must be right. An epoch is 60 million pairs; `--train-limit` takes fewer.",
    dataset="multimnist", preprocess=(), metric="exact_match",
    epochs=1, decays=23,  # one epoch is 468,750 steps; the rate falls by 4% every 20,000
    figures=("training_curves", "overlapping_reconstructions"))
AFFNIST = MNIST.row(
    "sabour2017-affnist", "MNIST shifted on 40x40 pixels, to be tested on affine digits without fine-tuning",
    "0.77% error", "section 5.2",
    "21% error on affNIST, of a network stopped at 99.23% (`--stop-at 0.9923`): `tf-capsules evaluate RUN "
    "--dataset affnist`.",
    dataset="expanded_mnist", preprocess=(), figures=("training_curves", "reconstructions"))
CIFAR10 = NO_RECONSTRUCTION.row("sabour2017-cifar10", "CIFAR-10, leaky routing, 64 primary capsule types",
    "10.6% error", "section 7", "The paper's figure is of 7 networks together: `tf-capsules evaluate RUN RUN ...`.",
    types=64, padding="same", leaky=True, dataset="cifar10",
    preprocess=(("crop", 24), ("flip",), ("brightness", 63), ("contrast", 0.2, 1.8), ("standardize",)),
    epochs=1500, decays=300)  # the released code: 600,000 steps, the rate falling by 4% every 2,000

RECIPES = (
    DIGITS,
    MNIST.row("sabour2017-mnist-cnn", "MNIST, the convolutional baseline of 35.4 million parameters", "0.39% error",
        "table 1, first row", model=BaselineCNN, loss=SparseCategoricalCrossentropy),
    MNIST.short("sabour2017-mnist-short", 16, learning_rate=2e-3),
    NO_RECONSTRUCTION.row("sabour2017-mnist-r1-no-reconstruction", "MNIST, 1 routing iteration, without reconstruction",
        "0.34% error", note="Mean of 3 runs, standard deviation 0.032.", iterations=1),
    MNIST.row("sabour2017-mnist-r1", "MNIST, 1 routing iteration, with reconstruction", "0.29% error", "table 1",
        "Mean of 3 runs, standard deviation 0.011.", iterations=1),
    NO_RECONSTRUCTION, MNIST,
    MNIST.row("sabour2017-mnist-mean", "MNIST, the mean of the votes instead of routing, with reconstruction",
        source="no row of the paper: a control", iterations=1, competition="children"),  # of one iteration: the mean
    MULTIMNIST,
    MULTIMNIST.short("sabour2017-multimnist-short", 6, learning_rate=2e-3, dataset_options=dict(pairs_per_digit=1),
        note="Both digits must be right. An epoch has each training digit as a base once, with a new partner."),
    MULTIMNIST.row("sabour2017-multimnist-r1", "MultiMNIST, 1 routing iteration, with reconstruction of both digits",
        "7.5% error", "table 1", iterations=1),
    MULTIMNIST.row("sabour2017-multimnist-cnn", "MultiMNIST, the convolutional baseline of 24.56 million parameters",
        "8.1% error", "table 1, first row", model=PoolingCNN, loss=BinaryCrossentropy),
    AFFNIST,
    AFFNIST.row("sabour2017-affnist-r1", "MNIST shifted on 40x40 pixels, 1 routing iteration",
        source="no row of the paper: the control with uniform couplings", iterations=1),
    AFFNIST.row("sabour2017-affnist-cnn", "MNIST shifted on 40x40 pixels, the convolutional baseline", "0.78% error",
        note="34% error on affNIST, of a network stopped at 99.22% (`--stop-at 0.9922`): `tf-capsules evaluate RUN "
        "--dataset affnist`.",
        model=PoolingCNN, activation="softmax", dropout=0.5, loss=SparseCategoricalCrossentropy),
    CIFAR10,
    CIFAR10.row("sabour2017-cifar10-r1", "CIFAR-10, 1 routing iteration",
        source="appendix, the figure of training loss: slower than with 3 iterations", iterations=1),
    NO_RECONSTRUCTION.row("sabour2017-smallnorb", "smallNORB, stereo pairs at 32x32", "2.7% error", "section 7",
        dataset="smallnorb", epochs=200,
        preprocess=(("downscale", 2), ("brightness", 63), ("contrast", 0.2, 1.8), ("crop", 32), ("standardize",))),
    NO_RECONSTRUCTION.row("sabour2017-svhn", "SVHN, a network of one million parameters on the training images alone",
        "4.3% error", "section 7", filters=64, types=16, pose=6, dim=8, dataset="svhn", preprocess=(), epochs=200),
)
