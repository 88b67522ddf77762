import keras
import numpy as np
import pytest
from backend import array
from keras import ops

from tf_capsules.layers import CapConv, CapFC


def wave(frequency, *shape):
    """sin(frequency * (1, 2, 3, ...)) in C order."""
    return np.sin(frequency * np.arange(1, np.prod(shape) + 1)).reshape(shape)


def waves(coefficients):
    """A layer of two types whose weights are waves."""
    layer = CapConv(2, strides=2, coefficients=coefficients)
    layer.build((2, 4, 4, 2, 2))
    source = 4 if coefficients == "both" else 2
    kernels = {
        "master": (wave(1.0, 3, 3, 2, 2, 2), wave(0.5, 2, 2)),
        "aide": (wave(0.3, 7, 7, 4, 4), wave(0.7, 4)),
        "master_coefficient": (wave(0.9, 3, 3, 2, source, 1), wave(1.1, 2, 1)),
        "aide_coefficient": (wave(1.3, 3, 3, 2, source, 1), wave(1.7, 2, 1)),
    }
    for name in ("master",) if coefficients is None else kernels:
        getattr(layer, name).set_weights(kernels[name])
    return layer


@pytest.mark.parametrize(
    "coefficients, total", [(None, 6.498132), ("own", 4.917413), ("crossed", 5.357578), ("both", 5.811453)]
)
def test_against_numbers_by_hand(coefficients, total):
    poses = waves(coefficients)(wave(0.37, 2, 4, 4, 2, 2), training=True)
    assert poses.shape == (2, 2, 2, 2, 2)
    np.testing.assert_allclose(array(poses).sum(), total, atol=2e-5)


def squash(x):
    square = np.sum(x**2, axis=-1, keepdims=True)
    return x * np.sqrt(square) / (1 + square)


def test_strided_convolutions_pad_all_sides_alike():
    layer = CapConv(3, kernel_size=5, strides=3)
    poses = np.random.default_rng(0).normal(size=(2, 6, 7, 4, 2))
    result = array(layer(poses))
    kernel, bias = layer.master.get_weights()
    padded = np.pad(poses, [[0, 0], [2, 2], [2, 2], [0, 0], [0, 0]])
    assert result.shape == (2, 2, 3, 4, 3)
    for row in range(2):
        for column in range(3):
            window = padded[:, 3 * row : 3 * row + 5, 3 * column : 3 * column + 5]
            sums = np.einsum("bpqgk,pqgko->bgo", window, kernel) + bias
            expected = squash(np.maximum(sums / np.sqrt(1 + 1e-5), 0))
            np.testing.assert_allclose(result[:, row, column], expected, atol=1e-5)


@pytest.mark.parametrize(
    "options, others", [({}, False), ({"coefficients": "own"}, True), ({"skip": True}, True)], ids=str
)
def test_master_branch_alone_keeps_types_apart(options, others):
    layer = CapConv(2, **options)
    poses = np.random.default_rng(1).normal(size=(2, 3, 4, 5, 3))
    changed = poses.copy()
    changed[:, :, :, 2] += 1
    difference = np.abs(array(layer(poses, training=True)) - array(layer(changed, training=True))).max(
        axis=(0, 1, 2, 4)
    )
    assert difference[2] > 0
    assert (difference[[0, 1, 3, 4]] > 0).any() == others


def test_the_aide_branch_may_leave_out_its_own_type():
    layer = CapConv(2, coefficients="own", exclude_own=True)
    poses = np.random.default_rng(2).normal(size=(2, 3, 4, 5, 3)).astype("float32")
    layer.build(poses.shape)
    for gate, value in ((layer.master_coefficient, 0), (layer.aide_coefficient, 1)):
        gate.set_weights([np.zeros(gate.kernel.shape), np.full(gate.bias.shape, value)])
    changed = poses.copy()
    changed[:, :, :, 2] += 1
    difference = np.abs(array(layer(poses)) - array(layer(changed))).max(axis=(0, 1, 2, 4))
    assert difference[2] == 0 and (difference[[0, 1, 3, 4]] > 0).all()


