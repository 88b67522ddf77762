"""Votes without storage give the same answers as stored votes."""

import functools

import numpy as np
import pytest
from backend import array, as_one_program, float64, gradients_of, results_and_gradients, run, slow_on_jax
from keras import ops

from tf_capsules.routing import DistinctVotes, SharedVotes, StoredVotes, Votes
from tf_capsules.routing.couplings import softmax
from tf_capsules.routing.votes import TransformedVotes

BATCH, CHILDREN, PARENTS, ROWS, COLUMNS, OUT = 2, 6, 4, 3, 5, 7
TOLERANCE = {"float64": 1e-9, "float32": 2e-5}


def make_arrays(groups, matrix, use_bias, dtype, one_column=False):
    random = np.random.default_rng(1)
    rows = (ROWS,) if matrix else ()
    shapes = {
        "poses": (BATCH, CHILDREN, *rows, COLUMNS),
        "kernel": (groups, PARENTS, COLUMNS, OUT),
        "weights": (BATCH, CHILDREN, 1 if one_column else PARENTS),
        "parents": (BATCH, PARENTS, *rows, OUT),
        "precisions": (BATCH, PARENTS, *rows, OUT),
        "constants": (BATCH, PARENTS),
        "activations": (BATCH, CHILDREN),
    }
    if use_bias:
        shapes["bias"] = (groups, PARENTS, *rows, OUT)
    arrays = {name: 0.4 * random.normal(size=shape) for name, shape in shapes.items()}
    for name in ("weights", "precisions", "activations"):
        arrays[name] = np.abs(arrays[name])
    return {name: x.astype(dtype) for name, x in arrays.items()}


def stored(poses, kernel, bias=None, activations=None):
    """Votes written out, child i using kernel[i % groups]."""
    groups = [i % kernel.shape[0] for i in range(CHILDREN)]
    votes = ops.einsum("bi...d,ijde->bij...e", poses, ops.take(kernel, groups, axis=0))
    votes = votes if bias is None else votes + ops.take(bias, groups, axis=0)
    return StoredVotes(votes, activations, kernel.shape[0])


def by_groups(*arguments):
    return SharedVotes(*arguments, children_per_chunk=1)


def by_chunks(*arguments):
    return SharedVotes(*arguments, children_per_chunk=4)


FORMS = {
    "shared by all": (SharedVotes, 1),
    "shared in groups": (SharedVotes, 3),
    "shared by all, in chunks": (by_chunks, 1),
    "shared in groups, in chunks": (by_chunks, 3),
    "shared in groups, one after the other": (by_groups, 3),
    "distinct": (DistinctVotes, 6),
}


