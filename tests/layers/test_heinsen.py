import warnings

import keras
import numpy as np
import pytest
from backend import BACKEND, array
from keras import ops
from oracle import ATOL, HEINSEN, heinsen_case

from tf_capsules.layers import HeinsenRouting

NAMES = {"W": "kernel", "B": "bias", "beta_use": "beta_use", "beta_ign": "beta_ignore", "B_brk": "bias_breaking"}


def built(layer, x):
    """The layer with the weights of a case."""
    layer.build(x["mu_inp"].shape)
    given = {ours: x[theirs] for theirs, ours in NAMES.items() if theirs in x}
    for weight in layer.weights:
        weight.assign(ops.reshape(given[weight.name], weight.shape))
    return layer


def check(results, expected):
    """Compares poses, activation logits, variances and couplings with the oracle."""
    for result, name in zip(results, ("mu_out", "a_out", "sig2_out", "R"), strict=True):
        if name in expected:
            np.testing.assert_allclose(array(result), expected[name], atol=ATOL, rtol=0, err_msg=name)


def test_oracle_of_fixed_inputs():
    x, case = heinsen_case("A_fixed_inp_fixed_out", "float32")
    for expected in case["iterations"]:
        layer = built(HeinsenRouting(3, 2, expected["iteration"]), x)
        check(layer(x["mu_inp"], x["a_inp"], return_couplings=True), expected)
    layer = built(HeinsenRouting(3, 2, density="soft_k_means"), x)
    check(layer(x["mu_inp"], x["a_inp"], return_couplings=True), HEINSEN["G_soft_k_means"])
    layer = built(HeinsenRouting(3, 2, single_beta=True), x)
    assert len(layer.weights) == 3
    check(layer(x["mu_inp"], x["a_inp"], return_couplings=True), HEINSEN["H_single_beta"])


