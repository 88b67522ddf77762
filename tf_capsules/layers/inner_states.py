"""Layers that save which layers within them are frozen or quantized. Keras saves this of a model's own layers only."""

import keras


class KeepsInnerStates(keras.layers.Layer):
    """A layer that saves and loads the states of the layers within, if one of them is frozen or quantized."""

    def get_build_config(self):
        config = super().get_build_config()
        if config is None or all(one.trainable and one.quantization_mode is None for one in self._flatten_layers()):
            return config
        return {**config, "within": _states(self)}

    def build_from_config(self, config):
        config = dict(config or {})
        states = config.pop("within", [])
        super().build_from_config(config)
        _restore(self, states)


def _within(layer):
    """The layers directly within a layer, except input layers: a model makes these only when it is built."""
    return [one for one in layer._layers if not isinstance(one, keras.layers.InputLayer)]


def _states(layer):
    """[whether it learns, how it is quantized or None, the states within it] of each layer within."""
    return [[one.trainable, _quantization(one), _states(one)] for one in _within(layer)]


def _quantization(layer):
    if layer.quantization_mode is None:
        return None
    config = getattr(layer, "quantization_config", None)  # Keras has it from 3.13 on
    return [keras.dtype_policies.serialize(layer.dtype_policy), keras.saving.serialize_keras_object(config)]


def _restore(layer, states):
    for one, (trainable, quantization, within) in zip(_within(layer), states, strict=False):
        if quantization is not None and one.quantization_mode is None:
            policy, config = map(keras.saving.deserialize_keras_object, quantization)
            if config is None:
                one.dtype_policy = policy  # quantizes a layer that is built
            else:
                one.quantize(config=config)
        if one.trainable != trainable:  # setting it again would thaw weights that `build` froze
            one.trainable = trainable
        _restore(one, within)
