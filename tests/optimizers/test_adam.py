import functools

import keras
import numpy as np
import pytest
from backend import BACKEND, array, way

from tf_capsules.optimizers import Adam


def problem(scale):
    random = np.random.default_rng(0)
    return random.normal(size=7).astype("float32"), (scale * random.normal(size=(20, 7))).astype("float32")


@functools.cache  # two tests use it: against the formula and against TensorFlow
def ours(scale, of=Adam):
    start, gradients = problem(scale)
    weight, optimizer = keras.Variable(start), of(0.1)
    for gradient in gradients:
        optimizer.apply([keras.ops.convert_to_tensor(gradient)], [weight])
    return array(weight.value)


def of_numpy(scale):
    weight, gradients = problem(scale)
    weight, mean, square = weight.astype("float64"), 0, 0
    for t, gradient in enumerate(gradients, start=1):
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * np.float64(gradient) ** 2
        weight = weight - 0.1 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) * mean / (np.sqrt(square) + 1e-8)
    return weight


def relative_error(actual, expected, scale):
    return np.abs(actual - expected).max() / np.abs(expected - problem(scale)[0]).max()


@pytest.mark.parametrize("scale", [1e-3, 1e-5, 1e-7])
def test_small_gradients_move_the_weights_as_the_formula_says(scale):
    assert relative_error(ours(scale), of_numpy(scale), scale) < 5e-5
    assert relative_error(ours(scale, keras.optimizers.Adam), of_numpy(scale), scale) > 5e-4


@pytest.mark.skipif(BACKEND != "tensorflow", reason="TensorFlow's optimizer is the oracle")
@pytest.mark.parametrize("scale", [1e-3, 1e-5, 1e-7])
def test_small_gradients_move_the_weights_as_in_tensorflow(scale):
    import tensorflow as tf

    start, gradients = problem(scale)
    weight, optimizer = tf.Variable(start, dtype="float64"), tf.compat.v1.train.AdamOptimizer(0.1)
    for gradient in gradients:
        optimizer.apply_gradients([(tf.constant(gradient, "float64"), weight)])
    assert relative_error(of_numpy(scale), weight.numpy(), scale) < 1e-5  # TensorFlow's powers are float32
    assert relative_error(ours(scale), weight.numpy(), scale) < 5e-5


@pytest.mark.skipif(BACKEND != "tensorflow", reason="the kernel is TensorFlow's")
@pytest.mark.parametrize("jit", [False, True], ids=way)
def test_the_kernel_updates_weights_and_moments_as_keras_does(jit, monkeypatch):
    import tensorflow as tf

    def trained(optimizer):
        random = np.random.default_rng(1)
        weights = [keras.Variable(random.normal(size=shape).astype("float32")) for shape in ((3, 4), (5,), ())]
        optimizer.build(weights)

        @tf.function(jit_compile=jit, autograph=False)
        def step(*gradients):
            optimizer.apply(gradients, weights)

        for _ in range(6):
            step(*(tf.constant(random.normal(size=weight.shape), "float32") for weight in weights))
        return [array(x.value) for x in (*weights, *optimizer.variables)]

    options = dict(
        learning_rate=keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5),
        epsilon=1e-4,
        weight_decay=0.01,
        gradient_accumulation_steps=2,
        use_ema=True,
    )
    of_keras = trained(keras.optimizers.Adam(**options))
    monkeypatch.delattr(keras.optimizers.Adam, "update_step")  # the kernel alone
    for found, expected in zip(trained(Adam(**options)), of_keras, strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)  # the kernel's 1 - beta_2 is float32


def test_config_round_trip():
    optimizer = Adam(0.3, 0.8, 0.99, clipnorm=2.0)
    other = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(optimizer))
    assert type(other) is Adam and other.get_config() == optimizer.get_config()
    assert other.epsilon == 1e-8
