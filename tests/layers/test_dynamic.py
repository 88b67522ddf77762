import dataclasses

import keras
import numpy as np
import pytest
from backend import array, float64, gradients_of
from keras import ops
from layers.windowed import memory_forms, windows_of
from oracle import ATOL, routing_case

from tf_capsules.layers import ConvDynamicRouting, ConvEMRouting, ConvInvertedAttentionRouting, DynamicRouting
from tf_capsules.routing import StoredVotes, dynamic_routing


@pytest.mark.parametrize("votes", ["auto", "store", "recompute"])
def test_oracle(votes):
    poses, kernel, bias, case = routing_case()

    def layer(iterations, **options):
        layer = DynamicRouting(capsules=3, dim=5, iterations=iterations, votes_memory=votes, **options)
        layer.build(poses.shape)
        layer.set_weights([kernel, bias] if options.get("use_bias") else [kernel])
        return layer

    for expected in case["iterations"]:
        parents, couplings = layer(expected["iteration"])(poses, return_couplings=True)
        np.testing.assert_allclose(array(parents), expected["v"], atol=ATOL)
        np.testing.assert_allclose(array(couplings), expected["c"], atol=ATOL)
    np.testing.assert_allclose(array(layer(3, use_bias=True)(poses)), case["with_bias_iteration3_v"], atol=ATOL)
    parents, couplings = layer(3, leaky=True)(poses, return_couplings=True)
    np.testing.assert_allclose(array(parents), case["leaky_iteration3"]["v"], atol=ATOL)
    np.testing.assert_allclose(array(couplings), case["leaky_iteration3"]["c"], atol=ATOL)
    lengths = np.linalg.norm(array(layer(5)(poses)), axis=-1)
    np.testing.assert_allclose(lengths, case["iteration5_length"], atol=ATOL)


@pytest.mark.parametrize("rows", [(), (4,)], ids=["vectors", "matrices"])
@pytest.mark.parametrize("sharing", ["none", "positions", "all"])
@pytest.mark.parametrize("votes", ["store", "recompute"])
def test_votes_of_a_grid_against_einsum(votes, sharing, rows):
    random = np.random.default_rng(0)
    grid = random.normal(size=(2, 3, 1, 5, *rows, 7)).astype("float32")
    layer = DynamicRouting(
        capsules=2, dim=6, sharing=sharing, votes_memory=votes, use_bias=True, bias_initializer="ones"
    )
    parents, couplings = layer(grid, return_couplings=True)
    kernel = array(layer.kernel)
    assert kernel.shape[0] == {"none": 15, "positions": 5, "all": 1}[sharing]
    each = kernel[np.arange(15) % kernel.shape[0]]
    written_out = np.einsum("bi...d,ijde->bij...e", grid.reshape(2, 15, *rows, 7), each)
    expected = dynamic_routing(
        StoredVotes(written_out), 3, bias=np.ones((2, *rows, 6), "float32"), return_couplings=True
    )
    np.testing.assert_allclose(array(parents), array(expected[0]), atol=1e-5)
    np.testing.assert_allclose(array(couplings), array(expected[1]), atol=1e-5)


def test_auto_stores_votes_only_where_they_are_smaller():
    def stores(columns, dim, **options):
        layer = DynamicRouting(capsules=3, dim=dim, **options)
        layer.build((None, 2, 2, 5, columns))
        return layer.stores_votes

    assert not stores(8, 16) and not stores(16, 16) and stores(17, 16)
    assert not stores(64, 2, sharing="all") and not stores(64, 2, sharing="positions")
    assert stores(8, 16, votes_memory="store") and not stores(17, 16, votes_memory="recompute")


def test_any_number_of_children_that_share():
    inputs = keras.Input((None, 5))
    layer = DynamicRouting(capsules=3, dim=4, sharing="all")
    outputs, couplings = layer(inputs, return_couplings=True)
    assert outputs.shape == (None, 3, 4) and couplings.shape == (None, None, 3)
    model = keras.Model(inputs, [outputs, couplings])
    random = np.random.default_rng(0)
    for children in (2, 7, 1):
        poses = random.normal(size=(2, children, 5)).astype("float32")
        parents, couplings = model(poses)
        assert parents.shape == (2, 3, 4) and couplings.shape == (2, children, 3)
        np.testing.assert_allclose(array(parents), array(layer(poses)), atol=1e-6)


