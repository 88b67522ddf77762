"""Checks of constructor arguments and input shapes, with errors that name what was received."""

import keras
import numpy as np

from tf_capsules.arguments import one_of as one_of
from tf_capsules.arguments import positive_int

# Capsules are read off the last axis, the channels, whatever `keras.config.image_data_format()` says.
CHANNELS_LAST = {"data_format": "channels_last"}


def positive_ints(name, values, of, example):
    """The values as a tuple of ints, if they are whole numbers of at least 1, one for each part of a network."""
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__") or not (values := tuple(values)):
        raise ValueError(f"`{name}` must have a number for each {of}, such as {example}. Received: {values!r}")
    return tuple(positive_int(name, value) for value in values)


def pair(name, value):
    """(rows, columns) of a number or a pair."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(values) != 2:
        raise ValueError(f"`{name}` must be a number or (rows, columns). Received: {value!r}")
    return tuple(positive_int(name, size) for size in values)


def image_sizes(image_shape):
    """(height, width, channels) of an image, as a tuple of ints."""
    if not isinstance(image_shape, (tuple, list)) or len(image_shape) != 3:
        raise ValueError(f"`image_shape` must be (height, width, channels). Received: {image_shape!r}")
    return tuple(positive_int("image_shape", size) for size in image_shape)


def truth_value(name, value):
    """The value as a bool. A word is refused: "False" would count as true."""
    if np.ndim(value) or value not in (True, False):
        raise ValueError(f"`{name}` must be true or false. Received: {value!r}")
    return bool(value)


def plain_numbers(values):
    """Numbers of NumPy, alone or in a list, as Python's: these are kept in a configuration and compute alike."""
    return keras.tree.map_structure(lambda x: x.item() if isinstance(x, np.generic) else x, values)


def takes_xla(possible):
    """The `supports_jit` of a layer: TensorFlow's XLA can't train one that routes some capsules at a time.

    Keras may ask when a network is compiled, before `build`. So the constructor says it, and `build` corrects it.
    """
    return possible or keras.backend.backend() != "tensorflow"


def positive_int_or_none(name, value):
    """None, or the value as an int; a ValueError unless it is a whole number of at least 1."""
    return None if value is None else positive_int(name, value)


def check_memory(votes_memory, children_per_chunk, needs_votes=None, sharing=None):
    """Raises a ValueError for memory options in conflict; `needs_votes`: why the layer needs stored votes, or None."""
    if votes_memory == "recompute" or children_per_chunk:
        chunks = f"children_per_chunk={children_per_chunk}"
        asked = 'votes_memory="recompute"' if votes_memory == "recompute" else chunks
        if needs_votes:
            raise ValueError(f"{asked} does not go with {needs_votes}: the votes are stored.")
        if sharing == "none":
            raise ValueError(f'{asked} needs sharing="positions" or "all". Received: sharing="none"')
    if children_per_chunk and votes_memory == "store":
        raise ValueError(f'children_per_chunk={children_per_chunk} does not go with votes_memory="store".')


def known_axes(layer, shape, axes):
    """Raises a ValueError unless the named axes of an input shape have a known size."""
    for axis, meaning in axes.items():
        if shape[axis] is None:
            raise ValueError(
                f"{type(layer).__name__} needs to know the {meaning} when it is built. Received input shape {shape}."
            )


def check_rank(layer, shape, form):
    """Raises a ValueError unless an input shape has as many axes as are named in `form`, or in one of its forms."""
    if len(shape) not in [one.count(",") + 1 for one in form.split(" or ")]:
        raise ValueError(f"{type(layer).__name__} takes {form}. Received input shape {tuple(shape)}.")


def check_feature_map(layer, shape, known=("number of channels",), kernel_size=(0, 0)):
    """Raises a ValueError unless the shape is (batch, height, width, channels), of known sizes, and a kernel fits."""
    check_rank(layer, shape, "(batch, height, width, channels)")
    axes = {1: "height", 2: "width", 3: "number of channels"}
    known_axes(layer, shape, {axis: name for axis, name in axes.items() if name in known})
    for size, needed in zip(shape[1:3], kernel_size, strict=True):
        if size is not None and size < needed:
            raise ValueError(
                f"{type(layer).__name__} with kernel {kernel_size} needs a feature map of at least that size. "
                f"Received input shape {tuple(shape)}."
            )
