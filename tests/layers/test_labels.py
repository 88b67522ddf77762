import keras
import numpy as np
import pytest
from small_runs import needs_tensorflow

from tf_capsules.layers.labels import class_targets
from tf_capsules.losses import MarginLoss


def test_labels_with_an_unknown_number_of_columns_say_how_to_set_it():
    with pytest.raises(ValueError, match="shape \\(None, None\\).*Set the unknown number of columns"):
        class_targets(keras.KerasTensor((None, None)), keras.KerasTensor((None, 3)))


@needs_tensorflow
def test_labels_whose_form_changes_say_what_helps():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "sigmoid")])
    model.compile("sgd", MarginLoss())
    x, y = np.ones((2, 4), "float32"), np.array([0, 2])
    model.evaluate(x, y, verbose=0)
    with pytest.raises(ValueError, match="If their form changes between calls, compile the model again"):
        model.evaluate(x, y[:, None], verbose=0)
