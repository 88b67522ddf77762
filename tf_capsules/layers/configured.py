"""Layers whose configuration is their constructor's arguments."""

import inspect

import keras

from tf_capsules.layers.arguments import plain_numbers
from tf_capsules.layers.inner_states import KeepsInnerStates

# Keras's modules that read and serialize an argument, by the last word of its name, such as `kernel_initializer`.
# An activation may also be a string, the layer's own name for one.
_KINDS = {kind: getattr(keras, f"{kind}s") for kind in ("initializer", "regularizer", "constraint", "activation")}


def cloned(initializer):
    """A clone: two weights then start differently, unless it has a seed. Functions and None are returned unchanged."""
    return initializer.clone() if hasattr(initializer, "clone") else initializer


class Configured(KeepsInnerStates):
    """A layer that holds each argument of its constructor as the attribute of that name."""

    older_names: dict[str, str] = {}  # names of arguments in files of earlier versions, mapped to today's
    older_values: dict[str, dict[str, str]] = {}  # {argument: its values there, mapped to today's}

    @property
    def _inner(self):
        """Options that layers within inherit. Keras does not freeze those that are made after `trainable` was set."""
        return {"dtype": self.dtype_policy, "trainable": self.trainable}

    def _set_weight_options(self, arguments, **defaults):
        """Sets the initializers, regularizers, ... among the arguments; `defaults`: initializers that replace None."""
        for name, value in arguments.items():
            weight, _, kind = name.rpartition("_")
            if kind in _KINDS and weight:
                value = defaults.get(weight) if value is None and kind == "initializer" else value
                setattr(self, name, None if value is None else _KINDS[kind].get(value))

    def _weight_options(self, clone=False):
        """What the constructor got for kernel and bias of a layer within, by name; `clone`: see `cloned`."""
        kinds = ("initializer", "regularizer", "constraint")
        names = [f"{weight}_{kind}" for weight in ("kernel", "bias") for kind in kinds]
        return {name: cloned(getattr(self, name)) if clone else getattr(self, name) for name in names}

    def _add(self, name, shape, initializer=None, options=None, **kwargs):
        """Adds a weight, with the constructor's arguments that begin with `options`, or else with `name`."""
        given = options or name
        return self.add_weight(
            shape,
            initializer or getattr(self, f"{given}_initializer"),
            name=name,
            regularizer=getattr(self, f"{given}_regularizer", None),
            constraint=getattr(self, f"{given}_constraint", None),
            **kwargs,
        )

    def get_config(self):
        """The constructor's arguments, and those of the layers that it inherits from."""
        config = super().get_config()
        for name in arguments_of(type(self), Configured):
            if not hasattr(self, name):  # a subclass keeps it under another name, and adds it
                continue
            kind, value = name.rpartition("_")[2], getattr(self, name)
            plain = kind not in _KINDS or value is None or isinstance(value, str)
            config[name] = plain_numbers(value) if plain else _KINDS[kind].serialize(value)
        return config

    @classmethod
    def from_config(cls, config):
        for one in cls.__mro__:
            own, names = arguments_of(cls, Configured), vars(one).get("older_names", {})
            names = {old: new for old, new in names.items() if old not in own}
            config = {names.get(name, name): value for name, value in config.items()}
        for name, values in cls.older_values.items():
            if isinstance(config.get(name), str):
                config[name] = values.get(config[name], config[name])
        return super().from_config(config)


def arguments_of(cls, base):
    """Names of the arguments that a constructor takes by name, those of the classes between it and `base` included."""
    makers = [one.__init__ for one in cls.__mro__ if issubclass(one, base) and "__init__" in vars(one)]
    parameters = [parameter for maker in makers for parameter in inspect.signature(maker).parameters.values()]
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return dict.fromkeys(one.name for one in parameters if one.kind in by_name and one.name != "self")
