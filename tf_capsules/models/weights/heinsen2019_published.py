"""Loads the weights that Heinsen published, by the names in his files.

Three state dicts of PyTorch beside the author's code, `smallNORB_pretrained_model_state_dict.pt`,
`SST5R_...` and `SST2R_...`. PyTorch is not needed. `ImageCapsNet(weights=FILE)` reads the first. The text weights
follow the code's later order: `TextCapsNet(classes=5, norm="post", weights=FILE)`, or with `classes=2`, reads them.
A NumPy archive (`.npz`) of the same arrays will do; their names may begin with `weight/`.
"""

import hashlib
import os
import pathlib
import warnings

import keras
import numpy as np

from tf_capsules.files import read_npz
from tf_capsules.models.weights.pytorch_file import read_state_dict

# The SHA-256 of the arrays that the networks take from each published file, as `checksum` makes it.
PUBLISHED = {
    "smallNORB": "ee40536bcec7d907bad30840f00ca23ac241163eef264acb6db0f68d4b018264",
    "SST5R": "a7cd1797dc3f0a9097782f39c38fca024af6d2fe6bd08181c8f137b722f939f8",
    "SST2R": "072fa59d8180af4251c513ef074ddff12cdb5e80daebdd4a2859a31e59e33db2",
}
# Our names of layers and of their weights, and the author's.
_LAYERS = {
    **{f"norm_{block + 1}": f"convolve.{3 * block}" for block in range(6)},
    **{f"convolution_{block + 1}": f"convolve.{3 * block + 1}" for block in range(6)},
    "norm_scores": "compute_a.0",
    "scores": "compute_a.1",
    "norm_poses": "compute_mu.0",
    "poses/poses": "compute_mu.1",
    "capsules/dense": "detect_parts.0",
    "capsules/norm": "detect_parts.2",
    "parts": "routings.0",
    "classes": "routings.1",
}
_WEIGHTS = {"kernel": "weight", "bias": "bias"}
_WEIGHTS |= {"gamma": "weight", "beta": "bias", "moving_mean": "running_mean", "moving_variance": "running_var"}
_ROUTING = {"kernel": "W", "bias": "B", "beta_use": "beta_use", "beta_ignore": "beta_ign"}


def author_name(path: str):
    """The author's name for the weight of this path in `ImageCapsNet` or `TextCapsNet`."""
    if path == "capsules/depth":
        return "depth_emb"
    layer, _, weight = path.rpartition("/")
    weights = _ROUTING if layer in ("parts", "classes") else _WEIGHTS
    if layer not in _LAYERS or weight not in weights:
        raise ValueError(f"The weight {path!r} has no counterpart in the author's code.")
    return f"{_LAYERS[layer]}.{weights[weight]}"


def load_author_weights(model: keras.Model, path: str | os.PathLike):
    """The model, with the weights of a state dict of the author's code, or of its arrays in a `.npz` archive.

    Arrays that the model does not have are skipped. If the SHA-256 of the others is none of those in `PUBLISHED`, they
    are loaded with a warning. A ValueError names an array that is missing, of another shape or not finite.
    """
    archive = pathlib.Path(path).suffix == ".npz"
    arrays = {name.removeprefix("weight/"): x for name, x in (read_npz if archive else read_state_dict)(path).items()}
    taken, values = {}, []
    for weight in model.weights:
        name = author_name(weight.path.split("/", 1)[1] if weight.path.startswith("encoder/") else weight.path)
        if name not in arrays:
            raise ValueError(f"{path} has no array {name!r}, which {model.name!r} needs for {weight.path}.")
        value = taken[name] = arrays[name]
        if not name.startswith("routings"):
            value = value.transpose(2, 3, 1, 0) if value.ndim == 4 else value.T if "dense" in weight.path else value
        if value.shape != tuple(weight.shape):
            raise ValueError(f"{path}: {name!r} has shape {value.shape}, {weight.path} has {tuple(weight.shape)}.")
        if value.dtype.kind != "f" or not np.isfinite(value).all():
            raise ValueError(f"{path}: {name!r} of {value.dtype} has values that are no finite real numbers.")
        values.append(value)
    if (digest := checksum(taken)) not in PUBLISHED.values():
        warnings.warn(
            f"The arrays in {path} have the author's names, but differ from all that he published "
            f"({', '.join(PUBLISHED)}): their SHA-256 is {digest}.",
            stacklevel=2,
        )
    model.set_weights(values)
    return model


def checksum(arrays: dict[str, np.ndarray]) -> str:
    """The SHA-256 of the names, shapes and float32 numbers of arrays, which does not depend on the form of the file."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.shape}".encode() + np.ascontiguousarray(array, "<f4").tobytes())
    return digest.hexdigest()
