import keras
import pytest
from analysis.cost_rows import row_of

from tf_capsules.analysis import estimate_cost
from tf_capsules.analysis.graph_costs import peak_tensors
from tf_capsules.layers import DynamicRouting

if keras.backend.backend() != "tensorflow":
    pytest.skip("costs of layers are read off TensorFlow's graphs", allow_module_level=True)

MEBIBYTE = 2**20


@pytest.mark.parametrize(
    "layer, shape, count",
    [
        (keras.layers.Dense(5, activation="relu"), (7,), 3 * 7 * 5),
        (keras.layers.Dense(5), (2, 7), 3 * 2 * 7 * 5),
        (keras.layers.Conv2D(5, (3, 2), strides=2, data_format="channels_last"), (9, 8, 4), 3 * 4 * 4 * 5 * 3 * 2 * 4),
        (keras.layers.DepthwiseConv2D(3, data_format="channels_last"), (9, 8, 4), 3 * 7 * 6 * 4 * 9),
        (keras.layers.EinsumDense("abc,cde->abde", (None, 5, 6)), (2, 7), 3 * 2 * 7 * 5 * 6),
        (keras.layers.EinsumDense("...x,xy->...y", 5), (2, 7), 3 * 2 * 7 * 5),
        (keras.layers.ReLU(), (7,), 0),
    ],
    ids=["dense", "dense of a sequence", "convolution", "depthwise", "einsum", "einsum with an ellipsis", "relu"],
)
def test_multiply_adds_of_kerass_layers(layer, shape, count):
    row = row_of(layer, shape)
    assert row.multiply_adds == count


def test_multiply_adds_of_dynamic_routing():
    """The first iteration weighs the poses with the couplings and multiplies them by the matrix of all parents at once.

    Squash takes the squared length of each parent, computes one factor from it, and multiplies the parent's entries.
    """
    batch, children, d, parents, e = 3, 11, 4, 5, 6
    one = row_of(DynamicRouting(parents, e, iterations=1), (children, d)).multiply_adds
    products = batch * children * d * (1 + parents * e)
    squash = one - products
    assert 0 < squash <= batch * parents * (2 * e + 5)
    two = row_of(DynamicRouting(parents, e, iterations=2), (children, d)).multiply_adds
    # A second iteration maps parents to the children's space, compares them there, then weighs and maps the children.
    again = 2 * batch * children * parents * d * (e + 1)
    assert two == one + again + squash


class Rounds(keras.layers.Layer):
    """Three products in a loop."""

    def __init__(self, start, end, inclusive):
        super().__init__()
        self.start, self.end, self.inclusive = start, end, inclusive

    def call(self, x):
        def goes_on(i, x):
            return i <= self.end if self.inclusive else i < self.end

        return keras.ops.while_loop(goes_on, lambda i, x: (i + 1, keras.ops.matmul(x, x)), (self.start, x))[1]

    def compute_output_shape(self, input_shape):
        return input_shape


@pytest.mark.parametrize("loop", [(0, 3, False), (2, 5, False), (2, 4, True), (-1, 2, False)])
def test_a_loop_counts_its_rounds_from_its_start(loop):
    assert row_of(Rounds(*loop), (4, 4)).multiply_adds == 3 * 3 * 4**3


def test_gradients_of_strided_convolutions():
    images = keras.Input((17, 17, 4))
    options = dict(kernel_size=3, strides=2, use_bias=False, data_format="channels_last")
    x = keras.layers.Conv2D(8, **options)(keras.layers.Conv2D(8, **options)(images))
    model = keras.Model(images, keras.layers.GlobalAveragePooling2D(data_format="channels_last")(x))
    model.compile("sgd", "mse", jit_compile=False)
    first, second = 8 * 8 * 8 * 9 * 4, 3 * 3 * 8 * 9 * 8
    # The gradients of each kernel, and that of the second convolution's input; next to it all else is small.
    assert estimate_cost(model, 8).multiply_adds == pytest.approx(8 * (2 * first + 3 * second), rel=0.05)


def test_memory_counted_by_hand():
    """A chain without a gradient holds two layers' results at a time."""
    inputs = keras.Input((2**18,))
    x = keras.layers.Reshape((2**9, 2**9))(inputs)
    x = keras.layers.Permute((2, 1))(x)  # 1 MiB an example
    x = keras.layers.ReLU()(x)  # 1 MiB more; the first is free after this layer
    x = keras.layers.Permute((2, 1))(x)
    cost = estimate_cost(keras.Model(inputs, keras.layers.Permute((2, 1))(x)), 3, training=False)
    assert cost.memory["activations"] + cost.memory["working"] == 2 * 3 * MEBIBYTE
    assert cost.memory["inputs"] == 3 * MEBIBYTE


def test_an_axis_that_only_the_run_knows_is_not_counted():
    import tensorflow as tf

    class Chosen(keras.layers.Layer):
        def call(self, x):
            rows = tf.boolean_mask(x, x[:, 0] > 0)
            return x + tf.reduce_sum(tf.matmul(rows, rows, transpose_a=True) + tf.einsum("ni,nj->ij", rows, rows))

        def compute_output_spec(self, x):
            return keras.KerasTensor(x.shape, x.dtype)

    assert row_of(Chosen(), (5,)).multiply_adds < 100


def test_results_of_a_custom_gradient_are_held_each_by_itself():
    import tensorflow as tf

    @tf.custom_gradient
    def both(a, b):
        return (tf.identity(a), tf.identity(b)), lambda x, y: (x, y)

    def function(x):
        first, second = both(x + 1, x + 2)  # 1 MiB each, which are there while the sum is computed
        return first + tf.reduce_sum(tf.concat([second, second], 0))  # 2 MiB

    traced = tf.function(function, autograph=False).get_concrete_function(tf.TensorSpec((2**18,)))
    assert 4 * MEBIBYTE <= sum(size for size, _ in peak_tensors(traced.graph)) < 4 * MEBIBYTE + 100
