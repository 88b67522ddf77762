"""Files of earlier versions load and answer as they did."""

import pathlib

import keras
import numpy as np
from backend import array

import tf_capsules  # noqa: F401, registers the layers

SAVED = pathlib.Path(__file__).parent / "saved"


def test_a_model_saved_with_older_argument_names_answers_as_it_did():
    model = keras.models.load_model(SAVED / "older_arguments.keras")
    with np.load(SAVED / "older_arguments.npz") as arrays:
        expected = dict(arrays)
    outputs = keras.tree.flatten_with_path(model(expected.pop("image")))
    assert len(outputs) == len(expected)
    for path, output in outputs:
        np.testing.assert_allclose(array(output), expected["/".join(map(str, path))], rtol=1e-4, atol=1e-5)
