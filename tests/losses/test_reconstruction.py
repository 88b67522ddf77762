import numpy as np
import pytest
from backend import array
from keras import ops
from oracle import ATOL, CASES, expand

from tf_capsules.losses import MarginLoss, ReconstructionLoss

CASE = CASES["C_losses"]
IMAGES, DECODED = (expand(**CASE[name]) for name in ("image", "reconstruction"))


def test_oracle():
    np.testing.assert_allclose(
        array(ReconstructionLoss(1.0, reduction=None)(IMAGES, DECODED)), CASE["sse_per_sample"], atol=ATOL
    )
    loss = array(ReconstructionLoss()(IMAGES, DECODED))
    np.testing.assert_allclose(loss, CASE["scaled_reconstruction_batch_mean"], rtol=2e-5)
    margin = MarginLoss()(np.array(CASE["targets"]), np.array(CASE["lengths"]))
    np.testing.assert_allclose(array(margin) + loss, CASE["total"], atol=ATOL)


def test_it_sums_over_any_axes_and_weighs_samples():
    random = np.random.default_rng(0)
    images, decoded = random.uniform(size=(2, 3, 2, 4, 5, 1)).astype("float32")
    squares = np.square(images - decoded).sum((1, 2, 3, 4))
    weights = np.array([2.0, 0.0, 0.5], "float32")
    loss = ReconstructionLoss(0.5)
    np.testing.assert_allclose(array(loss(images, decoded)), 0.5 * squares.mean(), rtol=1e-6)
    expected = 0.5 * (weights * squares).sum() / 3
    np.testing.assert_allclose(array(loss(images, decoded, sample_weight=weights)), expected, rtol=1e-6)


def test_half_precision_is_summed_in_float32():
    images = np.zeros((1, 300, 300, 1), "float32")
    decoded = ops.ones((1, 300, 300, 1), dtype="float16")
    assert array(ReconstructionLoss(1.0)(images, decoded)) == 90_000


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), -1, "1", True])
def test_weights_that_are_no_number_of_at_least_0_are_refused(weight):
    with pytest.raises(ValueError, match=f"must be a number of at least 0. Received: {weight!r}"):
        ReconstructionLoss(weight)


@pytest.mark.parametrize("shape", [(3, 6), (3, 6, 5), (3, 6, 5, 2)])
def test_images_of_another_shape_are_named(shape):
    with pytest.raises(ValueError, match=rf"Received \({', '.join(map(str, shape))}\) and \(3, 6, 5, 1\)"):
        ReconstructionLoss()(np.zeros(shape), np.zeros((3, 6, 5, 1)))
