"""Loads the weights that Mazzia et al. published with their code, by the names in their file.

The repository EscVM/Efficient-CapsNet holds `efficient_capsnet_SMALLNORB.h5`: Keras 2.4 weights of the network and its
decoder.
"""

import contextlib
import os

import h5py
import keras
import numpy as np

from tf_capsules.files import reading

# The parts of the file, in the order of our weights. Keras 2 numbered its layers consecutively.
_ENCODER = [
    f"CapsNet/{name}:0"
    for index, normalization in enumerate(("", "_1", "_2", "_3"), start=4)
    for name in (
        f"conv2d_{index}/kernel",
        f"conv2d_{index}/bias",
        f"instance_normalization{normalization}/gamma",
        f"instance_normalization{normalization}/beta",
    )
] + [f"CapsNet/{name}:0" for name in ("conv2d_8/kernel", "conv2d_8/bias", "digit_caps/W", "digit_caps/b")]
_LAYERS = ("dense", "conv2d", "conv2d_1", "conv2d_2", "conv2d_3")
_DECODER = [f"Generator/{layer}/{part}:0" for layer in _LAYERS for part in ("kernel", "bias")]


def is_author_file(path: str | os.PathLike):
    """Whether a file is one of Keras 2 with the authors' parts."""
    with contextlib.suppress(OSError), h5py.File(path) as file:
        return "CapsNet" in file and "layer_names" in file.attrs
    return False  # whoever loads a damaged file, or one that is not HDF5, reports it


def load_author_weights(model: keras.Model, path: str | os.PathLike):
    """The model with the authors' weights; ValueErrors name arrays that are missing, of another shape or not finite."""
    if len(model.weights) not in (len(_ENCODER), len(_ENCODER) + len(_DECODER)):
        raise ValueError(f"{path} holds weights of the network of smallNORB and its decoder, not of {model.name!r}.")
    values = []
    with reading(path, f"does not hold weights of the network {model.name!r}"), h5py.File(path) as file:
        for name, weight in zip(_ENCODER + _DECODER, model.weights, strict=False):
            value = file[name][()]
            if name.endswith("digit_caps/W:0"):  # (parents, children, d, D)
                value = value.transpose(1, 0, 2, 3)
            elif name.endswith("digit_caps/b:0"):  # (parents, children, 1)
                value = value[..., 0].T
            if value.shape != tuple(weight.shape):
                raise ValueError(f"{name} has shape {value.shape}, {weight.path} has {tuple(weight.shape)}")
            if not np.isfinite(value).all():
                raise ValueError(f"{name} has values that are not finite")
            values.append(value)
    model.set_weights(values)
    return model
