"""Layers whose files say which layers within are frozen or quantized. Keras saves this of layers of a model only."""

import keras


class KeepsInnerStates(keras.layers.Layer):
    """A layer that saves and loads the states of the layers within, if one of them has a state of its own."""

    def get_build_config(self):
        config = super().get_build_config()
        within = self._flatten_layers(include_self=False)
        if all(one.trainable == self.trainable and one.dtype_policy.quantization_mode is None for one in within):
            return config
        return {**(config or {}), "within": _states(self)}

    def build_from_config(self, config):
        config = dict(config or {})
        states = config.pop("within", [])
        _quantize(self, states)  # first: a quantized layer builds other weights
        super().build_from_config(config)
        _freeze(self, states)  # last: there may be layers that `build` makes


def _states(layer):
    """Of each layer within: whether it learns, its dtype policy, and the states within it."""
    return [[one.trainable, keras.dtype_policies.serialize(one.dtype_policy), _states(one)] for one in layer._layers]


def _quantize(layer, states):
    for one, (_, policy, within) in zip(layer._layers, states, strict=False):
        policy = keras.dtype_policies.get(policy)
        if policy.quantization_mode is not None:
            one.dtype_policy = policy
        _quantize(one, within)


def _freeze(layer, states):
    for one, (trainable, _, within) in zip(layer._layers, states, strict=False):
        one.trainable = trainable
        _freeze(one, within)
