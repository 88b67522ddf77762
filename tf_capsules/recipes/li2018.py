"""Li, Guo, Dai, Ouyang, Wang 2018: Neural network encapsulation."""

import keras

from tf_capsules.losses import MarginLoss, SoftmaxCrossentropy, SpreadLoss
from tf_capsules.models.li2018 import CapNet, EncapNet, ResNetTwin, SameShapeCNN, SameSizeCNN, ShortEncapNet
from tf_capsules.models.li2018_feedback import feedback
from tf_capsules.optimizers import CoupledAdam, CoupledRMSprop, CoupledSGD
from tf_capsules.recipes.recipe import Recipe

CIFAR10 = Recipe(
    "li2018-cifar10",
    "CIFAR-10, EncapNet of 18 layers, coefficients from both branches, both skips",
    model=EncapNet,
    dataset="cifar10",
    epochs=600,
    batch_size=128,
    optimizer=CoupledAdam,
    learning_rate=1e-4,
    drops=(200 / 600, 300 / 600, 400 / 600),
    source="table 3, row 7, and the baseline of the ablations",
    published="5.82% error",
    device="one GPU",
)

_TWO_CORES = "one GPU, or two CPU cores for a few epochs"

# Table 1: networks of six layers, on CIFAR-10 and on MNIST brought to 32x32.


def _six_layers(key, row, title, cifar10, mnist, model, figures=("training_curves",), **changes):
    changes.update(source=f"table 1 ({row})", model=model, figures=figures, device=_TWO_CORES)
    return (
        CIFAR10.row(f"li2018-cifar10-{key}", f"CIFAR-10, {title}", f"{cifar10} error", **changes),
        CIFAR10.row(
            f"li2018-mnist-{key}",
            f"MNIST brought to 32x32, {title}",
            f"{mnist} error",
            dataset="mnist",
            preprocess=(("resize", 32),),
            **changes,
        ),
    )


_VOTES = ("training_curves", "vote_similarities")
CAPNET, CAPNET_MNIST = _six_layers("capnet", "a", "CapNet, dynamic routing", "14.28%", "0.37%", CapNet, _VOTES)
CAPNET_EM, CAPNET_EM_MNIST = _six_layers(
    "capnet-em", "b", "CapNet, EM routing", "12.66%", "0.31%", CapNet, _VOTES, model_options=dict(routing="em")
)
SIX_LAYERS = (
    CAPNET,
    CAPNET_MNIST,
    CAPNET_EM,
    CAPNET_EM_MNIST,
    *_six_layers("cnn", "c", "convolutional network of CapNet's shapes", "14.43%", "0.38%", SameShapeCNN),
    *_six_layers("cnn-large", "d", "convolutional network of CapNet's size", "12.09%", "0.33%", SameSizeCNN),
    *_six_layers("short-master", "e", "EncapNet of six layers, master branch alone", "13.87%", "0.31%", ShortEncapNet),
    *_six_layers(
        "short",
        "f",
        "EncapNet of six layers, both branches",
        "11.93%",
        "0.25%",
        ShortEncapNet,
        model_options=dict(coefficients="crossed"),
        note="The aide branch's coefficients come from the other branch: the released code of this row has that form. "
        "Section 3.1 also has the form from both branches: `--network coefficients=both`.",
    ),
)

# Table 1 (c), (e), (f) on two cores: one cycle up and down, and crops and flips, which the paper's rows are without.
SHORT = tuple(
    row.short(24, learning_rate=3e-3, preprocess=(("pad_crop", 4, "zero"), ("flip",)), note=row.note)
    for row in SIX_LAYERS
    if row.name in ("li2018-cifar10-cnn", "li2018-cifar10-short-master", "li2018-cifar10-short")
)


def _routing(key, title, published, source="table 5", base=CAPNET, **options):
    return base.row(f"{base.name}-{key}", f"{base.title}, {title}", published, source=source, model_options=options)


# Table 5: routing, optimizers and losses of CapNet, and the two claims of the appendix.
ROUTING = (
    _routing("r1", "1 iteration", "14.79% error", iterations=1),
    _routing("r2", "2 iterations", "14.41% error", iterations=2),
    _routing("r4", "4 iterations", "14.25% error", iterations=4),
    _routing("random-logits", "random initial logits", "14.35% error", initial_logits="random"),
    _routing("learned-logits", "learned initial logits", "14.11% error", initial_logits="learned"),
    _routing("parents", "competition between parents", "does not converge", "appendix", competition="parents").replace(
        device="any, with --batch-size 8 or less: the couplings of all pairs are kept for the gradient"
    ),
    _routing("plain", "without normalized costs", "activations all one", "appendix", base=CAPNET_EM, normalization=1.0),
)

