import keras
import numpy as np
import pytest
from backend import EAGER, JIT, float64, gradients_of, run, way
from keras import ops

from tf_capsules.losses import SinkhornDivergence, sinkhorn, transport_cost

RANDOM = np.random.default_rng(0)
# 5 samples of 4 features that are not negative; in X some are zero, as after ReLU.
X, Y = (np.maximum(RANDOM.normal(size=(5, 4)), 0).astype("float32") + shift for shift in (0, 0.1))
WEIGHTS = np.array([1.0, 0.0, 2.0, 0.5, 0.0], "float32")
COST = np.array([[0.1, 0.7, 0.4], [0.9, 0.2, 0.5], [0.3, 0.6, 0.0]])
FEW_X, FEW_Y = np.array([[1.0, 2], [3, 1], [0, 1]], "float32"), np.array([[2.0, 1], [1, 1], [1, 0]], "float32")


def cost_by_hand(x, y, cost="cosine"):
    result = np.zeros((len(x), len(y)))
    for i, a in enumerate(x.astype("float64")):
        for j, b in enumerate(y.astype("float64")):
            norms = np.sqrt(a @ a + 1e-12) * np.sqrt(b @ b + 1e-12)
            result[i, j] = 1 - a @ b / norms if cost == "cosine" else np.sqrt((a - b) @ (a - b))
    return result


def plan_by_hand(cost, epsilon=1.0, iterations=10, rows=None, columns=None):
    rows, columns = (np.full(n, 1 / n) if m is None else m for n, m in zip(cost.shape, (rows, columns), strict=True))
    kernel, b = np.exp(-cost / epsilon), columns
    for _ in range(iterations):
        a = rows / (kernel @ b)
        b = columns / (kernel.T @ a)
    return a[:, None] * kernel * b


def transport_by_hand(x, y, cost="cosine", **options):
    costs = cost_by_hand(x, y, cost)
    return (plan_by_hand(costs, **options) * costs).sum()


def divergence_by_hand(x, y, **options):
    return sum(sign * transport_by_hand(a, b, **options) for sign, a, b in ((2, x, y), (-1, x, x), (-1, y, y)))


def test_plan_of_the_iterations():
    plan = run(sinkhorn, COST.astype("float32"))
    np.testing.assert_allclose((plan * COST).sum(), 0.349274, atol=1e-6)
    np.testing.assert_allclose(plan[0], [0.148072, 0.086522, 0.098739], atol=1e-6)
    np.testing.assert_allclose(plan.sum(0), 1 / 3, atol=1e-6)
    narrow = run(lambda cost: sinkhorn(cost, epsilon=0.1), COST.astype("float32"))
    np.testing.assert_allclose((narrow * COST).sum(), 0.115036, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"epsilon": 0.2, "iterations": 3}])
def test_plan_equals_the_formula_for_any_masses_and_sizes(options):
    cost = RANDOM.uniform(size=(2, 5, 4)).astype("float32")
    masses = dict(rows=np.array([0.1, 0.3, 0.0, 0.5, 0.1]), columns=np.array([0.4, 0.0, 0.25, 0.35]))
    for given in ({}, masses):
        plans = run(lambda cost: sinkhorn(cost, **options, **given), cost)  # noqa: B023
        for plan, one in zip(plans, cost, strict=True):
            np.testing.assert_allclose(plan, plan_by_hand(one, **options, **given), atol=1e-6)
            np.testing.assert_allclose(plan.sum(0), given.get("columns", 1 / 4), atol=1e-6)


@pytest.mark.parametrize("epsilon", [1.0, 0.1])
def test_plan_equals_that_of_another_library(epsilon, monkeypatch):
    for name in ("TENSORFLOW", "PYTORCH", "JAX"):  # POT would import them
        monkeypatch.setenv(f"POT_BACKEND_DISABLE_{name}", "1")
    ot = pytest.importorskip("ot")
    even = np.full(3, 1 / 3)
    # POT updates the other side first, hence the transpose after few iterations. Many iterations give a unique plan.
    few = ot.sinkhorn(even, even, COST.T, epsilon, numItermax=10, stopThr=0, warn=False).T
    many = ot.sinkhorn(even, even, COST, epsilon, numItermax=5000, stopThr=1e-14)
    with float64():
        np.testing.assert_allclose(run(lambda c: sinkhorn(c, epsilon), COST), few, atol=1e-9)
        plan = run(lambda c: sinkhorn(c, epsilon, 300), COST)
    np.testing.assert_allclose(plan, many, atol=1e-7)
    np.testing.assert_allclose([plan.sum(0), plan.sum(1)], 1 / 3, atol=1e-7)
    if epsilon == 0.1:
        np.testing.assert_allclose((plan * COST).sum(), 0.113983, atol=1e-6)
    distances = ot.dist(FEW_X, FEW_Y, metric="cosine")
    np.testing.assert_allclose(run(transport_cost, FEW_X, FEW_Y), distances, atol=1e-6)


