import keras
import numpy as np
import pytest
from backend import BACKEND, EAGER, JIT, array, compiled, slow_on_jax, way
from keras import ops
from optimizers.pytorch import job, needs_torch, weights_after
from oracle import HEINSEN

from tf_capsules.optimizers import RAdam, one_cycle


def reference(parameters, gradients, rates, betas, beta_2=0.999, epsilon=1e-8, threshold=5):
    """Plain RAdam in float64: the parameters after each step."""
    parameters = [np.float64(p) for p in parameters]
    m, v = [[np.zeros_like(p) for p in parameters] for _ in range(2)]
    rho_inf = 2 / (1 - beta_2) - 1
    history = []
    for t, (step_gradients, rate, beta_1) in enumerate(zip(gradients, rates, betas, strict=True), 1):
        power = beta_2**t
        rho = rho_inf - 2 * t * power / (1 - power)
        for i, g in enumerate(np.float64(g) for g in step_gradients):
            m[i] = beta_1 * m[i] + (1 - beta_1) * g
            v[i] = beta_2 * v[i] + (1 - beta_2) * g * g
            if rho >= threshold:
                rectified = (rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho)
                size = rate * np.sqrt((1 - power) * rectified) / (1 - beta_1**t)
                parameters[i] = parameters[i] - size * m[i] / (np.sqrt(v[i]) + epsilon)
            else:
                parameters[i] = parameters[i] - rate / (1 - beta_1**t) * m[i]
        history.append(list(parameters))
    return history


def random_problem(steps, scale=1.0):
    rng = np.random.default_rng(0)
    shapes = [(2, 3), (5,), (1, 4, 2)]
    parameters = [rng.normal(size=shape).astype("float32") for shape in shapes]
    gradients = [[(scale * rng.normal(size=shape)).astype("float32") for shape in shapes] for _ in range(steps)]
    return parameters, gradients


def stepping(optimizer, weights):
    """A function that applies gradients; compiled on JAX, which otherwise compiles a condition at each call."""
    if BACKEND != "jax":
        return lambda gradients: optimizer.apply([ops.convert_to_tensor(g) for g in gradients], weights)
    optimizer.build(weights)
    apply = compiled(optimizer.stateless_apply)

    def step(gradients):
        results = apply([v.value for v in optimizer.variables], gradients, [w.value for w in weights])
        for variables, values in zip((weights, optimizer.variables), results, strict=True):
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)

    return step


def test_the_scalar_case_step_by_step():
    weight, optimizer = keras.Variable(1.0), RAdam(0.01)
    step = stepping(optimizer, [weight])
    for t, rho, wanted in HEINSEN["E_radam_scalar"]["rows"]:
        np.testing.assert_allclose(array(optimizer._rho(ops.cast(t, "float32"), ops)), rho, atol=1e-3)
        assert np.isfinite(array(optimizer._rectification(ops.cast(t, "float32"))))
        step([np.float32(np.sin(t) + 0.5)])
        np.testing.assert_allclose(array(weight.value), wanted, atol=1e-6)


@pytest.mark.parametrize(
    ("beta_2", "threshold"),
    # The second one is never adaptive.
    [(0.999, 5), *(pytest.param(*pair, marks=slow_on_jax) for pair in ((0.5, 4), (0.999, 4), (0.9999, 5), (0.9, 12)))],
)
def test_several_parameters_follow_the_formulas(beta_2, threshold):
    steps = 24
    parameters, gradients = random_problem(steps)
    rate, beta_1 = one_cycle(1e-5, 0.1, steps, 0.25), one_cycle(0.6, 0.95, steps, 0.25, inverted=True)
    rates, betas = ([float(array(schedule(k))) for k in range(steps)] for schedule in (rate, beta_1))
    want = reference(parameters, gradients, rates, betas, beta_2, threshold=threshold)
    weights = [keras.Variable(p) for p in parameters]
    step = stepping(RAdam(rate, beta_1, beta_2, threshold=threshold), weights)
    for i, step_gradients in enumerate(gradients):
        step(step_gradients)
        for weight, wanted in zip(weights, want[i], strict=True):
            np.testing.assert_allclose(array(weight.value), wanted, atol=1e-5)
    assert np.abs(want[-1][0] - parameters[0]).max() > 0.05


