"""Weights that the papers' authors published, by the names of their own code.

Heinsen 2019: the author's repository holds three PyTorch checkpoints, of smallNORB, SST-5/R and SST-2/R. An .npz of
named arrays is made of one by

    import numpy, torch
    state = torch.load("FILE.pt", map_location="cpu")
    numpy.savez("author.npz", **{name: value.numpy() for name, value in state.items()})

and read by `ImageCapsNet(weights="author.npz")`, or for the texts, whose published weights are of the code's later
order, by `TextCapsNet(classes=5, norm="post", weights="author.npz")`.
"""

import os
import re

import keras
import numpy as np

from tf_capsules.files import read_npz

_PART = {"kernel": "weight", "bias": "bias"}
_NORM = {"gamma": "weight", "beta": "bias", "moving_mean": "running_mean", "moving_variance": "running_var"}
_ROUTING = {"kernel": "W", "bias": "B", "beta_use": "beta_use", "beta_ignore": "beta_ign"}
# Our path of a weight, the author's name, and how his array becomes ours.
_RULES = (
    (r"norm_(\d)/(\w+)", lambda i, part: f"convolve.{3 * (int(i) - 1)}.{_NORM[part]}"),
    (r"convolution_(\d)/(\w+)", lambda i, part: f"convolve.{3 * (int(i) - 1) + 1}.{_PART[part]}"),
    (r"norm_scores/(\w+)", lambda part: f"compute_a.0.{_NORM[part]}"),
    (r"scores/(\w+)", lambda part: f"compute_a.1.{_PART[part]}"),
    (r"norm_poses/(\w+)", lambda part: f"compute_mu.0.{_NORM[part]}"),
    (r"poses/poses/(\w+)", lambda part: f"compute_mu.1.{_PART[part]}"),
    (r"capsules/depth", lambda: "depth_emb"),
    (r"capsules/dense/(\w+)", lambda part: f"detect_parts.0.{_PART[part]}"),
    (r"capsules/norm/(\w+)", lambda part: f"detect_parts.2.{_NORM[part]}"),
    (r"parts/(\w+)", lambda part: f"routings.0.{_ROUTING[part]}"),
    (r"classes/(\w+)", lambda part: f"routings.1.{_ROUTING[part]}"),
)


def author_name(path: str):
    """The author's name for the weight of this path in `ImageCapsNet` or `TextCapsNet`.

    >>> author_name("convolution_2/kernel")
    'convolve.4.weight'
    """
    for pattern, name in _RULES:
        if match := re.fullmatch(pattern, path):
            return name(*match.groups())
    raise ValueError(f"The weight {path!r} has no counterpart in the author's code.")


def load_author_weights(model: keras.Model, path: str | os.PathLike):
    """The model, with the weights of an .npz of the author's arrays.

    Names may carry the prefix `weight/`; arrays that the model has no place for are left out.

    Raises:
        ValueError: a damaged file, or an array that is missing, of another shape or not finite; the message names it.
    """
    arrays = {name.removeprefix("weight/"): array for name, array in read_npz(path).items()}
    values = []
    for weight in model.weights:
        name = author_name(weight.path.split("/", 1)[1] if weight.path.startswith("encoder/") else weight.path)
        if name not in arrays:
            raise ValueError(f"{path} has no array {name!r}, which {model.name!r} needs for {weight.path}.")
        value = arrays[name]
        if not name.startswith("routings"):
            value = value.transpose(2, 3, 1, 0) if value.ndim == 4 else value.T if "dense" in weight.path else value
        if value.shape != tuple(weight.shape):
            raise ValueError(f"{path}: {name!r} has shape {value.shape}, {weight.path} has {tuple(weight.shape)}.")
        if value.dtype.kind != "f" or not np.isfinite(value).all():
            raise ValueError(f"{path}: {name!r} of {value.dtype} has values that are no finite real numbers.")
        values.append(value)
    for weight, value in zip(model.weights, values, strict=True):
        weight.assign(value)
    return model