# Key in the name, words, and values.
_ADAM: tuple[str, str, dict] = ("", "Adam", {})
_RMSPROP = ("-rmsprop", "RMSprop", dict(optimizer=CoupledRMSprop))
_SGD = ("-sgd", "SGD", dict(optimizer=CoupledSGD, learning_rate=0.01))
_MARGIN = ("", "margin loss", dict(loss=MarginLoss))
_FIXED = ("-spread-fixed", "spread loss with margin 0.9", dict(loss=SpreadLoss))
_GROWING = ("-spread", "spread loss with growing margin", dict(loss=SpreadLoss, margin_schedule="ramp"))
_ENTROPY = ("-cross-entropy", "cross-entropy of the lengths", dict(loss=SoftmaxCrossentropy))


def _training(optimizer, loss, published):
    note = "" if optimizer is _ADAM else "The paper does not state the learning rate."
    return CAPNET.row(
        f"li2018-cifar10-capnet{optimizer[0]}{loss[0]}",
        f"CIFAR-10, CapNet, dynamic routing, {optimizer[1]}, {loss[1]}",
        published,
        source="table 5",
        note=note,
        **optimizer[2],
        **loss[2],
    )


TRAINING = (
    _training(_ADAM, _FIXED, "14.97% error"),
    _training(_ADAM, _GROWING, "14.50% error"),
    _training(_ADAM, _ENTROPY, "15.31% error"),
    _training(_RMSPROP, _MARGIN, "14.30% error"),
    _training(_RMSPROP, _FIXED, "15.61% error"),
    _training(_RMSPROP, _GROWING, "15.02% error"),
    _training(_RMSPROP, _ENTROPY, "14.76% error"),
    _training(_SGD, _MARGIN, "15.18% error"),
    _training(_SGD, _FIXED, "15.38% error"),
    _training(_SGD, _GROWING, "14.87% error"),
    _training(_SGD, _ENTROPY, "fails"),
)


def _branches(key, title, published, row, **options):
    title = f"CIFAR-10, EncapNet of 18 layers, {title}"
    return CIFAR10.row(f"li2018-cifar10-{key}", title, published, source=f"table 3, row {row}", model_options=options)


# Table 3, left: coefficients and skips.
BRANCHES = (
    _branches("master", "master branch alone", "9.83% error", 1, coefficients=None, skips=()),
    _branches("own", "coefficients from the branch itself (version 1)", "8.05% error", 2, coefficients="own", skips=()),
    _branches("crossed", "from the other branch (version 2)", "9.11% error", 3, coefficients="crossed", skips=()),
    _branches("both", "from both branches (version 3)", "7.41% error", 4, coefficients="both", skips=()),
    _branches("skip-1", "version 3, skips of Type I", "6.81% error", 5, skips=("convolution",)),
    _branches("skip-2", "version 3, skips of Type II", "6.75% error", 6, skips=("stack",)),
)


def _unit(key, title, published, source, **options):
    return CIFAR10.row(
        f"li2018-cifar10-feedback{key}",
        f"CIFAR-10, EncapNet of 18 layers, {title}",
        published,
        source=source,
        feedback=feedback,
        feedback_options=options,
    )


# Section 3.2 and table 3, right: feedback agreement.
TWO_UNITS = _unit(
    "-2", "two feedback units a module", "4.55% error", "table 3, row 8, and table 4", links=("half", "same")
)
_ABLATION = "table 3, ablations, row {}".format
FEEDBACK = (
    _unit("", "a feedback unit in each module", "4.58% error", _ABLATION("(c)")),
    TWO_UNITS,
    _unit("-kl", "units by Kullback-Leibler divergence", "5.31% error", _ABLATION("(b)"), divergence="kl"),
    _unit("-biased", "units without the correction of the bias", "4.71% error", _ABLATION("(d1)"), unbiased=False),
    _unit("-plan-gradient", "gradient through the plan", "4.77% error", _ABLATION("(d2)"), plan_gradient=True),
    _unit("-no-critic", "units without critics", "5.79% error", _ABLATION("(d3)"), critic=False),
    _unit("-vanilla", "units with plain generators", "5.01% error", _ABLATION("(d4)"), vanilla=True),
    _unit("-l2", "units at the cost of distances", "4.90% error", _ABLATION("(d5)"), cost="l2"),
)
RESNET = CIFAR10.row(
    "li2018-cifar10-resnet",
    "CIFAR-10, the residual network of EncapNet's shapes",
    "8.03% error",
    source="section 5.1",
    model=ResNetTwin,
    loss=keras.losses.SparseCategoricalCrossentropy,
    device=_TWO_CORES,
)
RESNETS = (
    RESNET,
    RESNET.row(
        "li2018-cifar10-resnet-feedback", f"{RESNET.title}, a unit in each stage", "7.67% error", feedback=feedback
    ),
    RESNET.row(
        "li2018-cifar10-resnet-kl",
        f"{RESNET.title}, units by Kullback-Leibler divergence",
        "7.72% error",
        feedback=feedback,
        feedback_options=dict(divergence="kl"),
    ),
)