def softmax_numpy(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def posteriors(votes, means, precisions, constants):
    return softmax(votes.log_density(means, precisions, constants), axis=-1)


METHODS = {
    "weighted_sum": lambda votes, x: votes.weighted_sum(x["weights"]),
    "agreement": lambda votes, x: votes.agreement(x["parents"]),
    "log_density": lambda votes, x: votes.log_density(x["parents"] - votes.origin, x["precisions"], x["constants"]),
    "masses": lambda votes, x: votes.moments(x["weights"], epsilon=0.01)[0],
    "means": lambda votes, x: votes.moments(x["weights"], epsilon=0.01)[1] + votes.origin,
    "variances": lambda votes, x: votes.moments(x["weights"], epsilon=0.01)[2],
    "variances of a function": lambda votes, x: votes.moments(
        lambda votes, *state: softmax(votes.log_density(*state), -1),
        x["parents"] - votes.origin,
        x["precisions"],
        x["constants"],
    )[2],
}
USES = {
    "weighted_sum": ("weights",),
    "agreement": ("parents",),
    "log_density": ("parents", "precisions", "constants"),
    "masses": ("weights", "activations"),
    "means": ("weights", "activations"),
    "variances": ("weights", "activations"),
    "variances of a function": ("parents", "precisions", "constants", "activations"),
}


def problem(groups, method, matrix, use_bias, dtype, one_column):
    """Names and values of the arguments, and a function that makes votes of a form and calls the method."""
    arrays = make_arrays(groups, matrix, use_bias, dtype, one_column)
    names = ["poses", "kernel"] + ["bias"] * use_bias * (method != "masses") + list(USES[method])
    names = [name for name in names if method != "masses" or name in ("weights", "activations")]
    call = METHODS[method]

    def answer(build):
        def from_values(*values):
            x = arrays | dict(zip(names, values, strict=True))
            return call(build(x["poses"], x["kernel"], x.get("bias"), x["activations"]), x)

        return from_values

    return names, [arrays[name] for name in names], answer


@functools.cache  # shared by all forms with this number of groups
def of_stored(*case):
    """The answer of stored votes, a direction, and the gradients of the answer in this direction."""
    _, values, answer = problem(*case)
    expected = run(answer(stored), *values)
    direction = np.random.default_rng(2).normal(size=expected.shape).astype(expected.dtype)
    return expected, direction, results_and_gradients(answer(stored), [direction])(*values)[1]


def compare(form, method, matrix, use_bias, dtype, one_column=False):
    make, groups = FORMS[form]
    case = groups, method, matrix, use_bias, dtype, one_column
    names, values, answer = problem(*case)
    expected, direction, expected_gradients = of_stored(*case)
    result, gradients = results_and_gradients(answer(make), [direction])(*values)
    assert result.dtype == dtype and result.shape == expected.shape
    tolerance = TOLERANCE[dtype]
    np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)
    for centered in (False, True):
        through_store = run(answer(lambda *v: make(*v).store(centered)), *values)  # noqa: B023
        np.testing.assert_allclose(through_store, expected, rtol=tolerance, atol=tolerance)

    for name, gradient, reference in zip(names, gradients, expected_gradients, strict=True):
        scale = tolerance * max(1.0, np.abs(reference).max())
        np.testing.assert_allclose(gradient, reference, rtol=tolerance, atol=scale, err_msg=name)


@slow_on_jax
@pytest.mark.parametrize(
    "matrix, use_bias, dtype",
    [(False, False, "float64"), (True, True, "float64"), (True, True, "float32")],
    ids=["vectors", "matrices and bias", "matrices and bias in float32"],
)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("form", FORMS)
def test_answers_and_gradients_equal_those_of_stored_votes(form, method, matrix, use_bias, dtype):
    with float64():
        compare(form, method, matrix, use_bias, dtype)


@pytest.mark.parametrize("matrix", [False, True], ids=["vectors", "matrices"])
@pytest.mark.parametrize("method", ["weighted_sum", "variances"])
@pytest.mark.parametrize("form", FORMS)
def test_one_column_of_weights_stands_for_all_parents(form, method, matrix):
    with float64():
        compare(form, method, matrix, True, "float64", one_column=True)


@pytest.mark.parametrize("form", [*FORMS, "stored"])
@pytest.mark.parametrize("method", ["weighted_sum", "variances"])
def test_a_column_of_weights_may_stand_for_the_whole_batch(form, method):
    make, groups = FORMS.get(form, (stored, 3))
    arrays = make_arrays(groups, True, True, "float32", one_column=True)

    @as_one_program
    def answer(weights):
        votes = make(arrays["poses"], arrays["kernel"], arrays["bias"])
        return METHODS[method](votes, arrays | {"weights": weights})

    weights = arrays["weights"][:1]
    once, repeated = answer(weights), answer(np.repeat(weights, BATCH, axis=0))
    np.testing.assert_allclose(array(once), array(repeated), rtol=1e-6, atol=1e-6)


