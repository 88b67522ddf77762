import functools
import itertools

import keras
import numpy as np
import pytest
from backend import array
from optimizers.pytorch import job, needs_torch, weights_after

from tf_capsules.optimizers import Adam, CoupledAdam, CoupledRMSprop, CoupledSGD

STEPS, SCALES = 20, (1e-3, 1e-5, 1e-7)
SHARES = 0, 0.5  # ratio of the weight decay to the size of the gradients


def sgd(momentum=0.9, nesterov=False):
    """Returns the update before the learning rate, as PyTorch computes it from each step's gradient and number."""
    buffer = 0

    def step(gradient, t):
        nonlocal buffer
        buffer = momentum * buffer + gradient
        return gradient + momentum * buffer if nesterov else buffer

    return step


def adam(beta_1=0.9, beta_2=0.999, epsilon=1e-8, amsgrad=False):
    mean = square = largest = 0

    def step(gradient, t):
        nonlocal mean, square, largest
        mean, square = beta_1 * mean + (1 - beta_1) * gradient, beta_2 * square + (1 - beta_2) * gradient**2
        largest = np.maximum(largest, square) if amsgrad else square
        return mean / (1 - beta_1**t) / (np.sqrt(largest / (1 - beta_2**t)) + epsilon)

    return step


def rmsprop(rho=0.9, momentum=0.9, epsilon=1e-8, centered=True):
    mean = square = buffer = 0

    def step(gradient, t):
        nonlocal mean, square, buffer
        mean, square = rho * mean + (1 - rho) * gradient, rho * square + (1 - rho) * gradient**2
        buffer = momentum * buffer + gradient / (np.sqrt(square - centered * mean**2) + epsilon)
        return buffer

    return step


# name: (our class, the NumPy reference, PyTorch's name, the options)
OPTIMIZERS = {
    "SGD": (CoupledSGD, sgd, "SGD", {"momentum": 0.9}),
    "SGD without momentum": (CoupledSGD, sgd, "SGD", {"momentum": 0.0}),
    "SGD, Nesterov": (CoupledSGD, sgd, "SGD", {"momentum": 0.9, "nesterov": True}),
    "Adam": (CoupledAdam, adam, "Adam", {}),
    "Adam without momentum": (CoupledAdam, adam, "Adam", {"beta_1": 0.0}),
    "AMSGrad": (CoupledAdam, adam, "Adam", {"amsgrad": True}),
    "RMSprop": (CoupledRMSprop, rmsprop, "RMSprop", {"rho": 0.9, "momentum": 0.9, "centered": True}),
    "RMSprop without momentum": (CoupledRMSprop, rmsprop, "RMSprop", {"momentum": 0.0, "centered": True, "rho": 0.99}),
    "RMSprop, not centered": (CoupledRMSprop, rmsprop, "RMSprop", {"momentum": 0.9, "centered": False, "rho": 0.99}),
}


