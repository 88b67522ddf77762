"""Checks of constructor arguments and input shapes, with errors that name what was received."""


def positive_int(name, value):
    """The value, if it is a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"`{name}` must be a whole number of at least 1. Received: {value!r}")
    return value


def one_of(name, value, choices):
    """The value, if it is one of the choices."""
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {', '.join(repr(c) for c in choices)}. Received: {value!r}")
    return value


def known_axes(layer, shape, axes):
    """Raises a ValueError unless the named axes of an input shape have a known size."""
    for axis, meaning in axes.items():
        if shape[axis] is None:
            raise ValueError(
                f"{type(layer).__name__} needs to know the {meaning} when it is built. Received input shape {shape}."
            )