def relative_errors(actual, expected, start):
    return [np.abs(a - e).max() / np.abs(e - s).max() for a, e, s in zip(actual, expected, start, strict=True)]


@pytest.mark.parametrize("scale", [1e-3, 1e-5, 1e-7])
def test_small_gradients_move_the_weights_as_the_formulas_say(scale):
    parameters, gradients = random_problem(20, scale)
    expected = reference(parameters, gradients, [0.1] * 20, [0.9] * 20)[-1]
    weights = [keras.Variable(p) for p in parameters]
    step = stepping(RAdam(0.1), weights)
    for step_gradients in gradients:
        step(step_gradients)
    assert max(relative_errors([array(w.value) for w in weights], expected, parameters)) < 5e-5


@needs_torch
def test_the_formulas_are_pytorch_s_at_a_constant_beta_1():
    problems = [random_problem(20, scale) for scale in (1e-3, 1e-5, 1e-7)]
    jobs = [job("RAdam", parameters[1], [g[1] for g in gradients], [0.1] * 20) for parameters, gradients in problems]
    for (parameters, gradients), expected in zip(problems, weights_after(jobs), strict=True):
        formulas = reference(parameters, gradients, [0.1] * 20, [0.9] * 20)[-1]
        assert max(relative_errors(formulas[1:2], [expected], parameters[1:2])) < 1e-9


def test_the_paper_s_threshold_is_adaptive_one_step_earlier():
    assert RAdam()._first_adaptive_step == 6 and RAdam(beta_2=0.9999)._first_adaptive_step == 6
    assert RAdam(threshold=4)._first_adaptive_step == 5
    assert RAdam(beta_2=0.5)._first_adaptive_step is None


def test_zero_gradients_leave_finite_weights():
    weight, optimizer = keras.Variable([1.0, -2.0]), RAdam(0.1, epsilon=1e-8)
    for _ in range(8):
        optimizer.apply([ops.zeros(2)], [weight])
    np.testing.assert_array_equal(array(weight.value), [1.0, -2.0])


@pytest.mark.skipif(BACKEND != "tensorflow", reason="the optimizer's state lives in variables")
@pytest.mark.parametrize("jit", [False, True], ids=way)
def test_a_compiled_step_is_the_eager_one(jit):
    import tensorflow as tf

    parameters, gradients = random_problem(9)

    def train(wrap):
        weights = [keras.Variable(p) for p in parameters]
        optimizer = RAdam(0.1, one_cycle(0.81, 0.9, 9, 0.3, inverted=True), global_clipnorm=2.0, weight_decay=0.01)
        optimizer.build(weights)
        step = wrap(lambda *gradients: optimizer.apply(gradients, weights))
        for step_gradients in gradients:
            step(*map(tf.constant, step_gradients))
        return [array(weight.value) for weight in weights]

    for eager, graph in zip(
        train(lambda step: step), train(tf.function(jit_compile=jit, autograph=False)), strict=True
    ):
        np.testing.assert_allclose(graph, eager, atol=1e-6)


@pytest.mark.skipif(BACKEND != "jax", reason="a stateless update is JAX's form")
def test_a_stateless_compiled_step_is_the_eager_one():
    parameters, gradients = random_problem(9)
    weights, other = ([keras.Variable(p) for p in parameters] for _ in range(2))
    eager, stateless = (RAdam(0.1, one_cycle(0.81, 0.9, 9, 0.3, inverted=True)) for _ in range(2))
    stateless.build(other)
    values, state = [w.value for w in other], [v.value for v in stateless.variables]
    step = compiled(lambda state, gradients, values: stateless.stateless_apply(state, gradients, values))
    for step_gradients in gradients:
        eager.apply([ops.convert_to_tensor(g) for g in step_gradients], weights)
        values, state = step(state, [ops.convert_to_tensor(g) for g in step_gradients], values)
    for weight, value in zip(weights, values, strict=True):
        np.testing.assert_allclose(array(value), array(weight.value), atol=1e-6)