def test_symbolic_couplings_have_the_shape_of_real_ones():
    layer = DynamicRouting(capsules=3, dim=4)
    parents, couplings = layer(keras.Input((2, 3, 5, 7), batch_size=6), return_couplings=True)
    assert parents.shape == (6, 3, 4) and couplings.shape == (6, 30, 3)


def test_mask_of_a_masking_layer_is_used():
    poses = np.random.default_rng(0).normal(size=(2, 6, 5)).astype("float32")
    poses[0, 2:] = 0
    inputs = keras.Input((6, 5))
    layer = DynamicRouting(capsules=3, dim=4, sharing="all", competition="children")
    model = keras.Model(inputs, layer(keras.layers.Masking()(inputs)))
    np.testing.assert_allclose(array(model(poses))[:1], array(layer(poses[:1, :2])), atol=1e-6)
    mask = np.any(poses != 0, axis=-1)
    np.testing.assert_allclose(array(model(poses)), array(layer(poses, mask=mask)), atol=1e-6)
    assert np.abs(array(layer(poses)) - array(layer(poses, mask=mask))).max() > 1e-3


def test_runs_in_float32_under_half_precision():
    poses = np.random.default_rng(0).normal(size=(2, 6, 5)).astype("float16").astype("float32")
    exact = DynamicRouting(capsules=3, dim=4)
    expected = array(exact(poses))
    half = DynamicRouting(capsules=3, dim=4, dtype="mixed_float16")
    half.build(poses.shape)
    half.set_weights(exact.get_weights())
    np.testing.assert_array_equal(array(half(poses)), array(ops.cast(expected, "float16")))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"capsules": 0}, "`capsules`.*Received: 0"),
        ({"dim": "4"}, "`dim`.*Received: '4'"),
        ({"iterations": 0}, "`iterations`.*Received: 0"),
        ({"sharing": "some"}, "`sharing`.*Received: 'some'"),
        ({"competition": "both"}, "`competition`.*Received: 'both'"),
        ({"votes_memory": "paid"}, "`votes_memory`.*Received: 'paid'"),
        ({"leaky": True, "competition": "children"}, "`leaky=True` needs"),
        ({"initial_logits": "ones"}, "`initial_logits`.*Received: 'ones'"),
        ({"parents_per_chunk": 0}, "`parents_per_chunk`.*Received: 0"),
        ({"parents_per_chunk": 2, "competition": "children"}, "`parents_per_chunk` needs .*sharing='none'"),
        ({"parents_per_chunk": 2, "sharing": "all"}, "`parents_per_chunk` needs .*competition='parents'"),
    ],
)
def test_arguments_out_of_range_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        DynamicRouting(**{"capsules": 3, "dim": 4, **options})


