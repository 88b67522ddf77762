"""Li, Guo, Dai, Ouyang, Wang 2018: Neural network encapsulation."""

from typing import Any

import keras

from tf_capsules.losses import MarginLoss, SoftmaxCrossentropy, SpreadLoss
from tf_capsules.models.li2018 import CapNet, EncapNet, ResNetTwin, SameShapeCNN, SameSizeCNN, ShortEncapNet
from tf_capsules.models.li2018_feedback import feedback
from tf_capsules.optimizers import CoupledAdam, CoupledRMSprop, CoupledSGD
from tf_capsules.recipes.recipe import Recipe

# fmt: off
CIFAR10 = Recipe("li2018-cifar10", "CIFAR-10, EncapNet of 18 layers, coefficients from both branches, both skips",
    model=EncapNet, dataset="cifar10",
    epochs=600, optimizer=CoupledAdam, learning_rate=1e-4, drops=(200 / 600, 300 / 600, 400 / 600),
    published="5.82% error", source="table 3, row 7, and the baseline of the ablations", device="one GPU")


def _table_1(name, row, title, error, model, **changes):
    """A network of six layers."""
    changes |= dict(model=model, device=Recipe.device)
    return CIFAR10.row(name, f"CIFAR-10, {title}", f"{error} error", f"table 1 ({row})", **changes)


def _also_on_mnist(row, name, error):
    """The row, and the same network on MNIST."""
    title = row.title.replace("CIFAR-10", "MNIST brought to 32x32")
    return row, row.row(name, title, f"{error} error", note=row.note, dataset="mnist", preprocess=(("resize", 32),))


_VOTES = ("training_curves", "vote_similarities")
CAPNET = _table_1("li2018-cifar10-capnet", "a", "CapNet, dynamic routing", "14.28%", CapNet, figures=_VOTES)
CAPNET_EM = CAPNET.row(
    "li2018-cifar10-capnet-em", "CIFAR-10, CapNet, EM routing", "12.66% error", "table 1 (b)", routing="em")
CNN = _table_1("li2018-cifar10-cnn", "c", "convolutional network of CapNet's shapes", "14.43%", SameShapeCNN)
LARGE_CNN = _table_1("li2018-cifar10-cnn-large", "d", "convolutional network of CapNet's size", "12.09%", SameSizeCNN)
MASTER = _table_1(
    "li2018-cifar10-short-master", "e", "EncapNet of six layers, master branch alone", "13.87%", ShortEncapNet)
BOTH = MASTER.row("li2018-cifar10-short", "CIFAR-10, EncapNet of six layers, both branches", "11.93% error",
    "table 1 (f)",
    "The aide branch's coefficients come from the other branch: the released code of this row has that form. "
    "Section 3.1 also has the form from both branches: `--network coefficients=both`.",
    coefficients="crossed")

# For two cores, with crops and flips, which the paper's rows are without.
_SHORT = dict(epochs=24, learning_rate=3e-3, preprocess=(("pad_crop", 4, "zero"), ("flip",)))

_TABLE_5 = CAPNET.replace(source="table 5")
_OPTIMIZERS: dict[str, dict[str, Any]] = {
    "Adam": {},
    "RMSprop": dict(optimizer=CoupledRMSprop),
    "SGD": dict(optimizer=CoupledSGD, learning_rate=0.01),
}
_LOSSES: dict[str, dict[str, Any]] = {
    "margin loss": dict(loss=MarginLoss),
    "spread loss with margin 0.9": dict(loss=SpreadLoss),
    "spread loss with growing margin": dict(loss=SpreadLoss, margin_schedule="ramp"),
    "cross-entropy of the lengths": dict(loss=SoftmaxCrossentropy),
}


def _training(name, optimizer, loss, published):
    note = "" if optimizer == "Adam" else "The paper does not state the learning rate."
    changes = _OPTIMIZERS[optimizer] | _LOSSES[loss]
    return _TABLE_5.row(name, f", {optimizer}, {loss}", published, note=note, **changes)