def test_stored_votes_against_numpy():
    x = make_arrays(1, True, False, "float32")
    v = np.random.default_rng(3).normal(size=(BATCH, CHILDREN, PARENTS, ROWS, OUT)).astype("float32")
    votes = StoredVotes(v, x["activations"], groups=3)
    w, p, a = x["weights"], x["parents"], x["activations"]
    squares = (v - p[:, None]) ** 2
    shares = a[..., None] * w
    mass = shares.sum(1)[..., None, None] + 0.01
    means = (shares[..., None, None] * v).sum(1) / mass
    couplings = softmax_numpy(x["constants"][:, None] - 0.5 * (squares * x["precisions"][:, None]).sum((-1, -2)), -1)
    routed = (a[..., None] * couplings)[..., None, None]
    routed_means = (routed * v).sum(1) / routed.sum(1)
    expected = {
        "weighted_sum": (w[..., None, None] * v).sum(1),
        "agreement": (v * p[:, None]).sum((-1, -2)),
        "log_density": x["constants"][:, None] - 0.5 * (squares * x["precisions"][:, None]).sum((-1, -2)),
        "masses": shares.reshape(BATCH, CHILDREN // 3, 3, PARENTS).sum(1),
        "means": means,
        "variances": (shares[..., None, None] * (v - means[:, None]) ** 2).sum(1) / mass,
        "variances of a function": (routed * (v - routed_means[:, None]) ** 2).sum(1) / routed.sum(1),
    }
    for method, call in METHODS.items():
        np.testing.assert_allclose(array(call(votes, x)), expected[method], rtol=1e-5, atol=1e-5, err_msg=method)
    np.testing.assert_allclose(array(votes.total_activation()), a.reshape(BATCH, -1, 3).sum(1), rtol=1e-6)
    np.testing.assert_array_equal(array(votes.tensor()), v)


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


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("form", FORMS)
def test_half_precision_is_computed_in_float32(form, dtype):
    make, groups = FORMS[form]
    x = make_arrays(groups, False, True, "float32")
    half = {name: ops.cast(value, dtype) for name, value in x.items()}
    exact = {name: array(ops.cast(value, "float32")) for name, value in half.items()}

    def answer(make, x_of):
        return run(lambda: make(x_of["poses"], x_of["kernel"], x_of["bias"]).weighted_sum(x["weights"]))

    result, expected = answer(make, half), answer(stored, exact)
    assert result.dtype == "float32"
    np.testing.assert_allclose(result, expected, atol=2e-6)


def test_children_that_do_not_fit_the_kernel_are_named():
    x = make_arrays(1, False, False, "float32")
    with pytest.raises(ValueError, match=r"(?s)6 children.*kernel.*\(4, 4, 5, 7\)"):
        SharedVotes(x["poses"], np.ones((4, PARENTS, COLUMNS, OUT), "float32"))
    with pytest.raises(ValueError, match=r"(?s)6 children.*kernel.*\(3, 4, 5, 7\)"):
        DistinctVotes(x["poses"], np.ones((3, PARENTS, COLUMNS, OUT), "float32"))
    with pytest.raises(ValueError, match=r"(?s)poses.*\(2, 6, 5\).*kernel.*\(1, 4, 8, 7\)"):
        SharedVotes(x["poses"], np.ones((1, PARENTS, 8, OUT), "float32"))


def test_votes_without_store_say_so():
    for ask in (Votes().moments, Votes().weighted_sum, Votes().agreement):
        with pytest.raises(TypeError, match="Votes must define `store`"):
            ask(np.ones((1, 2, 3)))


def test_votes_without_a_smaller_form_answer_as_stored_ones():
    x = make_arrays(3, True, True, "float32")
    votes = TransformedVotes(x["poses"], x["kernel"], x["bias"])
    stored = votes.store()
    poses = array(stored.weighted_sum(x["weights"]))
    np.testing.assert_allclose(array(votes.weighted_sum(x["weights"])), poses, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(array(votes.agreement(poses)), array(stored.agreement(poses)), rtol=1e-4, atol=1e-4)