@pytest.mark.parametrize(
    "shape, sharing, message",
    [
        ((None, 5), "none", r"Received shape \(None, 5\)"),
        ((None, 6, None), "none", "size of a child's pose"),
        ((None, None, 5), "none", "number of children"),
        ((None, 2, None, 4, 5), "none", "number of children"),
        ((None, 6, 5), "positions", r"grid.*\(None, 6, 5\)"),
        ((None, 2, 3, None, 5), "positions", "number of capsule types"),
        ((None, 6, None, 5), "all", "rows of a pose"),
    ],
)
def test_inputs_that_do_not_fit_are_named(shape, sharing, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        DynamicRouting(capsules=3, dim=4, sharing=sharing).build(shape)


def test_another_number_of_children_than_built_for_is_named():
    layer = DynamicRouting(capsules=3, dim=4)
    layer.build((None, 6, 5))
    with pytest.raises(ValueError, match="expected axis 1 of input shape to have value 6"):
        layer(np.ones((2, 7, 5), "float32"))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("votes", ["auto", "store"])
def test_a_convolution_is_the_same_layer_on_each_window(votes, masked):
    random = np.random.default_rng(0)
    poses = random.normal(size=(2, 4, 5, 3, 6)).astype("float32")
    mask = random.integers(0, 2, size=poses.shape[:4]).astype(bool) if masked else None
    options = dict(use_bias=True, bias_initializer="ones")
    convolution = ConvDynamicRouting(4, 5, kernel_size=(2, 3), votes_memory=votes, **options)
    above = convolution(poses, mask=mask)
    again, couplings = convolution(poses, mask=mask, return_couplings=True)
    assert above.shape == (2, 3, 3, 4, 5) and couplings.shape == (2, 3, 3, 18, 4)
    np.testing.assert_allclose(array(above), array(again), rtol=1e-4, atol=1e-6)
    layer = DynamicRouting(4, 5, **options)
    layer.build((None, 18, 6))
    layer.kernel.assign(array(convolution.kernel).reshape(18, 4, 6, 5))
    for place, window, keep in windows_of(poses, mask, 2, 3):
        wanted, shares = layer(window, mask=keep, return_couplings=True)
        np.testing.assert_allclose(array(above)[:, *place], array(wanted), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(array(couplings)[:, *place], array(shares), rtol=1e-4, atol=1e-6)


def test_gradients_of_a_convolution_are_those_that_the_backend_finds(monkeypatch):
    random = np.random.default_rng(0)
    with float64():
        poses, found = random.normal(size=(3, 5, 4, 2, 2, 3)), []
        for votes in memory_forms(monkeypatch):
            layer = ConvDynamicRouting(4, 5, kernel_size=(3, 2), use_bias=True, votes_memory=votes, dtype="float64")
            layer.build(poses.shape)
            if votes == "auto":
                layer.plan = dataclasses.replace(layer.plan, examples=2)

            def scalar(poses, *weights, layer=layer):
                parents, _ = layer.stateless_call(list(weights), [], poses)
                return ops.sum(ops.square(parents) * ops.convert_to_tensor(np.arange(1.0, 5)[:, None, None]))

            weights = [np.sin(np.arange(1.0, np.prod(x.shape) + 1)).reshape(x.shape) for x in layer.trainable_variables]
            value, gradients = gradients_of(scalar)(poses, *weights)
            found.append([value, *gradients])
    for *written, b in zip(*found, strict=True):
        assert b.dtype == "float64" and np.abs(b).max() > 0
        for a in written:
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * np.abs(b).max())


@pytest.mark.parametrize("initial_logits, trained", [("learned", 12), ("random", 0), ("zeros", 0)])
def test_initial_logits_are_learned_or_drawn_once(initial_logits, trained):
    layer = DynamicRouting(3, 2, sharing="all", initial_logits=initial_logits)
    poses = np.random.default_rng(0).normal(size=(2, 4, 5))
    np.testing.assert_array_equal(array(layer(poses)), array(layer(poses)))
    kernel = 5 * 3 * 2
    assert sum(w.shape[0] * w.shape[1] for w in layer.trainable_weights if w.name == "initial_logits") == trained
    assert layer.count_params() == kernel + (0 if initial_logits == "zeros" else 12)
    if initial_logits != "zeros":
        with pytest.raises(ValueError, match="axis 1"):
            layer(np.zeros((2, 7, 5)))
        with pytest.raises(ValueError, match="needs to know the number of children"):
            DynamicRouting(3, 2, sharing="all", initial_logits=initial_logits).build((None, None, 5))


@pytest.mark.parametrize("rows", [(), (2,)], ids=["vectors", "matrices"])
def test_one_iteration_is_a_convolution(rows):
    random = np.random.default_rng(0)
    poses = random.normal(size=(2, 4, 5, 3, *rows, 6)).astype("float32")
    mask = random.integers(0, 2, size=poses.shape[:4]).astype(bool)
    layer = ConvDynamicRouting(4, 5, (2, 3), (2, 1), iterations=1, use_bias=True, bias_initializer="random_normal")
    for given in (None, mask):
        expected, _ = layer(poses, mask=given, return_couplings=True)
        np.testing.assert_allclose(array(layer(poses, mask=given)), array(expected), rtol=1e-4, atol=1e-6)


def test_some_parents_at_a_time_are_as_all_at_once():
    random = np.random.default_rng(0)
    poses = random.normal(size=(2, 2, 3, 4, 5)).astype("float32")
    mask = random.integers(0, 2, size=poses.shape[:4]).astype(bool)
    options = dict(sharing="positions", competition="children", use_vote_bias=True, initial_logits="random", seed=0)
    layer = DynamicRouting(
        7, 6, parents_per_chunk=3, use_bias=True, bias_initializer="ones", kernel_initializer="orthogonal", **options
    )
    expected, _ = layer(poses, mask=mask, return_couplings=True)
    np.testing.assert_allclose(array(layer(poses, mask=mask)), array(expected), rtol=1e-4, atol=1e-6)


@pytest.mark.long
def test_some_parents_at_a_time_in_batches_of_any_size():
    random = np.random.default_rng(1)
    poses, targets = (random.normal(size=(5, *shape)).astype("float32") for shape in ((7, 6), (4, 3)))
    given = keras.Input((7, 6))
    options = dict(sharing="all", competition="children")
    layer = DynamicRouting(4, 3, parents_per_chunk=2, **options)
    model = keras.Model(given, layer(given))
    model.compile("sgd", "mse")
    model.fit(poses, targets, batch_size=2, verbose=0)  # the last batch is smaller
    whole = DynamicRouting(4, 3, **options)
    whole.build(poses.shape)
    whole.set_weights(layer.get_weights())
    np.testing.assert_allclose(model.predict(poses, batch_size=2, verbose=0), array(whole(poses)), atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"competition": "children"}])