def test_divergence_values():
    for options, expected in [
        ({}, 0.314667),
        ({"unbiased": False}, 0.295788),
        ({"cost": "l2"}, 2.021941),
    ]:
        loss = SinkhornDivergence(**options)
        np.testing.assert_allclose(run(loss, FEW_Y, FEW_X), expected, atol=2e-6)
    for options in ({}, {"cost": "l2", "epsilon": 0.3, "iterations": 4}):
        loss = SinkhornDivergence(**options)
        np.testing.assert_allclose(run(loss, Y, X), divergence_by_hand(X, Y, **options), rtol=1e-5)
        np.testing.assert_allclose(run(loss, X, X), 0, atol=1e-6)


def test_weights_are_masses():
    kept, masses = WEIGHTS > 0, WEIGHTS[WEIGHTS > 0] / WEIGHTS.sum()
    expected = divergence_by_hand(X[kept], Y[kept], rows=masses, columns=masses)
    for weights in (WEIGHTS, WEIGHTS[:, None]):
        # Like any Keras loss, this one divides the sum of weighted values by the number of samples.
        weighted = run(lambda w: SinkhornDivergence()(Y, X, w), weights)
        np.testing.assert_allclose(weighted, expected * WEIGHTS.mean(), atol=1e-6)
        alone = run(lambda w: SinkhornDivergence(reduction="mean_with_sample_weight")(Y, X, w), weights)
        np.testing.assert_allclose(alone, expected, atol=1e-6)
    values = run(lambda w: SinkhornDivergence(reduction=None)(Y, X, w), WEIGHTS)
    np.testing.assert_array_equal(values[~kept], 0)
    np.testing.assert_allclose(values.mean(), expected * WEIGHTS.mean(), atol=1e-6)
    ones = run(lambda w: SinkhornDivergence()(Y, X, w), np.ones(5, "float32"))
    np.testing.assert_allclose(ones, run(SinkhornDivergence(), Y, X), atol=1e-6)
    other = np.where(kept[:, None], X, 7).astype("float32")
    np.testing.assert_allclose(
        run(lambda x: SinkhornDivergence(epsilon=1e-3)(Y, x, WEIGHTS), X),
        run(lambda x: SinkhornDivergence(epsilon=1e-3)(Y, x, WEIGHTS), other),
        atol=1e-6,
    )
    assert run(lambda w: SinkhornDivergence()(Y, X, w), np.zeros(5, "float32")) == 0


@pytest.mark.parametrize("plan_gradient", [False, True])
def test_the_gradient_goes_through_the_cost_and_on_demand_through_the_plan(plan_gradient):
    start = X + 0.05
    fixed = [plan_by_hand(cost_by_hand(x, y), iterations=2) for x, y in ((start, Y), (start, start))]

    def by_hand(x):
        if plan_gradient:
            return divergence_by_hand(x, Y, iterations=2)
        return 2 * (fixed[0] * cost_by_hand(x, Y)).sum() - (fixed[1] * cost_by_hand(x, x)).sum()

    loss = SinkhornDivergence(iterations=2, plan_gradient=plan_gradient)
    (gradient,) = gradients_of(lambda x: loss(Y, x))(start)[1]
    for index in np.ndindex(*start.shape):
        step = np.zeros(start.shape)
        step[index] = 1e-5
        np.testing.assert_allclose(gradient[index], (by_hand(start + step) - by_hand(start - step)) / 2e-5, atol=1e-4)