# Table 4: other data, and augmentation: "+" is crops, "++" crops, flips, colours and a longer training.
_TEN_CROPS = "The paper's figure is of ten crops of each test image: `tf-capsules evaluate RUN --crops fixed`."
_LONGER = " How much longer the training is the paper does not say: here by half, as all of its schedule."
_CROPS = (("resize", 34), ("crop", 32))


def _augmented(dataset, title, mild, strong):
    title = f"{title}, EncapNet of 18 layers, two feedback units a module"
    crops = TWO_UNITS.row(
        f"li2018-{dataset}-mild",
        f"{title}, random crops",
        f"{mild} error",
        source="table 4, EncapNet+",
        dataset=dataset,
        preprocess=_CROPS,
        note=_TEN_CROPS,
    )
    return (
        crops,
        crops.row(
            f"li2018-{dataset}-strong",
            f"{title}, crops, flips, colours",
            f"{strong} error",
            source="table 4, EncapNet++",
            preprocess=(*_CROPS, ("flip",), ("jitter", 0.2)),
            epochs=900,
            note=_TEN_CROPS + _LONGER,
        ),
    )


def _plain(dataset, title, published):
    title = f"{title}, EncapNet of 18 layers, two feedback units a module"
    return TWO_UNITS.row(f"li2018-{dataset}", title, f"{published} error", source="table 4", dataset=dataset)


OTHER_DATA = (
    *_augmented("cifar10", "CIFAR-10", "3.13%", "3.10%"),
    _plain("cifar100", "CIFAR-100", "26.77%"),
    *_augmented("cifar100", "CIFAR-100", "24.01%", "24.18%"),
    _plain("svhn", "SVHN without extra images", "2.01%"),
    *_augmented("svhn", "SVHN without extra images", "1.64%", "1.52%"),
)

# Section 5.2: h-ImageNet and ImageNet.
H_IMAGENET = TWO_UNITS.row(
    "li2018-h-imagenet",
    "h-ImageNet, EncapNet of 18 layers, two feedback units a module, images of 128",
    "48.23% error",
    source="table 4, EncapNet_v1",
    dataset="h_imagenet",
    dataset_options=dict(image_size=128),
    model_options=dict(stem="strided"),
    # The means and deviations of ImageNet's channels.
    preprocess=(("normalize", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),),
    batch_size=256,
    device="several GPUs: 8, for 2.9 days in the paper",
    note="Needs --class-list CLASSES.txt and --box-file BOXES.csv. How the network for images of 32 "
    "takes larger ones is not published: here by a stem with strides.",
)
DEEP = H_IMAGENET.row(
    "li2018-h-imagenet-deep",
    "h-ImageNet, EncapNet of 101 layers, images of 128",
    "43.15% error",
    source="table 4, EncapNet_v2",
    model_options=dict(
        layers=(3, 20, 60, 12), coefficients=(None, None, "both", "both"), skips=("convolution", "layer")
    ),
    note="Needs --class-list and --box-file. How many of the layers are in which module is not published.",
)
LARGE = DEEP.row(
    "li2018-h-imagenet-large",
    "h-ImageNet, EncapNet of 101 layers, images of 224",
    "42.76% error",
    source="table 4, EncapNet_v3",
    dataset_options=dict(image_size=224),
    note="Needs --class-list and --box-file.",
)
IMAGENET = (
    H_IMAGENET,
    DEEP,
    LARGE,
    LARGE.row(
        "li2018-h-imagenet-large-mild",
        "h-ImageNet, EncapNet of 101 layers, random crops of 224",
        "40.18% error",
        source="table 4, EncapNet_v3+",
        dataset_options=dict(image_size=256),
        preprocess=(("crop", 224), *LARGE.preprocess),
        note=f"Needs --class-list and --box-file. {_TEN_CROPS}",
    ),
    LARGE.row(
        "li2018-h-imagenet-large-strong",
        "h-ImageNet, EncapNet of 101 layers, random crops of 224, flips, colours",
        "40.05% error",
        source="table 4, EncapNet_v3++",
        dataset_options=dict(image_size=256),
        preprocess=(("crop", 224), ("flip",), ("jitter", 0.2), *LARGE.preprocess),
        epochs=900,
        note=f"Needs --class-list and --box-file. {_TEN_CROPS}{_LONGER}",
    ),
    H_IMAGENET.row(
        "li2018-imagenet",
        "ImageNet, EncapNet of 18 layers, two feedback units a module, random crops of 224, flips",
        "7.51% top-5 error",
        source="section 5.2",
        dataset="imagenet",
        dataset_options=dict(image_size=256),
        preprocess=(("crop", 224), ("flip",), *H_IMAGENET.preprocess),
        metric="top_5",
        epochs=90,
        note="The paper says nothing else of this run: size, augmentation and the number of epochs are ours.",
    ),
)

RECIPES = (*SIX_LAYERS, *SHORT, *ROUTING, *TRAINING, *BRANCHES, CIFAR10, *FEEDBACK, *RESNETS, *OTHER_DATA, *IMAGENET)