def test_residual_is_added_before_the_last_activation():
    layer = CapConv(2)
    poses = np.random.default_rng(3).normal(size=(2, 3, 4, 5, 2)).astype("float32")
    layer.build(poses.shape)
    layer.master.set_weights([np.zeros(w.shape) for w in layer.master.get_weights()])
    expected = squash(np.maximum(poses / np.sqrt(1 + 1e-5), 0))
    np.testing.assert_allclose(array(layer(poses, residual=poses)), expected, atol=1e-6)
    with pytest.raises(ValueError, match=r"`residual`.*\(2, 3, 4, 5, 2\).*Received shape \(2, 3, 4, 5, 3\)"):
        layer(poses, residual=np.zeros((2, 3, 4, 5, 3)))
    symbolic = keras.Input((3, 4, 5, 2))
    with pytest.raises(ValueError, match="`residual` must have the shape of the result"):
        CapConv(4)(symbolic, residual=symbolic)
    with pytest.raises(ValueError, match="expected axis 3"):
        layer(np.zeros((2, 3, 4, 10, 1)))


@pytest.mark.parametrize("coefficients", ["own", "crossed", "both"])
def test_co_efficients_are_what_their_convolutions_give(coefficients):
    layer = waves(coefficients)
    for name, value in (("master_coefficient", 0.5), ("aide_coefficient", -2.0)):
        kernel, bias = getattr(layer, name).get_weights()
        getattr(layer, name).set_weights([0 * kernel, 0 * bias + value])
    poses = wave(0.37, 2, 4, 4, 2, 2)
    parents, master, aide = layer(poses, return_coefficients=True)
    assert array(master).shape == array(aide).shape == (2, 2, 2, 2, 1)
    np.testing.assert_allclose(array(master), 0.5)
    np.testing.assert_allclose(array(aide), -2.0)
    np.testing.assert_allclose(array(parents), array(layer(poses)))
    symbolic = layer(keras.Input((4, 4, 2, 2)), return_coefficients=True)
    assert [x.shape for x in symbolic] == [(None, 2, 2, 2, 2), (None, 2, 2, 2, 1), (None, 2, 2, 2, 1)]
    with pytest.raises(ValueError, match="needs a layer with `coefficients`"):
        CapConv(2)(poses, return_coefficients=True)


@pytest.mark.parametrize(
    "options, count",
    [
        # The master convolution of 32 types has 288 d_in d + 32 d parameters; the class describes the branches.
        (dict(dim=2), 288 * 2 + 64 + 64 * 2),
        (dict(dim=2, coefficients="own"), 102_656),
        (dict(dim=2, coefficients="own", skip=True), 102_656 + 18_496),
        (dict(dim=2, coefficients="both"), 102_656 + 2 * 288 * 2),
    ],
    ids=str,
)
def test_parameters(options, count):
    with keras.StatelessScope(initialize_variables=False):
        layer = CapConv(**options)
        layer.build((None, 8, 8, 32, 1))
        assert sum(int(np.prod(w.shape)) for w in layer.trainable_weights) == count


def test_capfc_against_numbers_by_hand():
    layer = CapFC(2)
    layer.build((1, 3, 2))
    layer.set_weights([np.sin(np.arange(12.0)).reshape(2, 3, 2)])
    result = array(layer(np.cos(np.arange(6.0)).reshape(1, 3, 2)))[0]
    np.testing.assert_allclose(result, [[0.056304, -0.622094], [0.658900, -0.157385]], atol=1e-6)


def test_capfc_takes_a_grid_row_by_row():
    layer = CapFC(3)
    poses = np.random.default_rng(4).normal(size=(2, 3, 4, 5, 7))
    on_a_grid = array(layer(poses))
    flat = CapFC(3)
    flat.build((2, 60, 7))
    flat.set_weights(layer.get_weights())
    np.testing.assert_array_equal(on_a_grid, array(flat(ops.reshape(poses, (2, 60, 7)))))
    assert layer.count_params() == 7 * 60 * 3


