"""Small cases of all layers and models; every sweep over them uses this list."""

import dataclasses
from collections.abc import Callable

import numpy as np

from tf_capsules.layers import (
    BatchNormalization,
    CapConv,
    CapFC,
    CapsuleLength,
    ConcurrentRouting,
    ConvDynamicRouting,
    ConvEMRouting,
    ConvInvertedAttentionRouting,
    CoordinateChannels,
    Decoder,
    DepthwisePrimaryCapsules,
    DynamicRouting,
    EMRouting,
    HeinsenRouting,
    InvertedAttentionRouting,
    LabelMask,
    PrimaryCapsules,
    SelfAttentionRouting,
    SequenceCapsules,
    UpsamplingDecoder,
)
from tf_capsules.models import hinton2018, li2018, mazzia2021, tsai2020
from tf_capsules.models.heinsen2019 import ImageCapsNet, MeanPooling, SelfAttentionCapsNet, TextCapsNet
from tf_capsules.models.sabour2017 import BaselineCNN, CapsNet, PoolingCNN

BATCH = 5


@dataclasses.dataclass(frozen=True)
class Case:
    """A layer or model to make, and the arguments of its call as shapes (BATCH, ...) or arrays.

    `output_dtype` None is the dtype of the policy. `unused` is a part of the path of weights that a call does not read.
    """

    of: Callable
    options: dict
    inputs: dict
    output_dtype: str | None = None
    unused: str | None = None

    def make(self):
        return self.of(**self.options)

    def arrays(self):
        random = np.random.default_rng(0)
        return {
            name: random.normal(size=x).astype("float32") if isinstance(x, tuple) else x
            for name, x in self.inputs.items()
        }


def primary(inputs=(BATCH, 7, 6, 3), **options):
    return Case(PrimaryCapsules, {"types": 4, "pose": 5, "kernel_size": 3, **options}, {"features": inputs})


def dynamic(inputs=(BATCH, 6, 3), mask=None, of=DynamicRouting, **options):
    arguments = {"poses": inputs} if mask is None else {"poses": inputs, "mask": mask}
    return Case(of, {"capsules": 4, "dim": 7, "iterations": 2, **options}, arguments)


def self_attention(inputs=(BATCH, 6, 3), mask=None, **options):
    arguments = {"poses": inputs} if mask is None else {"poses": inputs, "mask": mask}
    return Case(SelfAttentionRouting, {"capsules": 4, "dim": 7, **options}, arguments)


def encapsulated(residual=None, **options):
    arguments = {"poses": (BATCH, 4, 3, 2, 5)} | ({} if residual is None else {"residual": residual})
    return Case(CapConv, {"dim": 6, **options}, arguments)


def em(inputs=(BATCH, 9, 2, 3), activations=True, mask=None, of=EMRouting, **options):
    places = 3 if len(inputs) > 4 else 1
    arguments = {"poses": inputs}
    if activations:
        arguments["activations"] = np.random.default_rng(4).random(inputs[: 1 + places]).astype("float32")
    if mask is not None:
        arguments["mask"] = mask
    # An orthogonal kernel and a variance floor: untrained couplings would amplify the rounding of half precision. With
    # the layer's own inverse temperature the activations of an untrained layer hardly differ.
    smooth = {"kernel_initializer": "orthogonal", "variance_floor": 0.1, "inverse_temperature": 1.0}
    return Case(of, {"capsules": 4, "dim": 5, "iterations": 2, **smooth, **options}, arguments)


def heinsen(inputs=(BATCH, 9, 2, 3), logits=True, unused=None, **options):
    arguments = {"poses": inputs}
    if logits:
        places = 3 if len(inputs) > 4 else 1
        arguments["logits"] = inputs[: 1 + places]
    return Case(HeinsenRouting, {"capsules": 4, "dim": 5, "sharing": "all", **options}, arguments, unused=unused)


def attention(inputs, of=InvertedAttentionRouting, children=None, parents=None, mask=None, **options):
    arguments = {"poses": inputs}
    if children is not None:
        arguments["activations"] = children
    if parents is not None:
        arguments["parents"] = parents
    if mask is not None:
        arguments["mask"] = mask
    return Case(of, {"capsules": 4, "dim": 5, **options}, arguments)