@pytest.mark.parametrize("chunk", [None, 2])
def test_a_mask_of_other_numbers_is_true_where_it_is_not_zero(options, chunk):
    if chunk and not options:
        pytest.skip("parents_per_chunk needs competition between children")
    poses = np.random.default_rng(2).normal(size=(2, 5, 4)).astype("float32")
    layer = DynamicRouting(3, 4, sharing="all", parents_per_chunk=chunk, **options)
    mask = np.array([[1, 1, 0, 1, 0], [0, 1, 1, 1, 1]])
    expected = array(layer(poses, mask=mask.astype(bool)))
    np.testing.assert_array_equal(array(layer(poses, mask=(255 * mask).astype("uint8"))), expected)


@pytest.mark.parametrize("of", [ConvDynamicRouting, ConvEMRouting, ConvInvertedAttentionRouting])
def test_gradients_of_second_order_are_those_that_tensorflow_finds(of, monkeypatch):
    tf = pytest.importorskip("tensorflow")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("taken with TensorFlow's tapes")
    poses, found = tf.constant(np.random.default_rng(0).normal(size=(2, 3, 3, 2, 2, 2))), []
    for votes in memory_forms(monkeypatch):
        keras.utils.set_random_seed(0)
        layer = of(2, 2, kernel_size=2, votes_memory=votes, dtype="float64")
        with tf.GradientTape() as outer:
            outer.watch(poses)
            with tf.GradientTape() as inner:
                inner.watch(poses)
                parents = layer(poses)
                parents = parents[0] if isinstance(parents, (list, tuple)) else parents
                value = tf.reduce_sum(parents**3)
            slope = tf.reduce_sum(tf.sin(inner.gradient(value, poses)))
        found.append(outer.gradient(slope, poses).numpy())
    *written, wanted = found
    assert np.abs(wanted).max() > 1e-3
    for one in written:
        np.testing.assert_allclose(one, wanted, rtol=1e-6, atol=1e-8 * np.abs(wanted).max())


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="of TensorFlow's graph optimizer")
def test_the_graph_of_a_known_batch_is_optimized_without_errors(capfd, request):
    import tensorflow as tf

    before = tf.config.optimizer.get_experimental_options()
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})
    request.addfinalizer(lambda: tf.config.optimizer.set_experimental_options(before))
    layer, poses = ConvDynamicRouting(3, 4, kernel_size=3, strides=2), tf.ones((8, 7, 7, 2, 4))
    layer.build(poses.shape)

    @tf.function
    def step(poses):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(poses))
        return tape.gradient(loss, layer.trainable_variables)

    assert all(map(tf.math.is_finite, map(tf.reduce_sum, step(poses))))
    assert "optimizer.cc" not in capfd.readouterr().err
