import numpy as np
import pytest
from backend import gradients_of, run

from tf_capsules.losses import PairedKLDivergence

X, Y = (np.maximum(np.random.default_rng(0).normal(size=(5, 4)), 0).astype("float32") + shift for shift in (0, 0.1))
WEIGHTS = np.array([1.0, 0.0, 2.0, 0.5, 0.0], "float32")


def test_paired_divergence():
    def softmax(x):
        return np.exp(x) / np.exp(x).sum(-1, keepdims=True)

    def by_hand(p, q):
        return (p * np.log(p / q)).sum(-1)

    p, q = softmax(Y), softmax(X)
    np.testing.assert_allclose(run(PairedKLDivergence(reduction=None), Y, X), by_hand(p, q), atol=1e-6)
    np.testing.assert_allclose(run(PairedKLDivergence(), Y, X), by_hand(p, q).mean(), atol=1e-6)
    middle = (p + q) / 2
    both = (by_hand(p, middle) + by_hand(q, middle)) / 2
    for a, b in ((X, Y), (Y, X)):
        np.testing.assert_allclose(run(PairedKLDivergence(True, reduction=None), a, b), both, atol=1e-6)
    weighted = run(lambda w: PairedKLDivergence()(Y, X, w), WEIGHTS)
    np.testing.assert_allclose(weighted, (WEIGHTS * by_hand(p, q)).sum() / 5, atol=1e-6)
    for symmetric in (False, True):
        value, gradients = gradients_of(PairedKLDivergence(symmetric))(300 * Y, np.zeros_like(X))
        assert np.isfinite([value, *map(np.sum, gradients)]).all()


def test_symmetric_is_a_truth_value():
    with pytest.raises(ValueError, match="`symmetric` must be true or false. Received: 'no'"):
        PairedKLDivergence(symmetric="no")
