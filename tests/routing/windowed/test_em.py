import keras
import numpy as np
import pytest
from backend import BACKEND, array, float64, gradients_of, results_and_gradients, slow_on_jax
from keras import ops

from tf_capsules.routing.em import em_routing
from tf_capsules.routing.votes import TransformedVotes
from tf_capsules.routing.windowed.em import windowed_em_routing
from tf_capsules.routing.windowed.windows import Windows

WINDOWS = Windows(8, 6, (3, 2), (2, 1))  # 3 windows along the rows, the last row in none; 5 along the columns
CASES = {
    "data": dict(iterations=3, normalization="data", inverse_temperature=0.01),
    "last": dict(iterations=3, normalization=2.0, gradients="last", inverse_temperature=(0.1, 0.2, 0.3)),
    "types": dict(iterations=2, normalization=1.0, competes=False, inverse_temperature=1.0, variance_floor=0.2),
    "once": dict(iterations=1, normalization=1.0, inverse_temperature=1.0, epsilon=1e-2),
}


def arguments(rows, bias, dtype, types=3):
    """Poses, activations, kernel, both betas, bias; one child and one whole example have activations of zero."""
    random = np.random.default_rng(0)
    arrays = [
        random.normal(size=(5, 8, 6, types, *rows, 4)),
        random.uniform(size=(5, 8, 6, types)),
        random.normal(size=(6 * types, 2, 4, 5)),
        random.normal(size=2),
        random.normal(size=2),
        *([random.normal(size=(18, 2, *rows, 5))] if bias else []),
    ]
    arrays[1][0, 1, 2, 0] = 0
    arrays[1][3] = 0
    return [x.astype(dtype) for x in arrays]


def stored(poses, activations, kernel, beta_u, beta_a, bias=None, *, windows=WINDOWS, competes=True, **options):
    votes = TransformedVotes(windows.gather(poses), kernel, bias, windows.gather(activations)).store()
    competition = windows.couple if competes else None
    return em_routing(votes, beta_u=beta_u, beta_a=beta_a, competition=competition, **options)


def recomputed(poses, activations, kernel, beta_u, beta_a, bias=None, *, competes=True, chunk=3, **options):
    betas = dict(beta_u=beta_u, beta_a=beta_a)
    options = dict(competes=competes, examples_per_chunk=chunk, epsilon=1e-9, variance_floor=1e-9) | options
    return windowed_em_routing(poses, activations, kernel, bias, **betas, **dict(windows=WINDOWS) | options)


def weighted(form, options):
    """A scalar in which every entry of the results has a weight of its own, for gradients."""

    def value(*arrays):
        means, _, logits, variances = form(*arrays, **options)
        weights = ops.reshape(ops.cast(ops.arange(100 * 5) % 7, means.dtype), (-1, 5))[: means.shape[1]]
        weights = weights[:, None] if len(means.shape) == 4 else weights
        return ops.sum((means + variances) * weights) + ops.sum(ops.square(logits + 1))

    return value


@pytest.mark.parametrize("dtype, tolerance", [("float64", 1e-9), ("float32", 2e-5)])
@pytest.mark.parametrize("case", CASES)
def test_windowed_em_routing_equals_em_routing_in_value_and_gradient(case, dtype, tolerance):
    rows, bias = {"data": ((3,), False), "last": ((), False), "types": ((2,), True), "once": ((), True)}[case]
    with float64():
        arrays = arguments(rows, bias, dtype)
        wanted = gradients_of(weighted(stored, CASES[case]))(*arrays)
        found = gradients_of(weighted(recomputed, CASES[case]))(*arrays)
    for a, b in zip([found[0], *found[1]], [wanted[0], *wanted[1]], strict=True):
        assert np.isfinite(a).all() and a.shape == b.shape and a.dtype == dtype
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * np.abs(b).max())


@slow_on_jax
@pytest.mark.parametrize("case", CASES)
def test_windows_with_few_active_children_are_as_exact_as_with_stored_votes(case):
    """A window has 48 children, of which none to a few are active: their votes leave small variances, or none.

    Both round, and on some processors differently: so each is compared with float64.
    """
    poses, activations, *others = arguments((3,) if case != "last" else (), False, "float32", types=8)
    activations = activations * (np.random.default_rng(5).random(activations.shape) < 0.03)
    run = [lambda *x, f=f: keras.tree.map_structure(array, f(*x, **CASES[case])) for f in (recomputed, stored)]
    arrays = [x.astype("float32") for x in (poses, activations, *others)]
    found, wanted = (f(*arrays) for f in run)
    with float64():
        exact = run[1](*(x.astype("float64") for x in arrays))
    for a, b, true in zip(found, wanted, exact, strict=True):
        assert a.dtype == b.dtype == "float32" and true.dtype == "float64"
        assert np.abs(a - true).max() <= 2 * np.abs(b - true).max() + 1e-4 * np.abs(true).max()


