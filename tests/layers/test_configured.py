"""Weights of layers within have the initializers, regularizers and constraints that the constructor got."""

import json

import keras
import numpy as np
import pytest
from backend import array

from tf_capsules.layers import (
    Decoder,
    DynamicRouting,
    HeinsenRouting,
    InvertedAttentionRouting,
    SequenceCapsules,
    UpsamplingDecoder,
)

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


@keras.saving.register_keras_serializable("tests")
class Gated(Decoder):
    def __init__(self, image_shape, gate_initializer="ones", **kwargs):
        super().__init__(image_shape, **kwargs)
        self.gate_initializer = gate_initializer


def test_a_subclass_may_have_initializers_of_its_own():
    layer = Gated((4, 5, 1), units=(6,), kernel_initializer="zeros")
    assert (array(layer(POSES)) == 0.5).all() and layer.get_config()["gate_initializer"] == "ones"


class OfOneSize(DynamicRouting):
    """Keeps its argument under another name, and gives it back itself."""

    def __init__(self, size, **kwargs):
        super().__init__(2 * size, 4, **kwargs)
        self.half = size

    def get_config(self):
        config = super().get_config() | {"size": self.half}
        return {name: value for name, value in config.items() if name not in ("capsules", "dim")}


def test_a_subclass_may_keep_its_arguments_under_other_names():
    again = OfOneSize.from_config(OfOneSize(3, iterations=1).get_config())
    assert (again.half, again.capsules, again.iterations) == (3, 6, 1)


def test_each_hidden_layer_draws_its_own_weights():
    layer = UpsamplingDecoder()
    layer(POSES)
    second, third = (array(convolution.kernel) for convolution in layer.convolutions[1:])
    assert not np.array_equal(second[..., :64, :], third[..., :64, :])


def test_configurations_hold_plain_numbers():
    numbers = np.int64(3), np.int32(4)
    for layer in (
        HeinsenRouting(*numbers, epsilon=np.float32(0.5)),
        InvertedAttentionRouting(*numbers, dropout=np.float32(0.5)),
    ):
        config = json.loads(json.dumps(layer.get_config()))
        assert (config["capsules"], config["dim"], config.get("epsilon", config.get("dropout"))) == (3, 4, 0.5)