def chain(activations=False, connected=2, **options):
    """A convolutional layer and one or two fully connected layers in a chain."""
    layers = [
        ConvInvertedAttentionRouting(4, 5, kernel_size=(3, 2), use_activations=activations),
        InvertedAttentionRouting(6, 3, votes_memory="store", use_activations=activations),
        InvertedAttentionRouting(2, 3),
    ]
    return ConcurrentRouting(layers[: 1 + connected], **options)


def some_children(*shape):
    return np.random.default_rng(1).integers(0, 2, (BATCH, *shape)).astype(bool)


GRID, GRID_OF_MATRICES = (BATCH, 2, 3, 4, 5), (BATCH, 2, 3, 4, 8, 5)
SOME_TOKENS = np.clip(np.random.default_rng(3).normal(0.7, 0.3, (BATCH, 4)), 0.1, 0.9).astype("float32")
SOME_NINE = np.random.default_rng(4).uniform(size=(BATCH, 9)).astype("float32")
SOME_ON_A_GRID = np.random.default_rng(5).uniform(size=(BATCH, 4, 5, 2)).astype("float32")
TEXT = {"embeddings": (BATCH, 4, 3, 7), "mask": SOME_TOKENS}
LABELS = np.array([2, 0, 3, 3, 1], "int32")