@pytest.mark.parametrize(
    "make, shape, message",
    [
        (lambda: CapConv(0), None, "`dim`.*Received: 0"),
        (lambda: CapConv(2, kernel_size=4), None, "`kernel_size` must be odd.*Received: 4"),
        (lambda: CapConv(2, strides=(2, 1)), None, r"`strides`.*Received: \(2, 1\)"),
        (lambda: CapConv(2, aide_kernel_size=2), None, "`aide_kernel_size` must be odd.*Received: 2"),
        (lambda: CapConv(2, coefficients="v1"), None, "`coefficients`.*Received: 'v1'"),
        (lambda: CapConv(2), (2, 5, 5, 8), "CapConv takes poses.*Received input shape"),
        (lambda: CapConv(2), (2, 5, 5, None, 8), "number of capsule types"),
        (lambda: CapFC(0), None, "`capsules`.*Received: 0"),
        (lambda: CapFC(2), (2, 5, 5, 8), "CapFC takes poses.*Received input shape"),
        (lambda: CapFC(2), (2, None, 8), "number of children"),
    ],
)
def test_what_does_not_fit_is_named(make, shape, message):
    with pytest.raises(ValueError, match=message):
        make().build(shape)


@pytest.mark.parametrize("poses", [np.zeros((1, 3, 3, 2, 2), "float32"), keras.KerasTensor((1, 3, 3, 2, 2))])
def test_coefficients_of_a_layer_without_are_refused_before_the_model_runs(poses):
    with pytest.raises(ValueError, match="`return_coefficients=True` needs a layer"):
        CapConv(2, coefficients=None)(poses, return_coefficients=True)


@pytest.mark.parametrize("exclude_own", [False, True])
def test_options_of_weights_reach_all_convolutions(exclude_own):
    options = {f"{name}_regularizer": "l2" for name in ("kernel", "bias")}
    options |= {f"{name}_constraint": "non_neg" for name in ("kernel", "bias")}
    options |= {"kernel_initializer": keras.initializers.RandomUniform(2, 3), "bias_initializer": "ones"}
    layer = CapConv(2, coefficients="own", skip=True, exclude_own=exclude_own, **options)
    layer.build((None, 5, 5, 2, 2))
    weights = [weight for weight in layer.weights if weight.name in ("kernel", "bias")]
    assert len(weights) == 10 and all(weight.regularizer and weight.constraint for weight in weights)
    kernels = [array(weight) for weight in weights if weight.name == "kernel"]
    assert all(2 <= kernel.min() and kernel.max() <= 3 for kernel in kernels)
    assert not np.array_equal(*(array(part.kernel) for part in (layer.master_coefficient, layer.aide_coefficient)))
    assert all((array(weight) == 1).all() for weight in weights if weight.name == "bias")
    again = CapConv.from_config(layer.get_config())
    assert isinstance(again.kernel_initializer, keras.initializers.RandomUniform) and again.bias_constraint


def test_fans_are_those_of_a_convolution():
    layer = CapConv(4, kernel_initializer=keras.initializers.GlorotNormal(seed=0))
    layer.build((None, 5, 5, 32, 4))
    deviation = array(layer.master.kernel).std()
    np.testing.assert_allclose(deviation, (2 / (9 * (4 + 32 * 4))) ** 0.5, rtol=0.05)  # the default's, too


def test_options_of_the_kernel_of_a_fully_connected_layer():
    layer = CapFC(3, kernel_initializer="ones", kernel_regularizer="l2", kernel_constraint="non_neg")
    layer.build((None, 4, 2))
    assert (array(layer.kernel) == 1).all() and layer.kernel.regularizer and layer.kernel.constraint


def test_no_examples_have_the_grid_of_others():
    layer, poses = CapConv(3, strides=2), np.ones((0, 6, 5, 2, 4), "float32")
    assert layer(poses).shape == layer(poses, residual=np.zeros((0, 3, 3, 2, 3))).shape == (0, 3, 3, 2, 3)


def test_the_skip_is_added_before_the_last_activation():
    layer = CapConv(2, skip=True)
    poses = np.random.default_rng(3).normal(size=(2, 3, 4, 5, 2)).astype("float32")
    layer.build(poses.shape)
    layer.master.set_weights([0 * w for w in layer.master.get_weights()])
    kernel, bias = layer.skip_convolution.get_weights()
    same = np.zeros(kernel.shape)
    same[1, 1] = np.eye(10)
    layer.skip_convolution.set_weights([same, 0 * bias])
    expected = squash(np.maximum(poses / np.sqrt(1 + 1e-5), 0))
    np.testing.assert_allclose(array(layer(poses)), expected, atol=1e-6)
