"""Models saved by earlier versions load and give the same answers as then."""

import pathlib

import keras
import numpy as np
from backend import array

from tf_capsules.layers import InvertedAttentionRouting

SAVED = pathlib.Path(__file__).parent / "saved"


def test_a_model_saved_with_older_argument_names_answers_as_it_did():
    model = keras.models.load_model(SAVED / "older_arguments.keras")
    with np.load(SAVED / "older_arguments.npz") as arrays:
        expected = dict(arrays)
    outputs = keras.tree.flatten_with_path(model(expected.pop("image")))
    assert len(outputs) == len(expected)
    for path, output in outputs:
        np.testing.assert_allclose(array(output), expected["/".join(map(str, path))], rtol=1e-4, atol=1e-5)


def test_older_names_and_values_are_mapped():
    model = keras.models.load_model(SAVED / "older_arguments.keras")
    dynamic, em, heinsen = (model.get_layer(name) for name in ("dynamic", "em", "heinsen"))
    assert (dynamic.votes_memory, dynamic.parents_per_chunk) == ("recompute", 2)
    assert (em.votes_memory, em.children_per_chunk) == ("recompute", 2)
    assert (heinsen.votes_memory, heinsen.children_per_chunk) == ("recompute", 16)
    assert model.get_layer("conv_em").votes_memory == model.get_layer("heinsen_stored").votes_memory == "store"
    assert model.get_layer("attention").use_activations
    assert model.get_layer("primary").capsule_activation is keras.activations.linear
    older = {"votes", "chunk", "scores", "activations"}
    layers = [*model.layers, *model.get_layer("concurrent").chain]
    assert not [layer.name for layer in layers if older & set(layer.get_config())]


class Named(InvertedAttentionRouting):
    def __init__(self, capsules, dim, activations="relu", **kwargs):
        super().__init__(capsules, dim, **kwargs)
        self.activations = activations


def test_a_layer_of_one_s_own_may_have_an_older_name():
    assert Named.from_config(Named(3, 4, activations="tanh").get_config()).activations == "tanh"
