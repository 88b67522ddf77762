"""The base of the losses."""

import keras

from tf_capsules.layers.configured import arguments_of


class Loss(keras.losses.Loss):
    """A loss that is computed in at least float32: in bfloat16 the numbers of classes from 257 on would be rounded."""

    @property
    def dtype(self):
        return keras.backend.result_type(super().dtype, "float32")

    def get_config(self):
        """The constructor's arguments but the dtype, as far as the loss holds them as attributes of their names."""
        names = [name for name in arguments_of(type(self), Loss) if name != "dtype" and hasattr(self, name)]
        return {name: getattr(self, name) for name in names}
