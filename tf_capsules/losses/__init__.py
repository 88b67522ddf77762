"""The losses that Keras lacks. As in Keras, a call returns by default a scalar, the mean over the batch."""

from tf_capsules.losses.crossentropy import SoftmaxCrossentropy
from tf_capsules.losses.margin import MarginLoss
from tf_capsules.losses.paired_kl import PairedKLDivergence
from tf_capsules.losses.reconstruction import ReconstructionLoss
from tf_capsules.losses.sinkhorn import SinkhornDivergence, sinkhorn, transport_cost
from tf_capsules.losses.spread import SpreadLoss, SpreadMargin

__all__ = [
    "MarginLoss",
    "PairedKLDivergence",
    "ReconstructionLoss",
    "SinkhornDivergence",
    "SoftmaxCrossentropy",
    "SpreadLoss",
    "SpreadMargin",
    "sinkhorn",
    "transport_cost",
]
