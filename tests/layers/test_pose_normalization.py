import keras
import numpy as np
import pytest

from tf_capsules.layers.pose_normalization import PoseNormalization

tf = pytest.importorskip("tensorflow")
POSES = (3, 4, 5, 2, 4, 3)


def step(layer, x, upstream, wrap):
    """Outputs; gradients of the inputs, gain and offset; then the gradients of the input gradient's squared size."""

    @wrap
    def run(x, upstream):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = layer(x)
            gradients = tape.gradient(y, [x, *layer.trainable_weights], upstream)
            size = tf.reduce_sum(tf.square(tf.cast(gradients[0], "float64")))
        return y, *gradients, *outer.gradient(size, [x, layer.trainable_weights[0].value])

    return run(x, upstream)


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "graph"])
@pytest.mark.parametrize(
    "dtype, tolerance", [("float32", 5e-6), ("float64", 1e-12), ("mixed_bfloat16", 2e-2), ("mixed_float16", 2e-3)]
)
def test_values_and_gradients_are_those_of_keras(dtype, tolerance, wrap):
    random = np.random.default_rng(0)
    x, upstream = (random.normal(1.0, 2.0, POSES) for _ in range(2))
    layers = PoseNormalization(POSES[-2:], dtype=dtype), keras.layers.LayerNormalization((-2, -1), 1e-5, dtype=dtype)
    weights = random.uniform(0.5, 1.5, (2, *POSES[-2:]))
    results = []
    for layer in layers:
        layer.build((None, *POSES[1:]))
        layer.set_weights(weights)
        given = (tf.cast(values, layer.compute_dtype) for values in (x, upstream))
        results.append(step(layer, *given, wrap))
    for actual, expected in zip(*results, strict=True):
        assert actual.dtype == expected.dtype and actual.shape == expected.shape
        actual, expected = np.float64(actual), np.float64(expected)
        np.testing.assert_allclose(actual, expected, atol=tolerance * np.abs(expected).max())


def test_a_pose_of_equal_entries_gets_the_offset_and_a_finite_gradient():
    layer = PoseNormalization((4,))
    layer.build((None, 4))
    x = tf.fill((2, 4), 7.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x)
    np.testing.assert_array_equal(y, np.zeros((2, 4)))
    assert np.isfinite(tape.gradient(y, x, x)).all()


def test_a_batch_of_none():
    assert PoseNormalization((4,))(np.zeros((0, 3, 4), "float32")).shape == (0, 3, 4)