@pytest.mark.parametrize("jit", [False, True], ids=way)
@pytest.mark.parametrize("options", [{}, {"cost": "l2"}, {"epsilon": 1e-3}, {"epsilon": 1e-3, "plan_gradient": True}])
def test_value_and_gradients_are_finite_for_zeros_and_a_small_epsilon(options, jit):
    options = options | ({"iterations": 4} if jit else {})  # a longer program takes longer to compile
    some, zeros = X.copy(), np.zeros_like(X)
    some[1] = some[3] = 0
    function = gradients_of(lambda y, x: SinkhornDivergence(**options)(y, x, WEIGHTS), jit)
    for x, y in ((zeros, Y), (zeros, zeros), (some, some), (1e5 * X, Y), (X, Y)):
        value, gradients = function(y, x)
        assert np.isfinite(value) and all(np.isfinite(gradient).all() for gradient in gradients)


def test_half_precision_is_computed_in_float32():
    half = [ops.cast(x, "bfloat16") for x in (Y, X)]
    for function in (transport_cost, lambda x, y: sinkhorn(x[:, :3])):
        assert keras.backend.standardize_dtype(function(*half).dtype) == "float32"


def test_trains_a_network():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4)])
    model.compile(keras.optimizers.Adam(0.1), SinkhornDivergence(iterations=4), jit_compile=JIT, run_eagerly=EAGER)
    losses = model.fit(X, Y, epochs=10, batch_size=5, shuffle=False, verbose=0).history["loss"]
    assert losses[-1] < 0.5 * losses[0]
    by_hand = divergence_by_hand(model.predict(X, verbose=0), Y, iterations=4)
    np.testing.assert_allclose(model.evaluate(X, Y, verbose=0), by_hand, atol=1e-5)


def test_weights_for_all_and_as_a_list():
    plain = float(SinkhornDivergence()(Y, X))
    assert float(SinkhornDivergence()(Y, X, 2.0)) == pytest.approx(2 * plain, rel=1e-5)
    assert float(SinkhornDivergence()(Y, X, [1.0] * 5)) == pytest.approx(plain, rel=1e-5)


def test_what_does_not_fit_is_named():
    for epsilon in (0, -1, True, "1", None, float("inf"), float("nan")):
        for make in (lambda e: SinkhornDivergence(epsilon=e), lambda e: sinkhorn(COST, e)):
            with pytest.raises(ValueError, match=f"`epsilon`.*Received: {epsilon!r}"):
                make(epsilon)
    for iterations in (0, 2.5):
        for make in (lambda n: SinkhornDivergence(iterations=n), lambda n: sinkhorn(COST, iterations=n)):
            with pytest.raises(ValueError, match=f"`iterations`.*Received: {iterations}"):
                make(iterations)
    for make in (SinkhornDivergence, lambda cost: transport_cost(X, Y, cost)):
        with pytest.raises(ValueError, match="`cost`.*Received: 'l1'"):
            make("l1")
    for of, name in ((SinkhornDivergence, "unbiased"), (SinkhornDivergence, "plan_gradient")):
        with pytest.raises(ValueError, match=f"`{name}` must be true or false. Received: 3"):
            of(**{name: 3})
    with pytest.raises(ValueError, match=r"Received arrays of shape \(5, 4\) and \(5, 3\)"):
        transport_cost(X, Y[:, :3])
    with pytest.raises(ValueError, match=r"Received arrays of shape \(2, 5, 4\) and \(3, 5, 4\)"):
        transport_cost(np.stack([X, X]), np.stack([X, X, X]))
    assert transport_cost(np.stack([X]), np.stack([X, X, X])).shape == (3, 5, 5)
    with pytest.raises(ValueError, match=r"one a sample.*Received weights of shape \(5, 4\)"):
        SinkhornDivergence()(Y, X, np.ones((5, 4)))
    with pytest.raises(ValueError, match=r"one a sample.*Received weights of shape \(4,\) for 5 samples"):
        SinkhornDivergence()(Y, X, np.ones(4))
    with pytest.raises(ValueError, match=r"Each of 3 samples needs a mass. Received masses of shape \(4,\)"):
        sinkhorn(COST, rows=np.ones(4) / 4)
    with pytest.raises(ValueError, match=r"`cost` is .*Received shape \(3,\)"):
        sinkhorn(COST[0])
