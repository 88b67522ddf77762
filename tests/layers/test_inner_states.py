import keras
import numpy as np
import pytest
from backend import array

from tf_capsules.layers import (
    ConcurrentRouting,
    Decoder,
    InvertedAttentionRouting,
    PrimaryCapsules,
    SequenceCapsules,
    UpsamplingDecoder,
)
from tf_capsules.layers.inner_states import KeepsInnerStates
from tf_capsules.models import FeedbackAgreement

POSES = np.random.default_rng(0).normal(size=(2, 3, 5)).astype("float32")
pytestmark = pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")


@keras.saving.register_keras_serializable("tests")
class Own(KeepsInnerStates):
    """A layer with a model within, which has an input layer once it is built, and with a layer that `build` makes."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.before = keras.Sequential([keras.layers.Dense(4, "relu"), keras.layers.Dense(3)])

    def build(self, input_shape):
        self.before.build(input_shape)
        self.after = keras.layers.Dense(2)
        self.after.build((None, 3))
        super().build(input_shape)

    def call(self, x):
        return self.after(self.before(x))


@keras.saving.register_keras_serializable("tests")
class HalfFrozen(Own):
    def build(self, input_shape):
        super().build(input_shape)
        self.after.kernel.trainable = False


LAYERS = {
    "decoder": (lambda: Decoder((4, 5, 1), units=(6, 7)), POSES, 3),
    "upsampling decoder": (UpsamplingDecoder, POSES, 1),
    "sequence": (lambda: SequenceCapsules(dim=6), POSES[..., None], 1),
    "own": (Own, POSES[:, 0], 3),
}


def within(layer):
    return list(layer._flatten_layers(include_self=False))


def saved(layer, inputs, path, quantize=None):
    """The layer as loaded from a file, after checking that it computes the same."""
    given = keras.Input(inputs.shape[1:])
    model = keras.Model(given, layer(given))
    if quantize is not None:
        model.quantize(**quantize)
        within(layer)[-1].trainable = False
    model.save(path)
    loaded = keras.saving.load_model(path)
    for one, other in zip(*(keras.tree.flatten(each(inputs)) for each in (loaded, model)), strict=True):
        np.testing.assert_array_equal(array(one), array(other))
    return loaded.layers[-1]


@pytest.mark.parametrize("name", LAYERS)
def test_layers_within_stay_frozen_and_quantized_in_a_file(name, tmp_path):
    make, inputs, dense = LAYERS[name]
    layer = make()
    loaded = saved(layer, inputs, tmp_path / "model.keras", dict(mode="int8"))
    states = [[(one.trainable, one.dtype_policy.name) for one in within(each)] for each in (loaded, layer)]
    assert states[0] == states[1]
    assert [policy for _, policy in states[0]].count("int8_from_float32") == dense
    assert not within(loaded)[-1].trainable and within(loaded)[0].trainable


@pytest.mark.skipif(not hasattr(keras.quantizers, "Int8QuantizationConfig"), reason="Keras has it from 3.13 on")
@pytest.mark.parametrize("name", ["decoder", "own"])
def test_how_a_layer_within_is_quantized_is_kept(name, tmp_path):
    make, inputs, _ = LAYERS[name]
    chosen = keras.quantizers.Int8QuantizationConfig(activation_quantizer=None)
    loaded = saved(make(), inputs, tmp_path / "model.keras", dict(config=chosen))
    dense = [one for one in within(loaded) if isinstance(one, keras.layers.Dense)]
    assert dense and all(one.quantization_config.activation_quantizer is None for one in dense)


def test_a_layer_within_a_layer_of_a_chain_stays_frozen_in_a_file(tmp_path):
    chain = [InvertedAttentionRouting(3, 4), InvertedAttentionRouting(2, 4)]
    layer = ConcurrentRouting(chain)
    layer.build((None, 5, 4, 4))
    chain[0].normalization.trainable = False
    loaded = saved(layer, np.ones((2, 5, 4, 4), "float32"), tmp_path / "model.keras")
    assert [one.normalization.trainable for one in loaded.chain] == [False, True]
    assert len(loaded.trainable_variables) == len(layer.trainable_variables) == len(layer.variables) - 2


def test_a_critic_stays_frozen():
    unit = FeedbackAgreement(groups=1, squash=False)
    unit.build((None, 4, 4, 6), (None, 4, 4, 6))
    unit.critic.trainable = False
    loaded = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(unit))
    assert len(loaded.trainable_variables) == len(unit.trainable_variables) < len(unit.variables) - 2


def test_a_layer_that_is_not_built_is_built_after_loading():
    layer = UpsamplingDecoder()
    layer.last.trainable = False
    loaded = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert not loaded.built and loaded(POSES).shape == (2, 48, 48, 2)


def test_a_layer_that_is_frozen_as_a_whole_stays_so(tmp_path):
    layer = Own()
    layer(POSES[:, 0])
    layer.trainable = False
    assert not any(one.trainable for one in within(saved(layer, POSES[:, 0], tmp_path / "model.keras")))


def test_weights_that_build_froze_stay_frozen(tmp_path):
    layer = HalfFrozen()
    layer(POSES[:, 0])
    layer.before.trainable = False
    loaded = saved(layer, POSES[:, 0], tmp_path / "model.keras")
    assert [weight.name for weight in loaded.trainable_weights] == ["bias"]


def test_a_layer_of_which_nothing_is_frozen_is_saved_as_before():
    layer = PrimaryCapsules(types=2, pose=4, kernel_size=3)
    layer.build((None, 5, 5, 3))
    assert layer.get_build_config() == {"input_shape": (None, 5, 5, 3)}
