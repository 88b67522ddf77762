"""Tsai, Srivastava, Goh, Salakhutdinov 2020: Capsules with inverted dot-product attention routing."""

from keras.losses import BinaryCrossentropy, SparseCategoricalCrossentropy
from keras.optimizers import SGD, Adam

from tf_capsules.losses import MarginLoss, SoftmaxCrossentropy, SpreadLoss
from tf_capsules.models import tsai2020 as models
from tf_capsules.optimizers import CoupledSGD
from tf_capsules.recipes.recipe import Recipe

_BEST = "The paper's figure is the best of all epochs"
_OF_ITERATIONS = f"{_BEST}, and of 1 to 5 iterations."

# fmt: off
CIFAR10 = Recipe("tsai2020-cifar10", "CIFAR-10, inverted attention, simple backbone, 2 concurrent iterations",
    model=models.AttentionCapsNet, dataset="cifar10",
    preprocess=(("pad_crop", 4, "zero"), ("flip",), ("normalize", (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))),
    loss=SoftmaxCrossentropy,
    epochs=350, optimizer=CoupledSGD, learning_rate=0.1, drops=(150 / 350, 250 / 350),
    figures=("training_curves", "pose_changes", "routing_maps"),
    published="85.17%", source="section 5 and table 1", note=_OF_ITERATIONS)
DYNAMIC = CIFAR10.row("tsai2020-cifar10-dynamic", "CIFAR-10, dynamic routing, simple backbone, 3 iterations", "84.08%",
    note=_OF_ITERATIONS, model=models.DynamicCapsNet, loss=MarginLoss, optimizer=Adam, learning_rate=0.001)
EM = CIFAR10.row("tsai2020-cifar10-em", "CIFAR-10, EM routing, simple backbone, 2 iterations", "82.19%",
    note=_OF_ITERATIONS, model=models.EMCapsNet, loss=SpreadLoss, margin_schedule="sigmoid",
    optimizer=Adam, learning_rate=0.01)
CNN = CIFAR10.row("tsai2020-cifar10-cnn", "CIFAR-10, the convolutional baseline", "87.10%", note=f"{_BEST}.",
    model=models.BaselineCNN, loss=SparseCategoricalCrossentropy)
RESNET18 = CNN.row("tsai2020-cifar10-resnet18", "CIFAR-10, ResNet-18", "95.11%", note=CNN.note,
    model=models.ResNet18, device="one GPU")


def _residual(name, row, published, mean=None, **options):
    """The row with a residual backbone; `mean`: the accuracy in the notes of the released code."""
    note = _OF_ITERATIONS if mean is None else f"{_OF_ITERATIONS} The notes of the released code have a mean of {mean}."
    title = row.title.replace("simple", "residual")
    return row.row(name, title, published, note=note, backbone="resnet", device="one GPU", **options)


def _iterations(name, base, iterations, words):
    note = f"The paper prints no figure of this number of iterations: {base.published} is the best of 1 to 5."
    return base.row(name, f"{base.title.rpartition(', ')[0]}, {words}", note=note, iterations=iterations)


def _cifar100(name, row, published, **options):
    title = row.title.replace("CIFAR-10,", "CIFAR-100,")
    return row.row(name, title, published, note=row.note, dataset="cifar100", **options)


DYNAMIC_RESNET = _residual("tsai2020-cifar10-dynamic-resnet", DYNAMIC, "92.65%")
EM_RESNET = _residual("tsai2020-cifar10-em-resnet", EM, "92.15%")
CIFAR100 = _cifar100("tsai2020-cifar100", CIFAR10, "57.32%", filters=128, pose=(6, 6), hidden=(20,))
DIVERSE = CIFAR10.row("tsai2020-diverse-multimnist",
    "DiverseMultiMNIST, inverted attention, matrix poses, 2 iterations", "80.59%",
    "section 6, figure 5 and tables 10 and 11",
    "The set of digits must be right. An epoch is 60,000 new images. The number of iterations is not stated.",
    filters=1024, types=16, pose=(8, 8), primary_kernel_size=3, primary_strides=2, convolutions=((16, 3, 1),),
    probabilities="sigmoid", dataset="diverse_multimnist", preprocess=(),
    loss=BinaryCrossentropy, metric="exact_match", threshold=0.5, optimizer=SGD,
    device="one GPU, or two CPU cores for a few thousand images")
DIVERSE_DYNAMIC = DIVERSE.row(
    "tsai2020-diverse-multimnist-dynamic",
    'DiverseMultiMNIST, dynamic routing, vector poses, 3 iterations ("CapsNet*")', "83.39%",
    "section 6 and figure 5; the loss is that of the table in section 4.3",
    "The number of iterations and the threshold are not stated.", model=models.ConvDynamicCapsNet, loss=MarginLoss)