def _branches(name, title, error, row, skips=(), **options):
    title = f"CIFAR-10, EncapNet of 18 layers, {title}"
    return CIFAR10.row(name, title, f"{error} error", f"table 3, row {row}", skips=skips, **options)


def _unit(name, title, error, row, **options):
    title, source = f"CIFAR-10, EncapNet of 18 layers, {title}", f"table 3, ablations, row ({row})"
    return CIFAR10.row(name, title, f"{error} error", source, feedback=feedback, feedback_options=options)


TWO_UNITS = CIFAR10.row("li2018-cifar10-feedback-2", "CIFAR-10, EncapNet of 18 layers, two feedback units a module",
    "4.55% error", "table 3, row 8, and table 4", feedback=feedback, feedback_options=dict(links=("half", "same")))
RESNET = CIFAR10.row("li2018-cifar10-resnet", "CIFAR-10, the residual network of EncapNet's shapes", "8.03% error",
    "section 5.1", model=ResNetTwin, loss=keras.losses.SparseCategoricalCrossentropy, device=Recipe.device)

# Table 4: "+" is crops, "++" crops, flips, colours and a longer training.
_TEN_CROPS = "The paper's figure is of ten crops of each test image: `tf-capsules evaluate RUN --crops fixed`."
_LONGER = " The paper does not say how much longer the training is: here 1.5 times, and its schedule with it."
_RESIZED = (("resize", 34), ("crop", 32))
_NEEDS = "Needs --class-list and --box-file. "
_CROPS = dict(varied=", random crops", source="table 4, EncapNet+", preprocess=_RESIZED, note=_TEN_CROPS)
_ALL = dict(varied=", crops, flips, colours", source="table 4, EncapNet++",
    preprocess=(*_RESIZED, ("flip",), ("jitter", 0.2)), epochs=900, note=_TEN_CROPS + _LONGER)


def _other(name, data, error, varied="", source="table 4", **changes):
    """A row of the data set that the second part of the name says."""
    title = f"{data}, EncapNet of 18 layers, two feedback units a module{varied}"
    return TWO_UNITS.row(name, title, f"{error} error", source, dataset=name.split("-")[1], **changes)


H_IMAGENET = TWO_UNITS.row(
    "li2018-h-imagenet", "h-ImageNet, EncapNet of 18 layers, two feedback units a module, images of 128",
    "48.23% error", "table 4, EncapNet_v1",
    "Needs --class-list CLASSES.txt and --box-file BOXES.csv. How the network for images of 32 "
    "takes larger ones is not published: here by a stem with strides.",
    dataset="h_imagenet", dataset_options=dict(image_size=128), stem="strided",
    preprocess=(("normalize", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),),  # of ImageNet's channels
    batch_size=256, device="several GPUs: 8, for 2.9 days in the paper")
DEEP = H_IMAGENET.row("li2018-h-imagenet-deep", "h-ImageNet, EncapNet of 101 layers, images of 128", "43.15% error",
    "table 4, EncapNet_v2", f"{_NEEDS}How many of the layers are in which module is not published.",
    layers=(3, 20, 60, 12), coefficients=(None, None, "both", "both"), skips=("convolution", "layer"))
LARGE = DEEP.row("li2018-h-imagenet-large", "h-ImageNet, EncapNet of 101 layers, images of 224", "42.76% error",
    "table 4, EncapNet_v3", _NEEDS.rstrip(), dataset_options=dict(image_size=224))
LARGE_MILD = LARGE.row("li2018-h-imagenet-large-mild", "h-ImageNet, EncapNet of 101 layers, random crops of 224",
    "40.18% error", "table 4, EncapNet_v3+", _NEEDS + _TEN_CROPS, dataset_options=dict(image_size=256),
    preprocess=(("crop", 224), *LARGE.preprocess))