@pytest.mark.long
@pytest.mark.skipif(BACKEND != "tensorflow", reason="other backends know all shapes")
def test_chunks_of_an_unknown_number_of_children():
    import tensorflow as tf

    layer = HeinsenRouting(5, 4, sharing="all", iterations=2, children_per_chunk=4)
    layer.build((None, None, 4, 4))

    @tf.function(input_signature=[tf.TensorSpec((None, None, 4, 4)), tf.TensorSpec((None, None))], autograph=False)
    def graph(poses, logits):
        with tf.GradientTape() as tape:
            tape.watch(poses)
            results = layer(poses, logits)
            loss = sum(tf.reduce_sum(result**2) for result in results)
        return *results, tape.gradient(loss, poses)

    rng = np.random.default_rng(0)
    for children in (0, 1, 11):  # fewer than 8 are never chunked; 11 need one child of padding
        poses = tf.constant(rng.normal(size=(2, children, 4, 4)).astype("float32"))
        logits = tf.constant(rng.normal(size=(2, children)).astype("float32"))
        for result, expected in zip(graph(poses, logits), graph.python_function(poses, logits), strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_the_first_call_does_not_choose_how_later_ones_hold_their_votes():
    for children in (9, 5000, None):
        layer = HeinsenRouting(None, 16, sharing="all")
        layer(keras.Input((children, 16)))
        assert layer.plan.stores(7) and not layer.plan.stores(9)


def test_few_children_need_no_chunks_and_so_go_with_xla():
    few, many = (HeinsenRouting(50, 4, sharing="all", children_per_chunk=4) for _ in range(2))
    few(keras.Input((6, 2, 4)))
    many(keras.Input((60, 2, 4)))
    assert (few.supports_jit, many.supports_jit) == (True, BACKEND != "tensorflow")


@pytest.mark.long
def test_xla_is_left_out_where_it_can_not_choose_the_form_of_votes():
    options = dict(sharing="all", iterations=2)
    one, other = (HeinsenRouting(None, 4, votes_memory=how, **options) for how in ("auto", "recompute"))
    assert (one.supports_jit, other.supports_jit) == (BACKEND != "tensorflow", True)
    known = HeinsenRouting(None, 4, sharing="all")
    known(keras.Input((9, 2, 4)))
    assert known.supports_jit
    inputs = keras.Input((None, 2, 4))
    model = keras.Model(inputs, one(inputs)[0])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Model doesn't support `jit_compile=True`")
        model.compile("sgd", "mse", jit_compile=True)
    for children in (9, 3):
        poses = np.random.default_rng(0).normal(size=(2, children, 2, 4)).astype("float32")
        assert np.isfinite(model.train_on_batch(poses, np.zeros((2, children, 2, 4))))


def test_options_of_weights_reach_those_that_break_the_symmetry():
    options = {"bias_regularizer": "l2", "kernel_constraint": "non_neg", "beta_regularizer": "l1"}
    layer = HeinsenRouting(None, 4, sharing="all", symmetry_breaking="all", **options)
    layer.build((None, None, 2, 4))
    breaking = {weight.name: weight for weight in layer.weights if weight.name.endswith("_breaking")}
    assert breaking["bias_breaking"].regularizer and breaking["kernel_breaking"].constraint
    assert breaking["beta_use_breaking"].regularizer and breaking["beta_ignore_breaking"].regularizer


@pytest.mark.parametrize("votes", ["auto", "store"])
def test_oracle_of_masks(votes):
    x, case = heinsen_case("B_variable_inp_masks", "float32")
    layer = built(HeinsenRouting(2, 2, sharing="all", votes_memory=votes), x)
    expected = {key: value for key, value in case["iterations"][2].items() if key != "R"}
    check(layer(x["mu_inp"], x["a_inp"], return_couplings=True), expected)
    mask = x["a_inp"] > -np.inf
    logits = np.where(mask, x["a_inp"], 7.0).astype("float32")
    check(layer(x["mu_inp"], logits, mask=mask, return_couplings=True), expected)


@pytest.mark.parametrize("parents, key", [(3, "symmetry_breaking_n_out_3"), (4, "symmetry_breaking_n_out_4")])
def test_oracle_of_a_variable_number_of_parents(parents, key):
    x, case = heinsen_case("C_variable_inp_variable_out", "float32")
    layer = built(HeinsenRouting(None, 2, sharing="all"), x)
    check(layer(x["mu_inp"], x["a_inp"], capsules=parents, return_couplings=True), case[key])
    if parents == 3:
        check(layer(x["mu_inp"], x["a_inp"], return_couplings=True), case[key])  # as many as children


def test_parents_that_share_everything_are_equal_and_a_shifted_bias_does_not_route():
    x, case = heinsen_case("C_variable_inp_variable_out", "float32")
    without = {name: value for name, value in x.items() if name != "B_brk"}
    layer = built(HeinsenRouting(None, 2, sharing="all", symmetry_breaking=None), without)
    poses, logits, variances, couplings = map(array, layer(x["mu_inp"], x["a_inp"], return_couplings=True))
    check((poses, logits, variances, couplings), case["no_symmetry_breaking_n_out_3"])
    for result in (poses, logits, variances):
        np.testing.assert_allclose(result, np.repeat(result[:, :1], 3, axis=1), atol=1e-6)
    layer = built(HeinsenRouting(None, 2, sharing="all", symmetry_breaking="bias"), x)
    poses, logits, variances, couplings = map(array, layer(x["mu_inp"], x["a_inp"], return_couplings=True))
    np.testing.assert_allclose(couplings, 1 / 3, atol=2e-4)
    np.testing.assert_allclose(poses[:, 1:] - poses[:, :-1], np.broadcast_to(x["B_brk"], (1, 2, 2, 2)), atol=1e-4)
    for result in (logits, variances):
        np.testing.assert_allclose(result, np.repeat(result[:, :1], 3, axis=1), atol=1e-4)


def test_parents_on_a_line_compete():
    poses = np.random.default_rng(0).normal(size=(2, 9, 4, 3)).astype("float32")
    layer = HeinsenRouting(None, 5, sharing="all", symmetry_breaking="all", kernel_initializer="orthogonal")
    _, logits, variances, couplings = map(array, layer(poses, capsules=6, return_couplings=True))
    assert couplings.shape == (2, 9, 6) and np.abs(couplings - 1 / 6).max() > 0.1
    assert np.ptp(variances, axis=1).max() > 0.1
    layer.breaking["beta_use"].assign(1.0)
    assert np.ptp(array(layer(poses, capsules=6)[1]), axis=1).max() > 0.1


def test_parameters():
    def count(poses, **options):
        layer = HeinsenRouting(**options)
        layer.build((None, *poses))
        return layer.count_params()

    # Heinsen 2019, the layers of the two networks.
    assert count((None, 4, 4), capsules=64, dim=4, sharing="all") == 2176
    assert count((64, 4, 4), capsules=5, dim=4) == 10880
    assert count((None, 1, 64), capsules=64, dim=2, sharing="all") == 8448
    assert count((64, 1, 2), capsules=5, dim=2) == 2560
    assert count((None, 4, 4), capsules=None, dim=4, sharing="all") == 16 + 16 + 2 + 16
    assert count((None, 4, 4), capsules=64, dim=4, sharing="all", single_beta=True) == 2176 - 64


def test_the_two_betas_start_differently():
    layer = HeinsenRouting(3, 4, beta_initializer="random_normal")
    layer.build((None, 6, 2, 5))
    assert np.abs(array(layer.beta_use) - array(layer.beta_ignore)).min() > 0


def test_the_kernel_is_normal_with_one_over_columns_as_deviation():
    layer = HeinsenRouting(50, 7, sharing="all")
    layer.build((None, 9, 4, 20))
    kernel = array(layer.kernel)
    assert abs(kernel.std() * 20 - 1) < 0.05 and np.abs(kernel).max() * 20 > 3


def test_votes_are_stored_where_they_are_smaller():
    def stores(poses, **options):
        layer = HeinsenRouting(**{"capsules": 64, "dim": 4, "sharing": "all", **options})
        layer.build((None, *poses))
        return layer.stores_votes

    assert (
        not stores((None, 4, 4))
        and stores((None, 4, 4), votes_memory="store")
        and not stores((9, 4, 4), votes_memory="recompute")
    )
    assert stores((None, 1, 64), dim=2)  # text: 2,145 features against 128 numbers
    assert not stores((None, 1, 64), dim=2, votes_memory="recompute")
    assert stores((64, 4, 4), sharing="none", capsules=5)
    assert stores((None, 4, 4), density=sum_of_squares)


@keras.saving.register_keras_serializable("tests")
def sum_of_squares(votes, means, variances):
    return -ops.sum(ops.square(votes - means[:, None]), axis=(-2, -1))


def test_a_function_as_density_is_saved_by_name():
    poses = np.random.default_rng(0).normal(size=(2, 9, 4, 3)).astype("float32")
    layer = HeinsenRouting(3, 5, sharing="all", density=sum_of_squares)
    named = HeinsenRouting(3, 5, sharing="all", density="soft_k_means", votes_memory="store")
    expected = layer(poses)
    again = HeinsenRouting.from_config(layer.get_config())
    for other in (again, named):
        other.build(poses.shape)
        other.set_weights(layer.get_weights())
        for result, wanted in zip(other(poses), expected, strict=True):
            np.testing.assert_allclose(array(result), array(wanted), atol=1e-6)


def test_any_number_of_children_that_share():
    poses, logits = keras.Input((None, 4, 3)), keras.Input((None,))
    layer = HeinsenRouting(6, 5, sharing="all")
    outputs = layer(poses, logits, return_couplings=True)
    assert [x.shape for x in outputs] == [(None, 6, 4, 5), (None, 6), (None, 6, 4, 5), (None, None, 6)]
    model = keras.Model([poses, logits], outputs)
    stored = HeinsenRouting(6, 5, sharing="all", votes_memory="store")
    random = np.random.default_rng(0)
    for children in (2, 7, 8, 30):
        values = [random.normal(size=s).astype("float32") for s in ((2, children, 4, 3), (2, children))]
        results = model(values)
        if not stored.built:
            stored.build(values[0].shape)
            stored.set_weights(layer.get_weights())
        expected = stored(*values, return_couplings=True)
        for result, wanted in zip(results, expected, strict=True):
            # With few children the layer stores votes, so results differ only by the order of sums.
            np.testing.assert_allclose(array(result), array(wanted), atol=2e-6 if children < 8 else 1e-4)


@pytest.mark.parametrize("symmetry_breaking", ["bias", "all"])
def test_as_many_parents_as_children_where_their_number_is_open(symmetry_breaking):
    poses = keras.Input((None, 4, 3))
    layer = HeinsenRouting(None, 5, sharing="all", symmetry_breaking=symmetry_breaking)
    model = keras.Model(poses, layer(poses))
    for children in (3, 11):
        values = np.random.default_rng(0).normal(size=(2, children, 4, 3)).astype("float32")
        for result, wanted in zip(model(values), layer(values), strict=True):
            assert result.shape[1] == children
            np.testing.assert_allclose(array(result), array(wanted), atol=1e-6)
    assert layer(poses, capsules=7)[0].shape == (None, 7, 4, 5)


def test_runs_in_float32_under_half_precision():
    poses = np.random.default_rng(0).normal(size=(2, 9, 4, 3)).astype("float16").astype("float32")
    exact = HeinsenRouting(3, 5, sharing="all")
    expected = exact(poses)
    half = HeinsenRouting(3, 5, sharing="all", dtype="mixed_float16")
    half.build(poses.shape)
    half.set_weights(exact.get_weights())
    for result, wanted in zip(half(poses), expected, strict=True):
        np.testing.assert_array_equal(array(result), array(ops.cast(wanted, "float16")))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"capsules": 0}, "`capsules`.*Received: 0"),
        ({"dim": "4"}, "`dim`.*Received: '4'"),
        ({"iterations": 0}, "`iterations`.*Received: 0"),
        ({"sharing": "some"}, "`sharing`.*Received: 'some'"),
        ({"density": "laplace"}, "`density`.*Received: 'laplace'"),
        ({"votes_memory": "paid"}, "`votes_memory`.*Received: 'paid'"),
        ({"children_per_chunk": 0}, "`children_per_chunk`.*Received: 0"),
        ({"epsilon": 0.0}, "`epsilon`.*Received: 0.0"),
        ({"symmetry_breaking": "kernel"}, "`symmetry_breaking`.*Received: 'kernel'"),
        ({"votes_memory": "recompute"}, 'votes_memory="recompute" needs sharing="positions"'),
        ({"children_per_chunk": 9}, "children_per_chunk=9 needs sharing="),
        (
            {"children_per_chunk": 9, "sharing": "all", "votes_memory": "store"},
            'children_per_chunk=9 does not go with votes_memory="store"',
        ),
        (
            {"children_per_chunk": 9, "sharing": "all", "density": sum_of_squares},
            "children_per_chunk=9 does not go with a density",
        ),
    ],
)
def test_arguments_out_of_range_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        HeinsenRouting(**{"capsules": 3, "dim": 4, **options})


