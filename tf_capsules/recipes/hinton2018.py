"""Hinton, Sabour, Frosst 2018: Matrix capsules with EM routing."""

from keras.losses import SparseCategoricalCrossentropy

from tf_capsules.losses import MarginLoss, SoftmaxCrossentropy, SpreadLoss
from tf_capsules.models.hinton2018 import BaselineCNN, MatrixCapsNet
from tf_capsules.optimizers import Adam
from tf_capsules.recipes import sabour2017
from tf_capsules.recipes.recipe import Recipe

# fmt: off
SMALLNORB = Recipe(
    "hinton2018-smallnorb", "smallNORB, 3 routing iterations, A = B = C = D = 32: the paper's main result",
    model=MatrixCapsNet, model_options=dict(l2=1e-7), dataset="smallnorb",
    # The magnitudes are those of Gritzman 2019: on standardized values, 2 and 0.5 to 1.5.
    preprocess=(("downscale", 2), ("standardize_each",), ("crop", 32), ("brightness", 2 * 255), ("contrast", 0.5, 1.5)),
    loss=SpreadLoss, margin_schedule="sigmoid",
    epochs=300, batch_size=64, optimizer=Adam, learning_rate=0.003,
    decays=20,  # the authors: 400,000 steps, in which the margin reaches 0.976 and the rate falls by 4% every 20,000
    figures=("training_curves", "parse_tree", "vote_distances"), published="1.8% error", source="section 4 and table 1",
    note="1.4% with several crops of each test image: `tf-capsules evaluate RUN --crops 10`. Costs are multiplied "
    "by 100 parents / children, unlike in the paper: its form is `--network normalization=1.0`.")
CNN = SMALLNORB.row(
    "hinton2018-smallnorb-cnn", "smallNORB, the convolutional baseline of 4.2 million parameters", "5.2% error",
    note="The paper names neither optimizer nor learning rate: Adam and its default.",
    model=BaselineCNN, loss=SparseCategoricalCrossentropy, margin_schedule=None, learning_rate=0.001)
SMALL = SMALLNORB.row(
    "hinton2018-smallnorb-small",
    "smallNORB, 3 routing iterations, A = 64, B = 8, C = D = 16: the network of 68K parameters", "2.2% error",
    "section 4", filters=64, types=8, capsules=(16, 16))

_VIEWS = {
    "azimuth": ("300 to 40 degrees, tested at 60 to 280", "3.7%"),
    "elevation": ("30 to 40 degrees, tested at 45 to 70", "4.3%"),
}


def _novel(name, inside_name, factor, base, error):
    """The paper's split of a viewpoint, and the same inside the test toys."""
    degrees, familiar = _VIEWS[factor]
    split = f"{'CNN' if base is CNN else 'capsules'} trained at {factor}s of {degrees}"
    row = base.row(name, f"smallNORB, {split}", f"{error} error", "section 5.1 and table 2",
        f"Error at novel viewpoints, of networks that are equally good at familiar ones, the CNN's {familiar} "
        "(`--stop-at`). The training pairs need pose labels, as the original files have them.",
        dataset=f"smallnorb_novel_{factor}")
    inside = row.row(inside_name, f"smallNORB's test toys alone, {split}", None,
        "no row of the paper: its split inside the test toys",
        "Trains on three toys of each category and tests on two, so that copies of smallNORB serve whose "
        "training pairs have no pose labels. The toys tested on are the validation split at familiar viewpoints.",
        dataset=f"smallnorb_novel_{factor}_test_toys")
    return row, inside


_ONE = "smallNORB, 1 routing iteration: uniform couplings, the control for routing"
_STEPS = "The preprocessing is that of Sabour et al. 2017; the paper does not state its own."

RECIPES = (
    SMALLNORB.row("hinton2018-smallnorb-r1", _ONE, "9.7% error", iterations=1),
    SMALLNORB.row("hinton2018-smallnorb-r2", "smallNORB, 2 routing iterations", "2.2% error", iterations=2),
    SMALLNORB,
    SMALLNORB.row("hinton2018-smallnorb-r5", "smallNORB, 5 routing iterations", "3.9% error", iterations=5),
    SMALLNORB.row("hinton2018-smallnorb-vector",
        "smallNORB, vectors of 16 as poses, transformed by matrices of 16 x 16", "2.9% error",
        note="Coordinates are added to the first two entries of a vote.", pose=16),
    SMALLNORB.row("hinton2018-smallnorb-no-coordinates", "smallNORB, without coordinate addition", "2.6% error",
        coordinates=False),
    SMALLNORB.row(
        "hinton2018-smallnorb-vector-no-coordinates", "smallNORB, vectors of 16 as poses, without coordinate addition",
        "3.2% error", pose=16, coordinates=False),
    SMALLNORB.row("hinton2018-smallnorb-margin", "smallNORB, with the margin loss of dynamic routing", "3.2% error",
        loss=MarginLoss, margin_schedule=None),
    SMALLNORB.row("hinton2018-smallnorb-crossentropy", "smallNORB, with cross-entropy", "5.8% error",
        note="The softmax is over activation logits. Over activations in (0, 1) the loss could not fall below 0.905.",
        logits=True, loss=SoftmaxCrossentropy, margin_schedule=None),
    CNN,
    CNN.short("hinton2018-smallnorb-cnn-short", 12, batch_size=32),
    SMALL,
    SMALL.short("hinton2018-smallnorb-small-short", 12, batch_size=32, iterations=2,
        title="smallNORB, 2 routing iterations, the network of 68K parameters"),
    *_novel("hinton2018-novel-azimuth", "hinton2018-novel-azimuth-test-toys", "azimuth", SMALLNORB, "13.5%"),
    *_novel("hinton2018-novel-azimuth-cnn", "hinton2018-novel-azimuth-cnn-test-toys", "azimuth", CNN, "20.0%"),
    *_novel("hinton2018-novel-elevation", "hinton2018-novel-elevation-test-toys", "elevation", SMALLNORB, "12.3%"),
    *_novel("hinton2018-novel-elevation-cnn", "hinton2018-novel-elevation-cnn-test-toys", "elevation", CNN, "17.8%"),
    SMALLNORB.row("hinton2018-mnist", "MNIST, 3 routing iterations", "0.44% error", "section 4.2", _STEPS,
        dataset="mnist", preprocess=sabour2017.MNIST.preprocess),
    SMALLNORB.row("hinton2018-cifar10", "CIFAR-10, 3 routing iterations, A = 256", "11.9% error", "section 4.2", _STEPS,
        filters=256, dataset="cifar10", preprocess=sabour2017.CIFAR10.preprocess),
    SMALLNORB.row("hinton2018-toys", "toys drawn by code with smallNORB's factors, for where smallNORB is not at hand",
        source="the paper's network, small; the data set is not the paper's", device="two CPU cores, a few minutes",
        dataset="rendered_toys",
        # They have smallNORB's size when it is halved; their colours are left as they are: there are few of them.
        preprocess=(("standardize_each",), ("crop", 32)),
        filters=32, types=8, capsules=(8, 8), iterations=2, epochs=10, batch_size=16),
)
