"""Layers whose files say which layers within are frozen or quantized. Keras saves this of layers of a model only."""

import keras


class KeepsInnerStates(keras.layers.Layer):
    """A layer that saves and loads the states of the layers within, if one of them has a state of its own."""

    def get_build_config(self):
        config = super().get_build_config()
        within = self._flatten_layers(include_self=False)
        if config is None or all(one.trainable == self.trainable and not _is_quantized(one) for one in within):
            return config
        return {**config, "within": _states(self)}

    def build_from_config(self, config):
        config = dict(config or {})
        states = config.pop("within", [])
        _quantize(self, states)  # a layer that is not built yet will build the weights of a quantized one
        super().build_from_config(config)
        _quantize(self, states)  # the layers that `build` made
        _freeze(self, states)


def _within(layer):
    """The layers right within a layer, but the input layers, which a model makes when it is built."""
    return [one for one in layer._layers if not isinstance(one, keras.layers.InputLayer)]


def _is_quantized(layer):
    return layer.dtype_policy.quantization_mode is not None


def _states(layer):
    """Of each layer within: whether it learns, how it is quantized, or None, and the states within it."""
    return [[one.trainable, _quantization(one) if _is_quantized(one) else None, _states(one)] for one in _within(layer)]


def _quantization(layer):
    chosen = getattr(layer, "quantization_config", None)  # Keras has it from 3.13 on
    return [keras.dtype_policies.serialize(layer.dtype_policy), keras.saving.serialize_keras_object(chosen)]


def _quantize(layer, states):
    for one, (_, quantization, within) in zip(_within(layer), states, strict=False):
        if quantization is not None and not _is_quantized(one):
            policy, chosen = map(keras.saving.deserialize_keras_object, quantization)
            if chosen is not None:
                one.quantization_config = chosen
            one.dtype_policy = policy
        _quantize(one, within)


def _freeze(layer, states):
    for one, (trainable, _, within) in zip(_within(layer), states, strict=False):
        one.trainable = trainable
        _freeze(one, within)