def test_gradients_are_exact_where_parents_have_one_child():
    """Their variances are at the floor, and slopes of 1 / variance must multiply nothing but small differences.

    Those are rounding errors of votes here: up to 0.4% of the gradient, where large ones gave 500 times it.
    """
    random = np.random.default_rng(1)
    shapes = (2, 4, 4, 1, 4, 4), (2, 4, 4, 1), (1, 3, 4, 5), (3,), (3,)
    arrays = [random.uniform(0.1, 1, size).astype("float32") for size in shapes]
    options = CASES["data"] | {"windows": Windows(4, 4, (1, 1))}
    found = gradients_of(weighted(recomputed, options))(*arrays)[1]
    with float64():
        exact = gradients_of(weighted(stored, options))(*(x.astype("float64") for x in arrays))[1]
    for a, b in zip(found, exact, strict=True):
        assert a.dtype == "float32" and b.dtype == "float64"
        np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-2 * np.abs(b).max())


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_identical_votes_give_finite_results_and_gradients(scale):
    """All votes are the same, so the true variance is 0: rounding must not decide between windows."""
    poses = np.full((2, 8, 6, 8, 4, 4), scale, "float32")
    kernel = np.broadcast_to(np.eye(4, dtype="float32"), (48, 2, 4, 4))
    arrays = [poses, np.ones((2, 8, 6, 8), "float32"), kernel, np.zeros(2, "float32"), np.zeros(2, "float32")]
    poses, activations = np.ones((2 * WINDOWS.positions, 2, 4, 4)), np.ones((2 * WINDOWS.positions, 2))
    directions = [poses, activations, activations, poses]
    route = results_and_gradients(lambda *arrays: recomputed(*arrays, **CASES["data"]), directions)
    (means, *others), gradients = route(*arrays)
    if scale < 1e4:  # at 1e4 stored votes round as much
        np.testing.assert_allclose(means, scale, rtol=1e-4)
    assert all(np.isfinite(x).all() for x in (*others, *gradients))


def test_windowed_gradients_compiled_by_xla_equal_those_of_stored_votes():
    arrays = arguments((), False, "float32")
    options = dict(iterations=2, normalization=1.0, inverse_temperature=1.0)
    wanted = gradients_of(weighted(stored, options))(*arrays)[1]
    found = gradients_of(weighted(recomputed, options), jit=True)(*arrays)[1]
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5 * np.abs(b).max())


@pytest.mark.skipif(BACKEND != "tensorflow", reason="elsewhere a graph knows its batch")
def test_a_graph_of_unknown_batch_size_routes_any_batch():
    import tensorflow as tf

    poses, activations, *weights = arguments((3,), False, "float32")
    signature = [tf.TensorSpec((None, *x.shape[1:])) for x in (poses, activations)]
    options = CASES["data"] | {"iterations": 2}
    graph = tf.function(lambda *x: recomputed(*x, *weights, **options), signature, autograph=False)
    for batch in (0, 1, 5):
        expected = stored(poses[:batch], activations[:batch], *weights, **options)
        for a, b in zip(graph(poses[:batch], activations[:batch]), expected, strict=True):
            np.testing.assert_allclose(array(a), array(b), atol=2e-5, err_msg=str(batch))


def test_no_votes_are_kept():
    """Checks the temporary memory of the XLA program. With all votes it would hold at least three tensors of them."""
    if BACKEND != "jax":
        pytest.skip("only JAX tells what a compiled program takes")
    import jax

    random, windows = np.random.default_rng(0), Windows(8, 8, (3, 3))
    shapes = (32, 8, 8, 8, 4, 4), (32, 8, 8, 8), (72, 32, 4, 4)
    arrays = [random.uniform(size=shape).astype("float32") for shape in shapes]
    votes = 32 * windows.positions * 72 * 32 * 16 * 4

    def value(*arrays):
        options = dict(windows=windows, competes=True, examples_per_chunk=1, **CASES["data"])
        return ops.sum(windowed_em_routing(*arrays, beta_u=ops.zeros(32), beta_a=ops.zeros(32), **options)[0] ** 2)

    program = jax.jit(jax.grad(value, argnums=(0, 1, 2))).lower(*arrays).compile()
    assert program.memory_analysis().temp_size_in_bytes < votes / 2
