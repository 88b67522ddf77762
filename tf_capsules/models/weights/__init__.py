"""Weights that come with the package, each `NAME.weights.h5` with a card `NAME.md`: data, recipe, command, figure."""

import pathlib
import warnings

FOLDER = pathlib.Path(__file__).parent


def names():
    """Names of the shipped sets."""
    return sorted(path.name.removesuffix(".weights.h5") for path in FOLDER.glob("*.weights.h5"))


def find(weights):
    """The path of a weights file, given by its path or as the name of a shipped set.

    Raises:
        ValueError: there is neither.
    """
    path = FOLDER / f"{weights}.weights.h5" if str(weights) in names() else pathlib.Path(weights)
    if not path.is_file():
        shipped = ", ".join(names())
        raise ValueError(f"`weights`: no such file, nor a shipped set ({shipped}). Received: {str(weights)!r}")
    return path


def load_weights(model, weights):
    """The model, with the weights of a file, an author's arrays (.npz) or a shipped set; as it is for None.

    Raises:
        ValueError: neither a file nor a shipped set, or weights of another network.
    """
    if weights is None:
        return model
    path = find(weights)
    if path.suffix == ".npz":
        from tf_capsules.models.published import load_author_weights

        return load_author_weights(model, path)
    try:
        with warnings.catch_warnings():
            # Keras only warns of parts that the file lacks, and leaves them as drawn.
            warnings.filterwarnings("error", "Skipping nested container", UserWarning)
            model.load_weights(path)
    except (ValueError, KeyError, OSError, UserWarning) as error:
        raise ValueError(f"{path} does not hold weights of the network {model.name!r}: {error}") from error
    return model
