"""The base of the losses."""

import keras


class Loss(keras.losses.Loss):
    """A loss that is computed in at least float32: in bfloat16 the numbers of classes from 257 on would be rounded."""

    @property
    def dtype(self):
        return keras.backend.result_type(super().dtype, "float32")