RECIPES = (
    # Table 1: networks of six layers, on CIFAR-10 and on MNIST brought to 32x32.
    *_also_on_mnist(CAPNET, "li2018-mnist-capnet", "0.37%"),
    *_also_on_mnist(CAPNET_EM, "li2018-mnist-capnet-em", "0.31%"),
    *_also_on_mnist(CNN, "li2018-mnist-cnn", "0.38%"),
    *_also_on_mnist(LARGE_CNN, "li2018-mnist-cnn-large", "0.33%"),
    *_also_on_mnist(MASTER, "li2018-mnist-short-master", "0.31%"),
    *_also_on_mnist(BOTH, "li2018-mnist-short", "0.25%"),
    CAPNET.short("li2018-cifar10-capnet-short", 6, batch_size=32, learning_rate=3e-3, preprocess=(("flip",),),
        optimizer=keras.optimizers.Adam, grid=(4, 4), initialization="scaled",
        note="The first routed layer has a grid of 4 x 4, as in the released code. There the votes hardly depend on "
        "the image at the start; here the initial values are larger, and nothing pulls the weights to 0."),
    CNN.short("li2018-cifar10-cnn-short", **_SHORT),
    MASTER.short("li2018-cifar10-short-master-short", **_SHORT),
    BOTH.short("li2018-cifar10-short-short", **_SHORT, note=BOTH.note),
    # Table 5: routing, optimizers and losses of CapNet, and the two claims of the appendix.
    _TABLE_5.row("li2018-cifar10-capnet-r1", ", 1 iteration", "14.79% error", iterations=1),
    _TABLE_5.row("li2018-cifar10-capnet-r2", ", 2 iterations", "14.41% error", iterations=2),
    _TABLE_5.row("li2018-cifar10-capnet-r4", ", 4 iterations", "14.25% error", iterations=4),
    _TABLE_5.row(
        "li2018-cifar10-capnet-random-logits", ", random initial logits", "14.35% error", initial_logits="random"),
    _TABLE_5.row(
        "li2018-cifar10-capnet-learned-logits", ", learned initial logits", "14.11% error", initial_logits="learned"),
    CAPNET.row("li2018-cifar10-capnet-parents", ", competition between parents", "does not converge", "appendix",
        competition="parents",
        device="any, with --batch-size 8 or less: the couplings of all pairs are kept for the gradient"),
    CAPNET_EM.row("li2018-cifar10-capnet-em-plain", ", without normalized costs", "activations all one", "appendix",
        normalization=1.0),
    _training("li2018-cifar10-capnet-spread-fixed", "Adam", "spread loss with margin 0.9", "14.97% error"),
    _training("li2018-cifar10-capnet-spread", "Adam", "spread loss with growing margin", "14.50% error"),
    _training("li2018-cifar10-capnet-cross-entropy", "Adam", "cross-entropy of the lengths", "15.31% error"),
    _training("li2018-cifar10-capnet-rmsprop", "RMSprop", "margin loss", "14.30% error"),
    _training("li2018-cifar10-capnet-rmsprop-spread-fixed", "RMSprop", "spread loss with margin 0.9", "15.61% error"),
    _training("li2018-cifar10-capnet-rmsprop-spread", "RMSprop", "spread loss with growing margin", "15.02% error"),
    _training("li2018-cifar10-capnet-rmsprop-cross-entropy", "RMSprop", "cross-entropy of the lengths", "14.76% error"),
    _training("li2018-cifar10-capnet-sgd", "SGD", "margin loss", "15.18% error"),
    _training("li2018-cifar10-capnet-sgd-spread-fixed", "SGD", "spread loss with margin 0.9", "15.38% error"),
    _training("li2018-cifar10-capnet-sgd-spread", "SGD", "spread loss with growing margin", "14.87% error"),
    _training("li2018-cifar10-capnet-sgd-cross-entropy", "SGD", "cross-entropy of the lengths", "fails"),
    # Table 3, left: coefficients and skips.
    _branches("li2018-cifar10-master", "master branch alone", "9.83%", 1, coefficients=None),
    _branches("li2018-cifar10-own", "coefficients from the branch itself (version 1)", "8.05%", 2, coefficients="own"),
    _branches("li2018-cifar10-crossed", "from the other branch (version 2)", "9.11%", 3, coefficients="crossed"),
    _branches("li2018-cifar10-both", "from both branches (version 3)", "7.41%", 4, coefficients="both"),
    _branches("li2018-cifar10-skip-1", "version 3, skips of Type I", "6.81%", 5, skips=("convolution",)),
    _branches("li2018-cifar10-skip-2", "version 3, skips of Type II", "6.75%", 6, skips=("stack",)),
    CIFAR10,
    # Table 3, right: feedback agreement.
    _unit("li2018-cifar10-feedback", "a feedback unit in each module", "4.58%", "c"),
    TWO_UNITS,
    _unit("li2018-cifar10-feedback-kl", "units by Kullback-Leibler divergence", "5.31%", "b", divergence="kl"),
    _unit("li2018-cifar10-feedback-biased", "units without the correction of the bias", "4.71%", "d1", unbiased=False),
    _unit("li2018-cifar10-feedback-plan-gradient", "gradient through the plan", "4.77%", "d2", plan_gradient=True),
    _unit("li2018-cifar10-feedback-no-critic", "units without critics", "5.79%", "d3", critic=False),
    _unit("li2018-cifar10-feedback-vanilla", "units with plain generators", "5.01%", "d4", vanilla=True),
    _unit("li2018-cifar10-feedback-l2", "units at the cost of distances", "4.90%", "d5", cost="l2"),
    RESNET,
    RESNET.row("li2018-cifar10-resnet-feedback", ", a unit in each stage", "7.67% error", feedback=feedback),
    RESNET.row("li2018-cifar10-resnet-kl", ", units by Kullback-Leibler divergence", "7.72% error", feedback=feedback,
        feedback_options=dict(divergence="kl")),
    # Table 4 and section 5.2: other data, h-ImageNet and ImageNet.
    _other("li2018-cifar10-mild", "CIFAR-10", "3.13%", **_CROPS),
    _other("li2018-cifar10-strong", "CIFAR-10", "3.10%", **_ALL),
    _other("li2018-cifar100", "CIFAR-100", "26.77%"),
    _other("li2018-cifar100-mild", "CIFAR-100", "24.01%", **_CROPS),
    _other("li2018-cifar100-strong", "CIFAR-100", "24.18%", **_ALL),
    _other("li2018-svhn", "SVHN without extra images", "2.01%"),
    _other("li2018-svhn-mild", "SVHN without extra images", "1.64%", **_CROPS),
    _other("li2018-svhn-strong", "SVHN without extra images", "1.52%", **_ALL),
    H_IMAGENET, DEEP, LARGE, LARGE_MILD,
    LARGE_MILD.row(
        "li2018-h-imagenet-large-strong", "h-ImageNet, EncapNet of 101 layers, random crops of 224, flips, colours",
        "40.05% error", "table 4, EncapNet_v3++", _NEEDS + _TEN_CROPS + _LONGER,
        preprocess=(("crop", 224), ("flip",), ("jitter", 0.2), *LARGE.preprocess), epochs=900),
    H_IMAGENET.row(
        "li2018-imagenet", "ImageNet, EncapNet of 18 layers, two feedback units a module, random crops of 224, flips",
        "7.51% top-5 error", "section 5.2",
        "The paper says nothing else of this run: size, augmentation and the number of epochs are ours.",
        dataset="imagenet", dataset_options=dict(image_size=256),
        preprocess=(("crop", 224), ("flip",), *H_IMAGENET.preprocess), metric="top_5", epochs=90),
)
