"""Keras layers. Those that route own the weights, make the votes and call one routing function."""

from tf_capsules.layers.batch_normalization import BatchNormalization
from tf_capsules.layers.capsules import CapsuleLength, LabelMask
from tf_capsules.layers.concurrent import ConcurrentRouting
from tf_capsules.layers.convolutional_em import ConvEMRouting
from tf_capsules.layers.coordinate_channels import CoordinateChannels
from tf_capsules.layers.decoder import Decoder
from tf_capsules.layers.depthwise_primary import DepthwisePrimaryCapsules
from tf_capsules.layers.dynamic import ConvDynamicRouting, DynamicRouting
from tf_capsules.layers.em import EMRouting
from tf_capsules.layers.encapsulation import CapConv, CapFC
from tf_capsules.layers.heinsen import HeinsenRouting
from tf_capsules.layers.inverted_attention import ConvInvertedAttentionRouting, InvertedAttentionRouting
from tf_capsules.layers.primary import PrimaryCapsules
from tf_capsules.layers.self_attention import SelfAttentionRouting
from tf_capsules.layers.sequence import SequenceCapsules
from tf_capsules.layers.upsampling_decoder import UpsamplingDecoder

__all__ = [
    "BatchNormalization",
    "CapConv",
    "CapFC",
    "CapsuleLength",
    "ConcurrentRouting",
    "ConvDynamicRouting",
    "ConvEMRouting",
    "ConvInvertedAttentionRouting",
    "CoordinateChannels",
    "Decoder",
    "DepthwisePrimaryCapsules",
    "DynamicRouting",
    "EMRouting",
    "HeinsenRouting",
    "InvertedAttentionRouting",
    "LabelMask",
    "PrimaryCapsules",
    "SelfAttentionRouting",
    "SequenceCapsules",
    "UpsamplingDecoder",
]