LAYERS = {
    "PrimaryCapsules": primary(),
    "PrimaryCapsules strided, one channel": primary((BATCH, 9, 8, 1), kernel_size=(4, 3), strides=(2, 1), scale=0.25),
    "PrimaryCapsules same padding": primary(padding="same", strides=2),
    "PrimaryCapsules matrices, activations": primary(pose=(2, 5), capsule_activation="sigmoid"),
    "PrimaryCapsules layer norm": primary(activation="layer_norm", pose=(2, 5)),
    "PrimaryCapsules without activation": primary(activation=None, kernel_size=1),
    "PrimaryCapsules any activation": primary(activation="tanh", capsule_activation="linear", kernel_regularizer="l2"),
    "DepthwisePrimaryCapsules": Case(DepthwisePrimaryCapsules, {"pose": 3}, {"features": (BATCH, 4, 5, 6)}),
    "DepthwisePrimaryCapsules on a grid": Case(
        DepthwisePrimaryCapsules, {"pose": 3, "kernel_size": (3, 2), "strides": 2}, {"features": (BATCH, 5, 7, 6)}
    ),
    "SelfAttentionRouting": self_attention(),
    "SelfAttentionRouting stored votes of matrices": self_attention(
        (BATCH, 6, 2, 3), use_prior=False, sharing="all", votes_memory="store"
    ),
    "SelfAttentionRouting grid, mask": self_attention(GRID, some_children(2, 3, 4), sharing="positions"),
    "DynamicRouting": dynamic(iterations=3),
    "DynamicRouting stored votes, leaky": dynamic(votes_memory="store", use_bias=True, leaky=True),
    "DynamicRouting shared by all, competition of children": dynamic(
        sharing="all", competition="children", use_bias=True, kernel_regularizer="l2"
    ),
    "DynamicRouting matrices": dynamic((BATCH, 6, 2, 3), use_bias=True, bias_initializer="ones"),
    "DynamicRouting grid": dynamic(GRID, mask=some_children(2, 3, 4)),
    "DynamicRouting grid of matrices": dynamic(GRID_OF_MATRICES, sharing="positions", use_bias=True),
    "DynamicRouting some parents at a time": dynamic(
        GRID,
        mask=some_children(2, 3, 4),
        sharing="positions",
        competition="children",
        parents_per_chunk=3,
        use_vote_bias=True,
        initial_logits="learned",
        kernel_initializer="orthogonal",
    ),
    "ConvDynamicRouting": dynamic((BATCH, 5, 6, 3, 4), of=ConvDynamicRouting, use_bias=True, kernel_size=(3, 2)),
    "ConvDynamicRouting matrices": dynamic(
        (BATCH, 5, 6, 3, 2, 4), some_children(5, 6, 3), ConvDynamicRouting, strides=(1, 2), votes_memory="store"
    ),
    "CapConv": encapsulated(kernel_regularizer="l2", bias_initializer="zeros"),
    "CapConv own": encapsulated(coefficients="own", strides=2, skip=True),
    "CapConv crossed": encapsulated(coefficients="crossed", kernel_size=1, exclude_own=True),
    "CapConv both": encapsulated(coefficients="both", residual=(BATCH, 4, 3, 2, 6)),
    "CapFC": Case(CapFC, {"capsules": 4, "kernel_regularizer": "l2"}, {"poses": (BATCH, 2, 3, 5, 6)}),
    "EMRouting": em(capsules=1, kernel_regularizer="l2"),
    "EMRouting without stored votes": em(
        (BATCH, 9, 6, 3),
        votes_memory="recompute",
        sharing="all",
        normalization="data",
        inverse_temperature=0.01,
        use_bias=True,
    ),
    "EMRouting in chunks": em(
        (BATCH, 7, 3),
        activations=False,
        votes_memory="recompute",
        sharing="all",
        children_per_chunk=4,
        gradients="last",
    ),
    "EMRouting type by type": em(
        (BATCH, 4, 3, 2, 5),
        sharing="positions",
        votes_memory="recompute",
        children_per_chunk=2,
        use_bias=True,
        normalization="min_max",
    ),
    "EMRouting grid of matrices": em(
        GRID_OF_MATRICES,
        mask=some_children(2, 3, 4),
        sharing="positions",
        coordinates=True,
        normalization=0.5,
        inverse_temperature=(0.1, 0.2),
    ),
    "ConvEMRouting": em((BATCH, 4, 5, 2, 3, 6), of=ConvEMRouting, kernel_size=(3, 2), use_bias=True),
    "ConvEMRouting strided": em(
        (BATCH, 5, 6, 3, 4),
        of=ConvEMRouting,
        strides=(1, 2),
        competition="types",
        mask=some_children(5, 6, 3),
        votes_memory="store",
    ),
    "HeinsenRouting": heinsen(sharing="none", beta_initializer="ones", iterations=2),
    "HeinsenRouting stored votes": heinsen(votes_memory="store", iterations=2, single_beta=True),
    "HeinsenRouting without stored votes": heinsen(
        (BATCH, 7, 6, 3), votes_memory="recompute", density="soft_k_means", iterations=2
    ),
    "HeinsenRouting in chunks": heinsen(
        (BATCH, 7, 3), logits=False, votes_memory="recompute", children_per_chunk=4, iterations=2
    ),
    "HeinsenRouting grid": heinsen(GRID_OF_MATRICES, sharing="positions", kernel_regularizer="l2", iterations=2),
    "HeinsenRouting one class": heinsen(capsules=1, unused="beta_ignore", iterations=2),
    "HeinsenRouting as many parents as children, on a line": heinsen(
        capsules=None, symmetry_breaking="all", iterations=2
    ),
    "InvertedAttentionRouting": attention((BATCH, 9, 2, 3), kernel_regularizer="l2"),
    "InvertedAttentionRouting again": attention(
        (BATCH, 9, 2, 3), parents=(BATCH, 4, 2, 5), mask=some_children(9), scaled=False
    ),
    "InvertedAttentionRouting grid": attention(
        GRID, parents=(BATCH, 4, 2), votes_memory="store", mask=some_children(2, 3, 4), dim=2, layer_norm=False
    ),
    "InvertedAttentionRouting numbers": attention((BATCH, 9, 3), dim=1, initial_pose="learned"),
    "ConvInvertedAttentionRouting": attention(
        (BATCH, 4, 5, 2, 3, 6), ConvInvertedAttentionRouting, kernel_size=(3, 2), initial_pose="random"
    ),
    "ConvInvertedAttentionRouting again": attention(
        (BATCH, 5, 6, 3, 4),
        ConvInvertedAttentionRouting,
        parents=(BATCH, 3, 2, 4, 5),
        strides=(1, 2),
        mask=some_children(5, 6, 3),
    ),
    "InvertedAttentionRouting activations": attention(
        (BATCH, 9, 2, 3), children=SOME_NINE, mask=some_children(9), use_activations=True
    ),
    "ConvInvertedAttentionRouting activations": attention(
        (BATCH, 4, 5, 2, 3, 6), ConvInvertedAttentionRouting, use_activations=True
    ),
    "ConcurrentRouting activations": Case(
        chain, {"activations": True}, {"poses": (BATCH, 4, 5, 2, 3, 6), "activations": SOME_ON_A_GRID}
    ),
    "ConcurrentRouting sequential": Case(
        chain,
        {"iterations": 2, "schedule": "sequential", "connected": 1},
        {"poses": (BATCH, 4, 5, 2, 3, 6), "mask": some_children(4, 5, 2)},
    ),
    "SequenceCapsules": Case(SequenceCapsules, {"dim": 6}, TEXT),
    "SequenceCapsules norm after": Case(SequenceCapsules, {"dim": 6, "norm": "post"}, TEXT),
    "CapsuleLength": Case(CapsuleLength, {}, {"poses": (BATCH, 4, 3)}),
    "CapsuleLength matrices": Case(CapsuleLength, {}, {"poses": (BATCH, 4, 2, 3)}),
    "LabelMask": Case(LabelMask, {}, {"poses": (BATCH, 4, 3)}),
    "LabelMask sparse": Case(LabelMask, {}, {"poses": (BATCH, 4, 3), "labels": LABELS}),
    "LabelMask activations": Case(LabelMask, {}, {"poses": (BATCH, 4, 3), "activations": (BATCH, 4)}),
    "Decoder": Case(Decoder, {"image_shape": (4, 3, 2), "units": (16, 8)}, {"poses": (BATCH, 6, 7)}),
    "Decoder matrices": Case(Decoder, {"image_shape": (4, 3, 1), "units": ()}, {"poses": (BATCH, 2, 3, 7)}),
    "UpsamplingDecoder": Case(UpsamplingDecoder, {"channels": 1}, {"poses": (BATCH, 3, 4)}),
    "BatchNormalization": Case(BatchNormalization, {}, {"inputs": (BATCH, 4, 3, 2)}),
    "CoordinateChannels": Case(CoordinateChannels, {}, {"features": (BATCH, 4, 3, 2)}),
}