def network(steps=12):
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(5, "tanh"), keras.layers.Dense(3)])
    optimizer = RAdam(one_cycle(1e-5, 0.05, steps), one_cycle(0.81, 0.9, steps, inverted=True))
    model.compile(optimizer, "mse", jit_compile=JIT, run_eagerly=EAGER)
    model.optimizer.build(model.trainable_variables)
    return model


def batches():
    rng = np.random.default_rng(1)
    return rng.normal(size=(48, 4)).astype("float32"), rng.normal(size=(48, 3)).astype("float32")


@pytest.mark.long
def test_training_goes_on_from_saved_state_as_if_not_interrupted(tmp_path):
    x, y = batches()
    options = dict(batch_size=8, shuffle=False, verbose=0)
    whole, first, second = network(), network(), network()
    whole.fit(x, y, epochs=2, **options)
    first.fit(x, y, **options)
    first.save_weights(tmp_path / "half.weights.h5")
    second.load_weights(tmp_path / "half.weights.h5")
    assert int(array(second.optimizer.iterations.value)) == 6
    second.fit(x, y, **options)
    for a, b, c in zip(whole.get_weights(), second.get_weights(), first.get_weights(), strict=True):
        np.testing.assert_allclose(b, a, atol=1e-7)
        assert np.abs(a - c).max() > 1e-4


def test_a_saved_model_brings_its_optimizer_back(tmp_path):
    model = network()
    x, y = batches()
    model.fit(x, y, verbose=0)
    model.save(tmp_path / "model.keras")
    other = keras.models.load_model(tmp_path / "model.keras")
    assert other.optimizer.get_config() == model.optimizer.get_config()
    assert other.optimizer.beta_1.get_config() == one_cycle(0.81, 0.9, 12, inverted=True).get_config()
    for a, b in zip(model.optimizer.variables, other.optimizer.variables, strict=True):
        np.testing.assert_array_equal(array(b.value), array(a.value))


def test_config_round_trip():
    assert RAdam.from_config({"learning_rate": 0.25}).get_config()["learning_rate"] == 0.25
    optimizer = RAdam(0.3, 0.8, 0.99, 1e-6, threshold=4, weight_decay=0.1, clipnorm=2.0, use_ema=True)
    config = optimizer.get_config()
    other = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(optimizer))
    assert other.get_config() == config and config["threshold"] == 4 and config["clipnorm"] == 2.0
    weight, copy = keras.Variable([1.0, 2.0]), keras.Variable([1.0, 2.0])
    for value in (1.0, -3.0, 2.0, 0.5, 1.5, -1.0):
        optimizer.apply([value * ops.ones(2)], [weight])
        other.apply([value * ops.ones(2)], [copy])
    np.testing.assert_array_equal(array(copy.value), array(weight.value))


def test_half_precision_variables_keep_their_dtype():
    weight, optimizer = keras.Variable([1.0, 2.0], dtype="bfloat16"), RAdam(0.5)
    for _ in range(7):
        optimizer.apply([ops.ones(2, "bfloat16")], [weight])
    assert weight.dtype == "bfloat16" and np.isfinite(array(weight.value).astype("float32")).all()
    assert float(array(weight.value)[0]) < -1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beta_1": 1.0}, "`beta_1` must be a number in \\[0, 1\\) or a schedule of such. Received: 1.0"),
        (
            {"beta_1": one_cycle(0.5, 1.0, 9, inverted=True)},
            "`beta_1` must be a number in \\[0, 1\\) or a schedule of such. Received: <",
        ),
        ({"beta_2": 1}, "`beta_2` must be between 0 and 1. Received: 1"),
        ({"epsilon": -1e-8}, "`epsilon` must be 0 or more. Received: -1e-08"),
        ({"beta_2": None}, "`beta_2` must be between 0 and 1. Received: None"),
        ({"epsilon": "small"}, "`epsilon` must be 0 or more. Received: 'small'"),
        ({"threshold": "x"}, "`threshold` must be at least 4.* Received: 'x'"),
        ({"threshold": 3.9}, "`threshold` must be at least 4.* Received: 3.9"),
    ],
)
def test_values_out_of_range_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        RAdam(**options)