def test_calls_that_do_not_fit_are_named():
    layer = HeinsenRouting(3, 4)
    layer.build((None, 6, 2, 5))
    with pytest.raises(ValueError, match=r"expected axis 1 .* value 6, .* shape \(2, 7, 2, 5\)"):
        layer(np.ones((2, 7, 2, 5), "float32"))
    with pytest.raises(ValueError, match="`capsules` is 3 by construction.*call: 5"):
        layer(np.ones((2, 6, 2, 5), "float32"), capsules=5)
    with pytest.raises(ValueError, match="`capsules`.*Received: 0"):
        HeinsenRouting(None, 4)(np.ones((2, 6, 2, 5), "float32"), capsules=0)
    with pytest.raises(ValueError, match="number of children"):
        HeinsenRouting(3, 4).build((None, None, 2, 5))


@pytest.mark.parametrize(
    "poses, given, message",
    [
        ((2, 9, 4, 3), {"mask": (2, 8)}, r"`mask` must be shaped like .* \(2, 9\). Received shape \(2, 8\)"),
        ((2, 9, 4, 3), {"logits": (2, 1)}, r"`logits` must be shaped like .* \(2, 9\). Received shape \(2, 1\)"),
        ((2, 9, 4, 3), {"logits": (18,)}, r"`logits` must be shaped like"),
        ((2, 8, 4, 3), {}, "expected axis 1 .* to have value 9"),
        ((2, 9, 4, 5), {}, "expected axis -1 .* to have value 3"),
        ((2, 9, 3), {}, "expected ndim=4, found ndim=3"),
    ],
)
def test_inputs_that_do_not_go_together_are_named(poses, given, message):
    layer = HeinsenRouting(5, 2)
    layer(np.zeros((2, 9, 4, 3)))
    with pytest.raises(ValueError, match=message):
        layer(np.zeros(poses), **{name: np.ones(shape) for name, shape in given.items()})
