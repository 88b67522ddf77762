import numpy as np
import pytest
from backend import array, gradients_of

from tf_capsules.losses import SoftmaxCrossentropy

LOGITS = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
LOGS = LOGITS - np.log(np.exp(LOGITS).sum(-1, keepdims=True))


def test_class_numbers_and_rows():
    labels = np.array([2, 0, 3])
    expected = -LOGS[np.arange(3), labels]
    for given in (labels, labels[:, None], np.eye(4, dtype="float32")[labels]):
        np.testing.assert_allclose(array(SoftmaxCrossentropy(reduction=None)(given, LOGITS)), expected, rtol=1e-5)
    mixed = (0.3 * np.eye(4)[labels] + 0.7 * np.eye(4)[[1, 1, 0]]).astype("float32")
    np.testing.assert_allclose(array(SoftmaxCrossentropy()(mixed, LOGITS)), -(mixed * LOGS).sum(-1).mean(), rtol=1e-5)


def test_probabilities_in_place_of_logits():
    loss = SoftmaxCrossentropy(from_logits=False)
    assert SoftmaxCrossentropy.from_config(loss.get_config()).from_logits is False
    mixed = np.array([[0.3, 0.7, 0, 0], [0, 0, 1, 0], [0.5, 0, 0, 0.5]], "float32")
    for given in (np.array([2, 0, 3]), mixed):
        expected = array(SoftmaxCrossentropy()(given, LOGITS))
        np.testing.assert_allclose(array(loss(given, np.exp(LOGS))), expected, rtol=1e-5)
    sure = array(loss(np.array([1]), np.array([[1.0, 0.0]], "float32")))
    np.testing.assert_allclose(sure, -np.log(1e-7), rtol=1e-5)


def test_extreme_scores_stay_finite():
    logits = np.array([[1e4, -1e4, 0.0]], "float32")
    np.testing.assert_allclose(array(SoftmaxCrossentropy()(np.array([1]), logits)), 2e4, rtol=1e-6)


def test_a_class_that_is_ruled_out_adds_nothing():
    logits = np.concatenate([LOGITS, np.full((3, 1), -np.inf, "float32")], axis=1)
    labels = np.array([2, 0, 3])
    expected = array(SoftmaxCrossentropy()(labels, LOGITS))
    result, (gradient,) = gradients_of(lambda logits: SoftmaxCrossentropy()(labels, logits))(logits)
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    assert np.isfinite(gradient).all() and (gradient[:, -1] == 0).all()
    assert not np.isfinite(array(SoftmaxCrossentropy()(np.full(3, 4), logits)))


def test_labels_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"logits \(batch, classes\). Received predictions of shape \(3, 4, 1\)"):
        SoftmaxCrossentropy()(np.array([1, 0, 2]), LOGITS[..., None])
    with pytest.raises(ValueError, match=r"(?s)Labels.*\(3, 2\)"):
        SoftmaxCrossentropy()(np.ones((3, 2), "float32"), LOGITS)
