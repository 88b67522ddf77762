import keras
import numpy as np
import pytest
from analysis.capsnets import array

from tf_capsules import analysis


def test_equivariance_is_measured_on_shifted_images(model, images):
    shifts = [(0, 0), (0, 2), (-1, 0), (1, -1)]
    moved = np.zeros((4, 8, 7, 1), "float32")
    image = images[0]
    moved[0] = image
    moved[1, :, 2:] = image[:, :-2]
    moved[2, :-1] = image[1:]
    moved[3, 1:, :-1] = image[:-1, 1:]
    want = model(moved)
    lengths, poses = analysis.measure_equivariance(model, image, 4, shifts)
    np.testing.assert_allclose(lengths, array(want["activations"])[:, 4], atol=1e-6)
    np.testing.assert_allclose(poses, array(want["poses"])[:, 4], atol=1e-6)
    assert lengths.shape == (4,) and poses.shape == (4, 9)


def plain():
    return keras.Sequential([keras.Input((8, 7, 1)), keras.layers.Flatten(), keras.layers.Dense(5)])


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda m, x: analysis.measure_equivariance(m, x[0], 1, [1, 2]), r"Received: \[1, 2\]"),
        (lambda m, x: analysis.measure_equivariance(m, x[0], 1, [(0.5, 1)]), "whole pixels"),
        (lambda m, x: analysis.measure_equivariance(m, x[0], 1, np.zeros((0, 2), int)), "Received: array"),
        (lambda m, x: analysis.measure_equivariance(m, x[0, ..., 0], 1, [(0, 1)]), r"Received shape \(8, 7\)"),
        (
            lambda m, x: analysis.measure_equivariance(plain(), x[0], 1, [(0, 1)]),
            "needs a CapsuleClassifier with poses. Received: <Sequential",
        ),
        (lambda m, x: analysis.measure_equivariance(m, x[0], 7, [(0, 1)]), "Received: 7"),
        (lambda m, x: analysis.measure_equivariance(m, x[0], [0, 1, 0], [(0, 1)]), r"Received: \[0, 1, 0\]"),
    ],
)
def test_bad_input_is_named(model, images, call, message):
    with pytest.raises(ValueError, match=message):
        call(model, images)
