"""Weights that come with the package, each `NAME.weights.h5` with a card `NAME.md`: data, recipe, command, figure."""

import os
import pathlib
import re
import warnings

import keras

from tf_capsules.argument_types import Weights
from tf_capsules.models.weights import heinsen2019_published, mazzia2021_published
from tf_capsules.models.weights.keras_file import fill, seal

__all__ = ["find", "load_weights", "names", "seal"]

FOLDER = pathlib.Path(__file__).parent


def names():
    """Names of the shipped sets."""
    return sorted(path.name.removesuffix(".weights.h5") for path in FOLDER.glob("*.weights.h5"))


def find(weights: str | os.PathLike):
    """The path of a weights file, given by its path or as the name of a shipped set; a ValueError for neither."""
    if str(weights) in names():
        return FOLDER / f"{weights}.weights.h5"
    if isinstance(weights, (str, os.PathLike)) and pathlib.Path(weights).is_file():
        return pathlib.Path(weights)
    raise ValueError(f"`weights`: no such file, nor a shipped set ({', '.join(names())}). Received: {weights!r}")


def load_weights(model: keras.Model, weights: Weights):
    """The model, with the weights of a file (ours or an author's) or of a shipped set; unchanged for None.

    A shipped set that was trained with another number of routing iterations is loaded with a `UserWarning`.

    Raises:
        ValueError: neither a file nor a shipped set, or a damaged file or one of another network.
    """
    if weights is None:
        return model
    path = find(weights)
    if path.suffix in (".pt", ".npz"):
        return heinsen2019_published.load_author_weights(model, path)
    if mazzia2021_published.is_author_file(path):
        return mazzia2021_published.load_author_weights(model, path)
    if str(weights) in names():
        _warn_of_other_iterations(model, str(weights))
    return fill(model, path)


def _warn_of_other_iterations(model, name):
    """Warns if the set's card states another number of routing iterations: the weights themselves don't show it."""
    trained = re.search(r"^- Routing iterations: (\d+)", (FOLDER / f"{name}.md").read_text(encoding="utf-8"), re.M)
    layers = getattr(model, "encoder", model).layers
    found = sorted({layer.iterations for layer in layers if hasattr(layer, "iterations")})
    if trained and any(count != int(trained[1]) for count in found):
        warnings.warn(
            f"The weights {name!r} were trained with {trained[1]} routing iterations; the network has "
            f"{', '.join(map(str, found))}. Its answers differ from those on the set's card.",
            stacklevel=5,
        )