SMALL = dict(filters=6, kernel_size=3, types=2, pose=4, primary_kernel_size=3, dim=5, decoder_units=(16, 9))


def capsnet(image_shape=(11, 10, 2), **options):
    arguments = {"image_shape": image_shape, "classes": 3, **SMALL, **options}
    return Case(CapsNet, arguments, {"images": (BATCH, *image_shape)}, "float32", "decoder")


def efficient_capsnet(image_shape, **options):
    arguments = {"image_shape": image_shape, "classes": 3, "convolutions": ((6, 3, 1), (8, 3, 2)), "pose": 4, **options}
    unused = "decoder" if options.get("decoder", "dense") else None
    return Case(mazzia2021.EfficientCapsNet, arguments, {"images": (BATCH, *image_shape)}, "float32", unused)


def heinsen_network(of, options, inputs):
    return Case(of, {"classes": 4, "parts": 9, **options}, inputs, "float32")


def network_of_li(name, image_shape, unused=None, **options):
    arguments = {"image_shape": image_shape, "classes": 4, **options}
    return Case(getattr(li2018, name), arguments, {"images": (BATCH, *image_shape)}, "float32", unused)


def network_of_tsai(name, image_shape, **options):
    arguments = {"image_shape": image_shape, "classes": 4, **options}
    return Case(getattr(tsai2020, name), arguments, {"images": (BATCH, *image_shape)}, "float32")


SMALL_CHAIN = dict(filters=6, types=3, pose=(2, 5), convolutions=((5, 3, 2),), hidden=(3,))

