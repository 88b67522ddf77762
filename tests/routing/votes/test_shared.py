"""Votes of children that share matrices."""

import numpy as np
import pytest
from backend import array, as_one_program, gradients_of
from keras import ops
from routing.votes.forms import BATCH, CHILDREN, COLUMNS, OUT, PARENTS, ROWS, make_arrays

from tf_capsules.routing import SharedVotes


@pytest.mark.parametrize("chunk", [None, 5])
@pytest.mark.parametrize("matrix", [False, True], ids=["vectors", "matrices"])
def test_variances_of_poses_far_from_the_origin_keep_their_digits(matrix, chunk):
    x = make_arrays(1, matrix, False, "float64")
    x["poses"] = x["poses"] + 50.0
    votes = np.einsum("bi...d,jde->bij...e", x["poses"], x["kernel"][0])
    weights = x["weights"].reshape(*x["weights"].shape, *(1,) * (votes.ndim - 3))
    means = (weights * votes).sum(1) / weights.sum(1)
    expected = (weights * (votes - means[:, None]) ** 2).sum(1) / weights.sum(1)
    x = {name: value.astype("float32") for name, value in x.items()}
    votes = SharedVotes(x["poses"], x["kernel"], children_per_chunk=chunk)
    result = array(as_one_program(votes.moments)(x["weights"])[2])
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_a_group_without_mass_is_harmless():
    x = make_arrays(3, True, True, "float32")
    nobody = np.zeros_like(x["activations"])
    some = x["activations"] * (np.arange(CHILDREN) % 3 != 1)

    def scalar(poses, kernel, bias, weights, activations):
        _, means, variances = SharedVotes(poses, kernel, bias, activations).moments(weights, epsilon=0.01)
        return ops.sum(means) + ops.sum(variances)

    for activations in (nobody, some.astype("float32")):
        values = (x["poses"], x["kernel"], x["bias"], x["weights"], activations)
        result, gradients = gradients_of(scalar)(*values)
        assert np.isfinite(result) and all(np.isfinite(gradient).all() for gradient in gradients)

    @as_one_program
    def moments():
        votes = SharedVotes(*values[:3], nobody)
        masses, means, variances = votes.moments(x["weights"], epsilon=0.01)
        return masses, means + votes.origin, variances

    masses, means, variances = map(array, moments())
    assert (masses == 0).all() and (variances == 0).all()
    np.testing.assert_allclose(means, 0, atol=1e-6)


def test_children_that_do_not_fit_the_kernel_are_named():
    x = make_arrays(1, False, False, "float32")
    with pytest.raises(ValueError, match=r"(?s)6 children.*kernel.*\(4, 4, 5, 7\)"):
        SharedVotes(x["poses"], np.ones((4, PARENTS, COLUMNS, OUT), "float32"))
    with pytest.raises(ValueError, match=r"(?s)poses.*\(2, 6, 5\).*kernel.*\(1, 4, 8, 7\)"):
        SharedVotes(x["poses"], np.ones((1, PARENTS, 8, OUT), "float32"))


@pytest.mark.parametrize("groups", [1, 3])
def test_poses_may_stand_for_the_whole_batch(groups):
    """With fewer children TensorFlow is right about products of (batch, 1, ...) and (1, 1, ...)."""
    x = make_arrays(groups, True, True, "float32")
    children = np.random.default_rng(9).normal(size=(BATCH, 30, ROWS, COLUMNS)).astype("float32")

    @as_one_program
    def answer(poses):
        return SharedVotes(children, x["kernel"], x["bias"]).agreement(poses)

    once = x["parents"][:1]
    np.testing.assert_allclose(array(answer(once)), array(answer(np.repeat(once, BATCH, axis=0))), rtol=1e-6, atol=1e-6)
