import keras
import numpy as np
import pytest
from backend import array, compiled, gradients_of, way
from keras import ops
from oracle import CASES

from tf_capsules.routing import length, squash
from tf_capsules.routing.squash import squash_exponential


def test_oracle_rows():
    case = CASES["A_squash"]
    result = array(squash(np.array(case["input"], "float32")))
    expected = np.array(case["output"])
    np.testing.assert_allclose(result[[0, 1, 3]], expected[[0, 1, 3]], atol=2e-5)
    np.testing.assert_allclose(result[2], expected[2], rtol=1e-4, atol=0)


def test_equals_its_formula_on_any_axes():
    s = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype("float32")
    for axis in (-1, 1, (2, 3), (1, -1)):
        square = np.square(s.astype("float64")).sum(axis=axis, keepdims=True)
        np.testing.assert_allclose(array(squash(s, axis)), square / (1 + square) * s / np.sqrt(square), atol=1e-6)
        np.testing.assert_allclose(array(length(s, axis)), np.sqrt(np.squeeze(square, axis)), rtol=1e-6)
        np.testing.assert_allclose(array(length(s, axis, keepdims=True)), np.sqrt(square), rtol=1e-6)


def test_length_grows_with_the_input_and_stays_at_most_one():
    norms = np.array([0.0, 1e-20, 1e-3, 0.1, 1.0, 10.0, 1e4, 1e20], "float32")
    lengths = array(length(squash(norms[:, None] * np.array([[0.6, 0.8]], "float32"))))
    assert np.all(np.diff(lengths) >= 0) and lengths[-1] <= 1
    np.testing.assert_allclose(lengths[2:6], norms[2:6] ** 2 / (1 + norms[2:6] ** 2), rtol=2e-5, atol=5e-7)


@pytest.mark.parametrize("jit", [False, True], ids=way)
@pytest.mark.parametrize("function", [squash, length])
def test_finite_for_extreme_capsules(function, jit):
    rows = np.array([[0, 0, 0], [1e20, -1e20, 3e19], [1e-20, 2e-20, 0], [1e20, 1e-20, 0], [3, 4, 0]], "float32")
    values = array((compiled(function) if jit else function)(rows))
    assert np.isfinite(values).all()
    if function is length:
        np.testing.assert_allclose(values[[1, 3, 4]], np.sqrt([2.09e40, 1e40, 25.0]), rtol=1e-6)
    _, (gradient,) = gradients_of(lambda x: ops.sum(function(x)), jit)(rows)
    assert np.isfinite(gradient).all()
    assert np.abs(gradient[4]).max() > 0.01


@pytest.mark.parametrize("jit", [False, True], ids=way)
def test_gradient_equals_finite_differences(jit):
    s = np.array([[0.3, -0.4, 0.5], [2.0, 1.0, -2.0]], "float32")
    weights = np.array([[1.0, 2.0, -1.0], [0.5, -3.0, 4.0]], "float32")

    def reference(x):
        square = np.sum(x * x, axis=-1, keepdims=True)
        return np.sum(weights * x * np.sqrt(square) / (1 + square))

    _, (gradient,) = gradients_of(lambda x: ops.sum(weights * squash(x)), jit)(s)
    for index in np.ndindex(s.shape):
        step = np.zeros(s.shape)
        step[index] = 1e-5
        np.testing.assert_allclose(gradient[index], (reference(s + step) - reference(s - step)) / 2e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_computed_in_float32(dtype):
    s = ops.cast(np.array([[300.0, 400.0], [0.0, 0.0]], "float32"), dtype)  # squares overflow float16
    for function in (squash, length):
        result = function(s)
        assert keras.backend.standardize_dtype(result.dtype) == "float32"
    np.testing.assert_allclose(array(length(s))[0], 500.0, rtol=1e-2)
    np.testing.assert_allclose(array(squash(s))[0], [0.6, 0.8], rtol=1e-2)


def test_the_exponential_form_keeps_its_digits_and_stays_at_most_1():
    n = np.concatenate([10.0 ** np.arange(-5, 1), np.linspace(1, 40, 4001)]).astype("float32")
    lengths = array(squash_exponential(n[:, None]))[:, 0]
    np.testing.assert_allclose(lengths, -np.expm1(-n.astype("float64")), rtol=1e-6)
    assert lengths.max() <= 1