def problem(name, scale):
    """Start, gradients of size `scale`, and learning rates that drop in the middle."""
    random = np.random.default_rng(0)
    start, gradients = random.normal(size=7), scale * random.normal(size=(STEPS, 7))
    rate = {"SGD": 0.03 / scale, "Adam": 0.1, "RMSprop": 0.01}[OPTIMIZERS[name][2]]
    return start.astype("float32"), gradients.astype("float32"), [rate] * (STEPS // 2) + [rate / 10] * (STEPS // 2)


@functools.cache  # two tests use it: against the formulas and against PyTorch
def ours(name, scale, decay):
    of, _, _, options = OPTIMIZERS[name]
    start, gradients, rates = problem(name, scale)
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([STEPS // 2 - 1], [rates[0], rates[-1]])
    weight, optimizer = keras.Variable(start), of(schedule, decay=decay, **options)
    for gradient in gradients:
        optimizer.apply([keras.ops.convert_to_tensor(gradient)], [weight])
    return array(weight.value)


def of_numpy(name, scale, decay):
    _, reference, _, options = OPTIMIZERS[name]
    start, gradients, rates = problem(name, scale)
    weight, step = start.astype("float64"), reference(**options)
    for t, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        weight = weight - rate * step(gradient + decay * weight, t)
    return weight


@functools.cache
def of_torch():
    """The weights of all cases, from one process."""
    cases, jobs = list(itertools.product(OPTIMIZERS, SCALES, SHARES)), []
    for name, scale, share in cases:
        _, _, of, options = OPTIMIZERS[name]
        options = {"alpha" if key == "rho" else key: value for key, value in options.items()}
        jobs.append(job(of, *problem(name, scale), weight_decay=share * scale, **options))
    return dict(zip(cases, weights_after(jobs), strict=True))


def relative_error(actual, expected, start):
    return np.abs(actual - expected).max() / np.abs(expected - start).max()


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_small_gradients_move_the_weights_as_the_formulas_say(name, scale, share):
    start, *_ = problem(name, scale)
    expected = of_numpy(name, scale, share * scale)
    assert np.abs(expected - start).max() > 0.1
    assert relative_error(ours(name, scale, share * scale), expected, start) < 2e-5


@needs_torch
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_small_gradients_move_the_weights_as_in_pytorch(name, scale, share):
    start, *_ = problem(name, scale)
    expected = of_torch()[name, scale, share]
    assert relative_error(of_numpy(name, scale, share * scale), expected, start) < 1e-9
    assert relative_error(ours(name, scale, share * scale), expected, start) < 2e-5


def test_a_gradient_that_does_not_change_leaves_finite_weights():
    weight, optimizer = keras.Variable([1.0, -2.0]), CoupledRMSprop(1e-4, decay=0)
    for _ in range(300):  # by then the variance is a rounding error of either sign
        optimizer.apply([keras.ops.convert_to_tensor(np.array([0.1, 0.7], "float32"))], [weight])
    assert np.isfinite(array(weight.value)).all()


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_decay_is_a_part_of_the_gradient(momentum):
    random = np.random.default_rng(0)
    start, gradients = random.normal(size=5).astype("float32"), random.normal(size=(4, 5)).astype("float32")
    weight = keras.Variable(start)
    optimizer = CoupledSGD(0.1, momentum=momentum, decay=0.2)
    expected, velocity = start.astype("float64"), 0
    for gradient in gradients:
        optimizer.apply([keras.ops.convert_to_tensor(gradient)], [weight])
        velocity = momentum * velocity + gradient + 0.2 * expected
        expected = expected - 0.1 * velocity
    np.testing.assert_allclose(array(weight.value), expected, rtol=1e-5)


def test_weights_may_be_left_out_of_the_decay():
    decayed, left = keras.Variable([1.0], name="kernel"), keras.Variable([1.0], name="bias")
    optimizer = CoupledSGD(0.1, momentum=0.0, decay=0.5)
    optimizer.exclude_from_weight_decay(var_list=[left])
    optimizer.apply([np.zeros(1, "float32")] * 2, [decayed, left])
    assert (float(array(decayed)[0]), float(array(left)[0])) == (pytest.approx(0.95), 1.0)


def test_the_moments_of_adam_see_the_decay():
    random = np.random.default_rng(1)
    start, gradients = random.normal(size=5).astype("float32"), random.normal(size=(4, 5)).astype("float32")
    weight = keras.Variable(start)
    optimizer = CoupledAdam(0.1, decay=0.2)
    expected, mean, square = start.astype("float64"), 0, 0
    for step, gradient in enumerate(gradients, start=1):
        optimizer.apply([keras.ops.convert_to_tensor(gradient)], [weight])
        gradient = gradient + 0.2 * expected
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
        expected = expected - 0.1 * (mean / (1 - 0.9**step)) / np.sqrt(square / (1 - 0.999**step))
    np.testing.assert_allclose(array(weight.value), expected, atol=1e-5)


@pytest.mark.parametrize(
    "optimizer",
    [
        CoupledSGD(0.3, momentum=0.5, decay=0.01, nesterov=True),
        CoupledAdam(0.3, beta_1=0.5, decay=0.01),
        CoupledRMSprop(0.3, rho=0.5, decay=0.01),
    ],
)
def test_config_round_trip(optimizer):
    other = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(optimizer))
    assert type(other) is type(optimizer) and other.get_config() == optimizer.get_config()


@pytest.mark.parametrize("of", [CoupledAdam, CoupledRMSprop, CoupledSGD])
def test_a_negative_decay_is_named(of):
    with pytest.raises(ValueError, match="`decay`.*Received: -1"):
        of(decay=-1)


@pytest.mark.parametrize(
    ("of", "name"), [(Adam, "beta_1"), (Adam, "beta_2"), (CoupledAdam, "beta_1"), (CoupledAdam, "beta_2")]
)
@pytest.mark.parametrize("value", [1.0, -0.1, float("nan")])
def test_a_decay_of_the_moments_of_1_or_more_is_named(of, name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be a number in .*Received: {value}"):
        of(**{name: value})


def test_a_decay_of_the_squares_of_1_is_named():
    with pytest.raises(ValueError, match="`rho` must be a number in .*Received: 1.0"):
        CoupledRMSprop(rho=1.0)
