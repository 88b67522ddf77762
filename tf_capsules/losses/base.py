"""The base of the losses, and the check of those that compare features."""

import keras

from tf_capsules.layers.configured import arguments_of
from tf_capsules.layers.connections import alike
from tf_capsules.routing.precision import at_least_float32, precise


class Loss(keras.losses.Loss):
    """A loss that is computed in at least float32: in bfloat16 the numbers of classes from 257 on would be rounded."""

    @property
    def dtype(self):
        return precise(super().dtype)

    def get_config(self):
        """The constructor's arguments but the dtype, as far as the loss holds them as attributes of their names."""
        names = [name for name in arguments_of(type(self), Loss) if name != "dtype" and hasattr(self, name)]
        return {name: getattr(self, name) for name in names}


def two_features(loss, y_true, y_pred):
    """Two arrays (batch, features) in at least float32."""
    y_true, y_pred = at_least_float32(y_true), at_least_float32(y_pred)
    shapes = tuple(y_true.shape), tuple(y_pred.shape)
    if len(shapes[0]) != 2 or not alike(*shapes):
        received = f"Received targets of shape {shapes[0]} and predictions of shape {shapes[1]}."
        raise ValueError(f"{type(loss).__name__} takes two arrays (batch, features) of one shape. {received}")
    return y_true, y_pred
