"""What the losses of two batches of features have in common."""

import keras
import numpy as np
import pytest
from backend import array, run
from keras import ops

from tf_capsules.losses import PairedKLDivergence, SinkhornDivergence

X, Y = np.random.default_rng(0).uniform(size=(2, 5, 4)).astype("float32")
BOTH = pytest.mark.parametrize("of", [SinkhornDivergence, PairedKLDivergence])


@pytest.mark.parametrize(
    "loss",
    [
        SinkhornDivergence("l2", 0.5, 7, unbiased=False, plan_gradient=True, reduction="sum", name="other"),
        PairedKLDivergence(symmetric=True),
    ],
)
def test_config_round_trip(loss):
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))
    assert again.get_config() == loss.get_config() and again.name == loss.name
    np.testing.assert_array_equal(run(again, Y, X), run(loss, Y, X))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@BOTH
def test_half_precision_features_are_compared_in_float32(of, dtype):
    half = [ops.cast(x, dtype) for x in (Y, X)]
    loss = of()(*half)
    assert keras.backend.standardize_dtype(loss.dtype) == "float32"
    np.testing.assert_allclose(array(loss), run(of(), *(array(ops.cast(x, "float32")) for x in half)), atol=1e-6)


@BOTH
def test_features_of_other_shapes_are_named(of):
    for y_true, y_pred in ((Y, X[:, :3]), (Y, X[:4]), (Y[..., None], X[..., None]), (Y[0], X[0])):
        with pytest.raises(ValueError, match=rf"{of.__name__} takes .*Received targets of shape \({y_true.shape[0]},"):
            of()(y_true, y_pred)
