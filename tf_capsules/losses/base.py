"""The base of the losses."""

import inspect

import keras


class Loss(keras.losses.Loss):
    """A loss that is computed in at least float32: in bfloat16 the numbers of classes from 257 on would be rounded."""

    @property
    def dtype(self):
        return keras.backend.result_type(super().dtype, "float32")

    def get_config(self):
        """The constructor's arguments but the dtype: a loss holds each as the attribute of that name."""
        return {name: getattr(self, name) for name in inspect.signature(self.__init__).parameters if name != "dtype"}