DIVERSE_CNN = DIVERSE.row(
    "tsai2020-diverse-multimnist-cnn", "DiverseMultiMNIST, the convolutional baseline with average pooling", "79.81%",
    "section 6, figure 5 and table 12", model=models.DiverseCNN)
DIVERSE_LEARNED = DIVERSE_CNN.row(
    "tsai2020-diverse-multimnist-cnn-learned", "DiverseMultiMNIST, the convolutional baseline with learned pooling",
    "84.84%", pooling="learned")


def _few_channels(name, row, words):
    """One cycle of a backbone with an eighth of the channels."""
    title, note = f"DiverseMultiMNIST, {words}, 128 channels", "An epoch is 60,000 new images."
    return row.short(name, 12, title=title, note=note, filters=128, optimizer=Adam, learning_rate=3e-3)


RECIPES = (
    _iterations("tsai2020-cifar10-r1", CIFAR10, 1, "1 iteration"),
    CIFAR10,
    CIFAR10.short("tsai2020-cifar10-short", 40),
    _iterations("tsai2020-cifar10-r3", CIFAR10, 3, "3 concurrent iterations"),
    _iterations("tsai2020-cifar10-r4", CIFAR10, 4, "4 concurrent iterations"),
    _iterations("tsai2020-cifar10-r5", CIFAR10, 5, "5 concurrent iterations"),
    _iterations("tsai2020-cifar10-dynamic-r1", DYNAMIC, 1, "1 iteration: no routing"),
    DYNAMIC,
    _iterations("tsai2020-cifar10-em-r1", EM, 1, "1 iteration"),
    EM,
    _iterations("tsai2020-cifar10-em-r3", EM, 3, "3 iterations"),
    CNN,
    _residual("tsai2020-cifar10-resnet", CIFAR10, "95.14%", "94.85%"),
    DYNAMIC_RESNET, EM_RESNET, RESNET18,
    CIFAR10.row(
        "tsai2020-cifar10-no-layer-norm",
        "CIFAR-10, inverted attention without layer normalization, 2 iterations (ablation A)", source="section 5",
        note="10% with 5 iterations; no other figure is published.", layer_norm=False),
    CIFAR10.row("tsai2020-cifar10-sequential", "CIFAR-10, inverted attention, 2 iterations layer by layer (ablation B)",
        source="section 5", note="The paper: more iterations do not help.", schedule="sequential"),
    CIFAR10.row(
        "tsai2020-cifar10-activations",
        "CIFAR-10, inverted attention, capsules with activations, 2 iterations (ablation C)", source="section 5",
        note="The paper: worse than without. It gives no formula for activations: see `InvertedAttentionRouting`.",
        activations=True),
    CIFAR10.row(
        "tsai2020-cifar10-learned-start", "CIFAR-10, inverted attention from learned initial poses, 2 iterations",
        source="footnote 1", note="The paper: as good as zeros.", initial_pose="learned"),
    CIFAR10.row("tsai2020-cifar10-random-start", "CIFAR-10, inverted attention from random initial poses, 2 iterations",
        source="footnote 1", note="The paper: as good as zeros, more slowly.", initial_pose="random"),
    CIFAR100,
    _cifar100("tsai2020-cifar100-dynamic", DYNAMIC, "56.96%"),
    _cifar100("tsai2020-cifar100-em", EM, "37.73%"),
    _cifar100("tsai2020-cifar100-cnn", CNN, "62.30%"),
    _cifar100("tsai2020-cifar100-dynamic-resnet", DYNAMIC_RESNET, "71.70%"),
    _cifar100("tsai2020-cifar100-em-resnet", EM_RESNET, "58.08%"),
    _cifar100("tsai2020-cifar100-resnet18", RESNET18, "77.92%"),
    _residual("tsai2020-cifar100-resnet", CIFAR100, "78.02%", "76.27%", filters=None),
    DIVERSE,
    _few_channels("tsai2020-diverse-multimnist-short", DIVERSE, "inverted attention, matrix poses"),
    DIVERSE.row(
        "tsai2020-diverse-multimnist-wide",
        "DiverseMultiMNIST, inverted attention, matrix poses, 41.6 million parameters", "91.17%",
        note="How the network is enlarged is not said: here it has 64 types of capsules.", types=64,
        convolutions=((64, 3, 1),)),
    DIVERSE.row(
        "tsai2020-diverse-multimnist-vector", "DiverseMultiMNIST, inverted attention, vector poses, 2 iterations",
        "85.74%", pose=64),
    DIVERSE_DYNAMIC,
    _few_channels("tsai2020-diverse-multimnist-dynamic-short", DIVERSE_DYNAMIC, "dynamic routing, vector poses"),
    DIVERSE_CNN, DIVERSE_LEARNED,
    _few_channels("tsai2020-diverse-multimnist-cnn-learned-short", DIVERSE_LEARNED, "CNN with learned pooling"),
)
