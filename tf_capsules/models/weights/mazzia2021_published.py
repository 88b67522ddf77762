"""Loads the weights that Mazzia et al. published with their code, by the names in their file.

EscVM/Efficient-CapsNet holds `efficient_capsnet_SMALLNORB.h5`: Keras 2.4 weights of the network and its decoder.
"""

import contextlib
import os

import h5py
import keras
import numpy as np

from tf_capsules.files import reading


def is_author_file(path: str | os.PathLike):
    """Whether a file is one of Keras 2 with the authors' parts."""
    with contextlib.suppress(OSError), h5py.File(path) as file:
        return "CapsNet" in file and "layer_names" in file.attrs
    return False  # whoever loads a damaged file, or one that is not HDF5, reports it


def load_author_weights(model: keras.Model, path: str | os.PathLike):
    """The model with the authors' weights; ValueErrors name arrays that are missing, of another shape or not finite."""
    values = []
    with reading(path, f"does not hold weights of the network {model.name!r}"), h5py.File(path) as file:
        # The file names its weights in the order of ours: those of the network, then those of its decoder.
        listed = {part: file[part].attrs["weight_names"].astype(str) for part in ("CapsNet", "Generator")}
        names = [f"{part}/{name}" for part in listed for name in listed[part]]
        if len(model.weights) not in (len(listed["CapsNet"]), len(names)):
            raise ValueError(f"{path} has weights of the network of smallNORB and its decoder, not of {model.name!r}.")
        for name, weight in zip(names, model.weights, strict=False):
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
