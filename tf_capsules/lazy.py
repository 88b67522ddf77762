"""TensorFlow and its companions, imported at their first use, so that other Keras backends do without them."""

import importlib


class LazyModule:
    """Stands for a module, which is imported when a name in it is first used."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, name):
        if name.startswith("__"):  # asked by tools that look at all names of a module, as doctest does
            raise AttributeError(name)
        return getattr(importlib.import_module(self._name), name)


tensorflow_text = LazyModule("tensorflow_text")
tf = LazyModule("tensorflow")
tfds = LazyModule("tensorflow_datasets")
tnp = LazyModule("tensorflow.experimental.numpy")
