import keras
import numpy as np
import pytest

from tf_capsules.layers import BatchNormalization

SHAPE = (4, 5, 3, 6)


def train_both(dtype="float32", shape=SHAPE, mask=None, trainable=True, **options):
    """For Keras's layer, then ours: outputs, gradients of the inputs and the weights, and the weights after a step."""
    tf = pytest.importorskip("tensorflow")
    random = np.random.default_rng(0)
    x = tf.cast(random.normal(2.0, 3.0, shape), dtype)
    upstream = tf.cast(random.normal(size=shape), dtype)
    for kind in (keras.layers.BatchNormalization, BatchNormalization):
        policy = {"float32": "float32", "float64": "float64"}.get(dtype, f"mixed_{dtype}")
        layer = kind(dtype=policy, trainable=trainable, **options)
        layer.build(shape)
        for weight in layer.weights:
            weight.assign(np.random.default_rng(1).uniform(0.5, 1.5, weight.shape))
        weights = [weight.value for weight in layer.trainable_weights]
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True, mask=mask)
        assert y.dtype == x.dtype
        gradients = tape.gradient(y, [x, *weights], upstream)
        yield [np.float64(value) for value in (y, *gradients, *layer.get_weights())]


def check_same(tolerance=2e-6, **options):
    expected, actual = train_both(**options)
    assert len(expected) == len(actual) >= 4
    for left, right in zip(expected, actual, strict=True):
        np.testing.assert_allclose(right, left, atol=tolerance * np.abs(left).max())


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("center", [True, False])
def test_a_step_is_that_of_keras(scale, center):
    check_same(scale=scale, center=center, momentum=0.8, epsilon=1e-2)


@pytest.mark.parametrize("dtype, tolerance", [("bfloat16", 0.02), ("float16", 2e-3)])
def test_a_step_in_half_precision(dtype, tolerance):
    check_same(tolerance, dtype=dtype)


@pytest.mark.parametrize(
    "options",
    [
        {"shape": (7, 6)},
        {"axis": 1},
        {"dtype": "float64"},
        {"mask": np.arange(60).reshape(4, 5, 3) % 3 > 0},
        {"trainable": False},
        {"renorm": True},
    ],
    ids=repr,
)
def test_what_the_kernel_does_not_compute_is_left_to_keras(options):
    if "renorm" in options and not hasattr(BatchNormalization(), "renorm"):
        pytest.skip("this Keras has no renormalization")
    check_same(1e-6, **options)


def test_a_batch_of_no_examples_changes_nothing():
    if keras.backend.backend() != "tensorflow":
        pytest.skip("Keras's own computation makes NaN of it")
    layer = BatchNormalization()
    layer.build((None, 3, 3, 2))
    before = layer.get_weights()
    layer(np.zeros((0, 3, 3, 2), "float32"), training=True)
    for weight, old in zip(layer.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, old)


def test_one_number_a_channel():
    """The unbiased variance of one number would be 0 / 0."""
    check_same(1e-5, shape=(1, 1, 1, 6))


def test_inference_is_that_of_keras():
    layers = [kind(momentum=0.8) for kind in (keras.layers.BatchNormalization, BatchNormalization)]
    x = np.random.default_rng(0).normal(size=SHAPE).astype("float32")
    layers[0].build(SHAPE)
    layers[1].build(SHAPE)
    layers[1].set_weights([np.full(weight.shape, 0.3) for weight in layers[0].weights])
    layers[0].set_weights(layers[1].get_weights())
    expected, actual = (keras.ops.convert_to_numpy(layer(x)) for layer in layers)
    np.testing.assert_array_equal(actual, expected)
