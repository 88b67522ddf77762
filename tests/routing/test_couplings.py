import numpy as np
import pytest
from backend import array, results_and_gradients, way

from tf_capsules.routing import couple
from tf_capsules.routing.couplings import softmax

BATCH, CHILDREN, PARENTS = 2, 6, 4


def softmax_numpy(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def test_couplings():
    logits = np.random.default_rng(4).normal(size=(BATCH, CHILDREN, PARENTS)).astype("float32")
    mask = np.array([[1, 1, 0, 1, 0, 1], [0, 0, 0, 0, 0, 0]], bool)
    np.testing.assert_allclose(array(couple(logits)), softmax_numpy(logits, 2), atol=1e-6)
    np.testing.assert_allclose(array(couple(logits, "children")), softmax_numpy(logits, 1), atol=1e-6)
    leaky = softmax_numpy(np.concatenate([logits, np.zeros((BATCH, CHILDREN, 1))], 2), 2)[..., :-1]
    np.testing.assert_allclose(array(couple(logits, leaky=True)), leaky, atol=1e-6)
    np.testing.assert_allclose(array(couple(logits, leaky=True, mask=mask)), leaky * mask[..., None], atol=1e-6)
    among_children = array(couple(logits, "children", mask=mask))
    np.testing.assert_allclose(among_children[0][mask[0]], softmax_numpy(logits[0][mask[0]], 0), atol=1e-6)
    assert (among_children[0][~mask[0]] == 0).all() and (among_children[1] == 0).all()


@pytest.mark.parametrize("jit", [False, True], ids=way)
@pytest.mark.parametrize("last", [5, 40])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_a_softmax_along_any_axis(axis, last, jit):
    random = np.random.default_rng(5)
    logits = random.normal(size=(3, 4, last)).astype("float32")
    logits[1, 2] += 1000.0
    logits[:, 3] -= 1000.0
    upstream = random.normal(size=logits.shape).astype("float32")
    expected = softmax_numpy(logits.astype("float64"), axis)
    slope = expected * (upstream - np.sum(expected * upstream, axis=axis, keepdims=True))
    result, (gradient,) = results_and_gradients(lambda x: softmax(x, axis), [upstream], jit)(logits)
    np.testing.assert_allclose(result, expected, atol=1e-6)
    np.testing.assert_allclose(gradient, slope, atol=1e-6)
    assert array(softmax(logits[:0], axis)).shape == (0, 4, last)


@pytest.mark.parametrize("competition", ["parents", "children"])
def test_couplings_of_half_precision_logits_are_computed_in_float32(competition):
    logits = np.random.default_rng(4).normal(size=(BATCH, CHILDREN, PARENTS)).astype("float16")
    mask = np.zeros((BATCH, CHILDREN), bool)
    result = array(couple(logits, competition, mask=mask))
    assert result.dtype == "float32" and (result == 0).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"competition": "child"}, "`competition` must be .* Received: 'child'"),
        ({"competition": "children", "leaky": True}, "`leaky=True` needs"),
    ],
)
def test_what_does_not_fit_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        couple(np.zeros((1, 2, 3), "float32"), **options)
