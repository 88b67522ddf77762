"""Gradients as optimizers need them."""

from keras import ops


def dense(gradient, variable):
    """The gradient in the variable's shape and dtype.

    TensorFlow's gradient of an embedding has a row for each use of a row. The uses of one row are summed here: an
    optimizer that squared each of them would get another number than the square of the sum.
    """
    if type(gradient).__name__ == "IndexedSlices":
        gradient = ops.add(gradient, ops.zeros_like(variable))
    return ops.cast(gradient, variable.dtype)