MODELS = {
    "CapsNet": capsnet(),
    "CapsNet without decoder": capsnet(decoder_units=None, leaky=True, use_bias=True, padding="same"),
    "CapsNet one class, one iteration": capsnet((9, 12, 1), classes=1, iterations=1, competition="children"),
    "EfficientCapsNet": efficient_capsnet((11, 12, 2), primary_kernel_size=2, primary_strides=2),
    "EfficientCapsNet instance normalization": efficient_capsnet((9, 11, 1), normalization="instance", decoder=None),
    "BaselineCNN": Case(BaselineCNN, {"image_shape": (4, 3, 2), "classes": 7}, {"images": (BATCH, 4, 3, 2)}, "float32"),
    "PoolingCNN": Case(
        PoolingCNN, {"image_shape": (4, 5, 1), "classes": 6, "dropout": 0.5}, {"images": (BATCH, 4, 5, 1)}, "float32"
    ),
    # One iteration, here and for attention: with more, untrained couplings amplify the rounding of half precision.
    "ImageCapsNet": heinsen_network(
        ImageCapsNet,
        {"image_shape": (29, 31, 1), "filters": 5, "types": 9, "pose": (2, 3), "iterations": 1},
        {"images": (BATCH, 29, 31, 1)},
    ),
    "TextCapsNet": heinsen_network(TextCapsNet, {"layers": 3, "width": 7, "dim": 6, "iterations": 2}, TEXT),
    "SelfAttentionCapsNet": Case(
        SelfAttentionCapsNet,
        {"layers": 3, "width": 7, "classes": 2, "dim": 8, "heads": 2, "blocks": 1, "pose": 6, "iterations": 1},
        TEXT,
        "float32",
    ),
    "MatrixCapsNet": Case(
        hinton2018.MatrixCapsNet,
        {"image_shape": (17, 19, 1), "classes": 4, "filters": 5, "types": 3, "capsules": (6,), "iterations": 1},
        {"images": (BATCH, 17, 19, 1)},
        "float32",
    ),
    "BaselineCNN with pooling": Case(
        hinton2018.BaselineCNN, {"image_shape": (4, 5, 1), "classes": 6}, {"images": (BATCH, 4, 5, 1)}, "float32"
    ),
    "CapNet": network_of_li("CapNet", (4, 5, 3), dim=3, iterations=2, grid=(1, 1)),
    # The network ignores the class capsules' activations, since their lengths are its outputs. Votes are stored, since
    # eager loops over 32 types take long; tests/models/test_li2018.py tests votes made type by type.
    "CapNet EM": network_of_li(
        "CapNet",
        (4, 5, 3),
        "class_capsules/beta",
        routing="em",
        dim=3,
        iterations=1,
        grid=(1, 1),
        votes_memory="store",
    ),
    "EncapNet": network_of_li("EncapNet", (7, 6, 3), types=5, layers=(2,)),
    "EncapNet strided": network_of_li(
        "EncapNet", (8, 9, 3), types=3, layers=(1,), coefficients="crossed", skips=("layer",), stem="strided"
    ),
    "ShortEncapNet": network_of_li("ShortEncapNet", (5, 6, 2), dim=3),
    "SameShapeCNN": network_of_li("SameShapeCNN", (5, 6, 2)),
    "SameSizeCNN": network_of_li("SameSizeCNN", (4, 3, 2)),
    "ResNetTwin": network_of_li("ResNetTwin", (6, 7, 3), filters=(3, 4), blocks=(1, 1)),
    "AttentionCapsNet": network_of_tsai("AttentionCapsNet", (13, 14, 3), **SMALL_CHAIN),
    "AttentionCapsNet sigmoid, activations": network_of_tsai(
        "AttentionCapsNet",
        (13, 14, 3),
        probabilities="sigmoid",
        activations=True,
        iterations=1,
        **SMALL_CHAIN,
    ),
    "ConvDynamicCapsNet": network_of_tsai(
        "ConvDynamicCapsNet", (13, 14, 1), filters=5, types=3, pose=4, convolutions=((4, 2, 1),), iterations=1
    ),
    "DynamicCapsNet": network_of_tsai("DynamicCapsNet", (17, 18, 3), filters=5, types=3, iterations=1),
    "EMCapsNet": network_of_tsai("EMCapsNet", (14, 15, 3), filters=5, types=3, capsules=(4, 6), iterations=1),
    "BaselineCNN normalized": network_of_tsai("BaselineCNN", (32, 33, 1), filters=5),
    "ResNet18": network_of_tsai("ResNet18", (9, 10, 3), filters=(5, 4, 6, 7)),
    "DiverseCNN": network_of_tsai("DiverseCNN", (13, 14, 1), filters=5, hidden=6),
    "DiverseCNN learned pooling": network_of_tsai("DiverseCNN", (13, 14, 1), filters=5, hidden=6, pooling="learned"),
    "MeanPooling": Case(MeanPooling, {"layers": 3, "width": 7, "classes": 4}, TEXT, "float32"),
}
