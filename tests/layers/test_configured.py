"""Weights of layers within have the initializers, regularizers and constraints that the constructor got."""

import keras
import numpy as np
import pytest
from backend import array

from tf_capsules.layers import Decoder, SequenceCapsules, UpsamplingDecoder

POSES = np.ones((2, 3, 5), "float32")
CASES = {
    "decoder": (Decoder, dict(image_shape=(4, 5, 1), units=(6, 7)), POSES, 6),
    "upsampling_decoder": (UpsamplingDecoder, {}, POSES, 10),
    "sequence": (SequenceCapsules, dict(dim=6), np.ones((2, 3, 4, 5), "float32"), 2),
}


@pytest.mark.parametrize("kind", CASES)
def test_weights_within_have_regularizers_and_constraints(kind):
    make, arguments, inputs, count = CASES[kind]
    kinds = {"initializer": "ones", "regularizer": "l2", "constraint": "non_neg"}
    options = {f"{name}_{kind}": value for name in ("kernel", "bias") for kind, value in kinds.items()}
    layer = make(**arguments, **options)
    layer(inputs)
    constrained = [weight for weight in layer.weights if weight.constraint is not None]
    assert len(constrained) == count and len(layer.losses) == count
    assert all((array(weight) == 1).all() for weight in constrained)
    again = type(layer).from_config(layer.get_config())
    assert isinstance(again.kernel_regularizer, keras.regularizers.L2) and again.get_config() == layer.get_config()


def test_each_hidden_layer_draws_its_own_weights():
    layer = UpsamplingDecoder()
    layer(POSES)
    second, third = (array(convolution.kernel) for convolution in layer.convolutions[1:])
    assert not np.array_equal(second[..., :64, :], third[..., :64, :])
