"""A layer's row in the table of costs."""

import keras

from tf_capsules.analysis import estimate_cost


def row_of(layer, shape, batch_size=3):
    """The row of `layer` in the cost table of an inference."""
    inputs = keras.Input(shape)
    cost = estimate_cost(keras.Model(inputs, layer(inputs)), batch_size, training=False)
    return next(row for row in cost.layers if row.name == layer.name)
