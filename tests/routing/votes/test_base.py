"""Votes without storage give the same answers as stored votes."""

import functools

import numpy as np
import pytest
from backend import array, as_one_program, float64, results_and_gradients, run, slow_on_jax
from keras import ops
from routing.votes.forms import BATCH, CHILDREN, FORMS, METHODS, TOLERANCE, USES, make_arrays, stored

from tf_capsules.routing import Votes


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
    if method in ("weighted_sum", "means"):  # the stored votes are the same for all methods
        through_store = run(answer(lambda *v: make(*v).store()), *values)
        np.testing.assert_allclose(through_store, expected, rtol=tolerance, atol=tolerance)

    for name, gradient, reference in zip(names, gradients, expected_gradients, strict=True):
        scale = tolerance * max(1.0, np.abs(reference).max())
        np.testing.assert_allclose(gradient, reference, rtol=tolerance, atol=scale, err_msg=name)


@slow_on_jax
@pytest.mark.parametrize("matrix, use_bias", [(False, False), (True, True)], ids=["vectors", "matrices and bias"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("form", FORMS)
def test_answers_and_gradients_equal_those_of_stored_votes(form, method, matrix, use_bias):
    with float64():
        compare(form, method, matrix, use_bias, "float64")


@slow_on_jax
@pytest.mark.parametrize("method", ["log_density", "variances"])  # those that lose digits
@pytest.mark.parametrize("form", FORMS)
def test_float32_is_enough(form, method):
    compare(form, method, True, True, "float32")


@slow_on_jax
@pytest.mark.parametrize("method", ["means", "variances"])
@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_exact_where_a_group_has_no_mass(form, method):
    make, groups = FORMS[form]
    with float64():
        x = make_arrays(groups, True, True, "float64")
        x["activations"] *= np.arange(CHILDREN) % groups > 0  # the only group, or the first, has none
        names = "activations", "poses", "kernel", "weights"

        def gradients(make):
            def answer(*values):
                y = x | dict(zip(names, values, strict=True))
                return METHODS[method](make(y["poses"], y["kernel"], y["bias"], y["activations"]), y)

            shape = run(answer, *(x[name] for name in names)).shape
            direction = np.random.default_rng(2).normal(size=shape)
            return results_and_gradients(answer, [direction])(*(x[name] for name in names))[1]

        for name, gradient, reference in zip(names, gradients(make), gradients(stored), strict=True):
            scale = 1e-9 * max(1.0, np.abs(reference).max())
            np.testing.assert_allclose(gradient, reference, rtol=1e-9, atol=scale, err_msg=name)


@slow_on_jax
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


def test_votes_without_store_say_so():
    for ask in (Votes().moments, Votes().weighted_sum, Votes().agreement):
        with pytest.raises(TypeError, match="Votes must define `store`"):
            ask(np.ones((1, 2, 3)))
