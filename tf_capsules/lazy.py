"""TensorFlow, its companions and other backends, imported at their first use: each backend does without the others."""

import importlib


class LazyModule:
    """Stands for a module, which is imported when a name in it is first used."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, name):
        if name.startswith("__"):  # asked by tools that look at all names of a module, as doctest does
            raise AttributeError(name)
        return getattr(importlib.import_module(self._name), name)


jax = LazyModule("jax")
multihost_utils = LazyModule("jax.experimental.multihost_utils")
tensorflow_text = LazyModule("tensorflow_text")
tf = LazyModule("tensorflow")
tfds = LazyModule("tensorflow_datasets")
tnp = LazyModule("tensorflow.experimental.numpy")
torch = LazyModule("torch")
