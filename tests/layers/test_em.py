import json
import math

import keras
import numpy as np
import pytest
from backend import array
from keras import ops
from oracle import expand, read

from tf_capsules.layers import ConvEMRouting, EMRouting
from tf_capsules.routing import StoredVotes, em_routing

ORACLE = read("em_routing")
RANDOM = np.random.default_rng(0)


def built(layer, shape, **weights):
    """The layer with given weights."""
    layer.build(shape)
    for weight in layer.weights:
        if weight.name in weights:
            weight.assign(ops.reshape(weights[weight.name], weight.shape))
    return layer


def test_oracle():
    case = ORACLE["A_fc"]
    x = {name: expand(**value) for name, value in case["params"].items()}
    weights = {"kernel": x["W"], "beta_u": x["beta_u"], "beta_a": x["beta_a"]}
    variants = [({"iterations": expected["iteration"]}, expected) for expected in case["iterations"]]
    variants += [({"inverse_temperature": 1.0}, case["final_lambda_1_iteration3"])]
    variants += [({"normalization": "data"}, case["ibm_data_normalisation_iteration3"])]
    for options, expected in variants:
        layer = built(EMRouting(3, 2, **options), x["poses"].shape, **weights)
        poses, activations, logits, couplings = map(array, layer(x["poses"], x["activations"], return_couplings=True))
        np.testing.assert_allclose(poses.reshape(2, 3, 4), expected["mean"], atol=2e-5)
        np.testing.assert_allclose(activations, expected["activation"], atol=2e-6)
        np.testing.assert_allclose(1 / (1 + np.exp(-logits)), activations, atol=1e-6)
        if "R" in expected:
            np.testing.assert_allclose(couplings, expected["R"], atol=2e-5)


@pytest.mark.parametrize("sharing", ["none", "positions", "all"])
@pytest.mark.parametrize("pose", [(3, 5), (5,)], ids=["matrices", "vectors"])
def test_equals_votes_written_out(pose, sharing):
    batch, height, width, types, parents, dim = 2, 3, 4, 6, 7, 2
    children = height * width * types
    poses = RANDOM.normal(size=(batch, height, width, types, *pose)).astype("float32")
    activations = RANDOM.random((batch, height, width, types)).astype("float32")
    mask = RANDOM.integers(0, 2, activations.shape).astype(bool)
    layer = EMRouting(parents, dim, sharing=sharing, coordinates=True, use_bias=True, normalization="data")
    # The initial beta_a of this normalization, about -1000, would hide the cost; a random one replaces it below.
    layer.build(poses.shape)
    groups = {"none": children, "positions": types, "all": 1}[sharing]
    assert layer.kernel.shape == (groups, parents, 5, dim) and layer.bias.shape == (groups, parents, *pose[:-1], dim)
    layer.bias.assign(RANDOM.normal(size=layer.bias.shape))
    layer.beta_a.assign(RANDOM.normal(size=parents))
    each = np.arange(children) % groups
    votes = np.einsum("bi...d,ijde->bij...e", poses.reshape(batch, children, *pose), array(layer.kernel)[each])
    votes = (votes + array(layer.bias)[each]).reshape(batch, height, width, types, parents, *pose[:-1], dim)
    rows, columns = ((np.arange(n) + 0.5) / n for n in (height, width))
    first, second = ((0, -1), (1, -1)) if len(pose) == 2 else ((0,), (1,))
    votes[(..., *first)] += rows[:, None, None, None]
    votes[(..., *second)] += columns[:, None, None]
    votes = votes.reshape(batch, children, parents, *pose[:-1], dim).astype("float32")
    betas = {"beta_u": array(layer.beta_u), "beta_a": array(layer.beta_a)}
    made = StoredVotes(votes, (activations * mask).reshape(batch, children))
    there = mask.reshape(batch, children).sum(1, keepdims=True)
    expected = em_routing(made, normalization="data", children=there, **betas)[:3]
    for result, wanted in zip(layer(poses, activations, mask=mask), expected, strict=True):
        np.testing.assert_allclose(array(result), array(wanted), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("pose", [(3, 5), (5,)], ids=["matrices", "vectors"])
def test_routing_without_stored_votes_equals_routing_with_stored_votes(pose):
    poses = RANDOM.normal(size=(2, 5, 4, 8, *pose)).astype("float32")
    activations = RANDOM.random((2, 5, 4, 8)).astype("float32")
    options = {"sharing": "positions", "coordinates": True, "normalization": "data"}
    stored, free = (EMRouting(3, 4, votes_memory=votes, **options) for votes in ("store", "recompute"))
    expected = stored(poses, activations, return_couplings=True)
    free.build(poses.shape)
    free.set_weights(stored.get_weights())
    assert stored.stores_votes and not free.stores_votes
    for result, wanted in zip(free(poses, activations, return_couplings=True), expected, strict=True):
        scale = max(np.abs(array(wanted)).max(), 1)
        np.testing.assert_allclose(array(result), array(wanted), atol=2e-5 * scale)


def test_few_children_on_a_grid_of_unknown_size_store_votes():
    """A parent may have one child: without stored votes its variances would be rounding errors."""
    poses, activations = 3 * RANDOM.normal(size=(2, 2, 2, 3, 4, 4)), np.full((2, 2, 2, 3), 0.5)
    inputs = keras.Input((None, None, 3, 4, 4)), keras.Input((None, None, 3))
    layer, stored = (EMRouting(5, 4, 4, sharing="all", votes_memory=votes) for votes in ("auto", "store"))
    model = keras.Model(inputs, layer(*inputs))
    stored.build(poses.shape)
    stored.set_weights(layer.get_weights())
    for result, wanted in zip(model.predict((poses, activations)), stored(poses, activations), strict=True):
        np.testing.assert_allclose(result, array(wanted), rtol=1e-4, atol=1e-5)


def test_a_grid_of_any_size_that_is_known_with_the_call():
    poses, activations = keras.Input((None, None, 3, 4, 4)), keras.Input((None, None, 3))
    layer = EMRouting(5, 4, sharing="positions", coordinates=True)
    outputs = layer(poses, activations, return_couplings=True)
    assert [x.shape for x in outputs] == [(None, 5, 4, 4), (None, 5), (None, 5), (None, None, 5)]
    model = keras.Model([poses, activations], outputs)
    values = RANDOM.normal(size=(2, 6, 8, 3, 4, 4)).astype("float32"), np.ones((2, 6, 8, 3), "float32")
    for result, wanted in zip(model(values), layer(*values, return_couplings=True), strict=True):
        np.testing.assert_allclose(array(result), array(wanted), atol=1e-5)


def test_of_a_seed_only_the_kernel_draws_by_default():
    keras.utils.set_random_seed(7)
    expected = keras.initializers.TruncatedNormal(stddev=1.0)((1, 5, 4, 4))
    keras.utils.set_random_seed(7)
    layer = built(EMRouting(5, 4, sharing="all"), (None, 3, 4, 4))
    np.testing.assert_array_equal(array(layer.kernel), array(expected))


def test_parameters_and_initial_values():
    """Hinton et al. 2018: the class capsules have 32 x 5 matrices and two betas for each class."""
    layer = EMRouting(5, 4, sharing="positions", coordinates=True)
    layer.build((None, 4, 4, 32, 4, 4))
    assert layer.count_params() == 2560 + 10 and {w.name for w in layer.weights} == {"kernel", "beta_u", "beta_a"}
    assert (array(layer.beta_u) == 0).all() and (array(layer.beta_a) == 0).all()
    kernel = array(layer.kernel)
    assert abs(kernel.std() - 0.88) < 0.03 and np.abs(kernel).max() <= 2  # 1 before it is truncated at 2
    for strides in (1, 2):
        layer = ConvEMRouting(32, 4, 3, strides)
        layer.build((None, 14, 14, 32, 4, 4))
        assert layer.count_params() == 147_456 + 64 and layer.kernel.shape == (3, 3, 32, 32, 4, 4)
    layer = EMRouting(99, 4, sharing="all", normalization="data")
    layer.build((None, 30, 4, 4))
    beta_u, beta_a = array(layer.beta_u), array(layer.beta_a)
    limit = (6 / 100) ** 0.5
    assert np.abs(beta_u).max() <= limit and beta_u.max() > 0.8 * limit and beta_u.min() < -0.8 * limit
    assert abs(beta_a.mean() + 1000) < 150 and abs(beta_a.std() - 440) < 100
    layer = EMRouting(50, 4, sharing="all", normalization="min_max")
    layer.build((None, 30, 4, 4))
    for beta in (array(layer.beta_u), array(layer.beta_a)):
        assert 0 <= beta.min() < 0.2 and 0.8 < beta.max() <= 1


def test_masked_children_do_not_count_among_the_data():
    layer, random = EMRouting(3, 4, sharing="all", normalization="data"), np.random.default_rng(0)
    poses = random.normal(size=(2, 200, 4)).astype("float32")
    activations = random.uniform(size=(2, 200)).astype("float32")
    alone = layer(poses, activations)
    padded = [np.concatenate([x, np.ones((2, 300, *x.shape[2:]), "float32")], axis=1) for x in (poses, activations)]
    found = layer(*padded, mask=np.broadcast_to(np.arange(500) < 200, (2, 500)))
    assert 1e-3 < np.ptp(array(alone[1])) and array(alone[1]).max() < 1
    for a, b in zip(found, alone, strict=True):
        np.testing.assert_allclose(array(a), array(b), rtol=1e-4, atol=1e-4)
    nobody = layer(poses, activations, mask=np.zeros((2, 200), bool))
    assert all(np.isfinite(array(x)).all() for x in nobody)


def test_votes_are_stored_where_they_are_smaller():
    def stores(poses, **options):
        layer = EMRouting(**{"capsules": 32, "dim": 4, "sharing": "positions", **options})
        layer.build((None, *poses))
        return layer.plan.stores(None if None in poses else math.prod(poses[:3]))

    assert not stores((6, 6, 32, 4, 4)) and stores((6, 6, 32, 4, 4), votes_memory="store")
    assert stores((6, 6, 32, 4, 4), capsules=3)  # 57 features against 48 numbers
    assert not stores((6, 6, 32, 4, 4), capsules=4) and stores((6, 6, 32, 4, 4), capsules=4, coordinates=True)
    assert (
        stores((3, 3, 2, 4, 4))
        and not stores((3, 3, 2, 4, 4), votes_memory="recompute")
        and not stores((None, None, 2, 4, 4))
    )
    assert stores((6, 6, 32, 4, 4), sharing="none")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"capsules": 0}, "`capsules`.*Received: 0"),
        ({"dim": "4"}, "`dim`.*Received: '4'"),
        ({"iterations": 0}, "`iterations`.*Received: 0"),
        ({"inverse_temperature": 1e300}, "`inverse_temperature` must be from .*Received: 1e[+]300"),
        ({"normalization": 1e300}, "`normalization` must be from .*Received: 1e[+]300"),
        ({"sharing": "some"}, "`sharing`.*Received: 'some'"),
        ({"normalization": "none"}, "`normalization`.*Received: 'none'"),
        ({"votes_memory": "paid"}, "`votes_memory`.*Received: 'paid'"),
        ({"children_per_chunk": 0, "sharing": "all"}, "`children_per_chunk`.*Received: 0"),
        ({"votes_memory": "recompute"}, 'votes_memory="recompute" needs sharing="positions"'),
        ({"children_per_chunk": 9}, "children_per_chunk=9 needs sharing="),
        (
            {"children_per_chunk": 9, "sharing": "all", "votes_memory": "store"},
            'children_per_chunk=9 does not go with votes_memory="store"',
        ),
    ],
)
def test_arguments_out_of_range_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        EMRouting(**{"capsules": 3, "dim": 4, **options})


def test_inputs_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"`coordinates` needs poses on a grid.*\(None, 6, 2, 5\)"):
        EMRouting(3, 4, coordinates=True).build((None, 6, 2, 5))
    with pytest.raises(ValueError, match=r"`coordinates`.*Received 1 for.*\(None, 2, 3, 4, 1, 5\)"):
        EMRouting(3, 4, coordinates=True).build((None, 2, 3, 4, 1, 5))
    with pytest.raises(ValueError, match="`coordinates`.*Received 1 for.*dim 1"):
        EMRouting(3, 1, coordinates=True).build((None, 2, 3, 4, 5))
    with pytest.raises(ValueError, match="number of children"):
        EMRouting(3, 4).build((None, None, 2, 5))
    with pytest.raises(ValueError, match='"positions" needs poses on a grid'):
        EMRouting(3, 4, sharing="positions").build((None, 6, 2, 5))
    with pytest.raises(ValueError, match=r"ConvEMRouting takes poses on a grid.*\(None, 6, 2, 5\)"):
        ConvEMRouting(3, 4).build((None, 6, 2, 5))
    with pytest.raises(ValueError, match="ConvEMRouting needs to know the width of the grid"):
        ConvEMRouting(3, 4).build((None, 6, None, 2, 5))
    with pytest.raises(ValueError, match=r"6 x 2 children is smaller than the window \(3, 3\)"):
        ConvEMRouting(3, 4).build((None, 6, 2, 2, 5))
    for options in ({"kernel_size": 0}, {"strides": (1, 0)}):
        with pytest.raises(ValueError, match=f"`{next(iter(options))}`.*Received: 0"):
            ConvEMRouting(3, 4, **options)
    with pytest.raises(ValueError, match=r"`kernel_size` must be a number or \(rows, columns\). Received: \(1, 2, 3\)"):
        ConvEMRouting(3, 4, (1, 2, 3))
    with pytest.raises(ValueError, match="`competition`.*Received: 'positions'"):
        ConvEMRouting(3, 4, competition="positions")


def test_numbers_of_numpy_are_kept_as_those_of_python():
    layer = EMRouting(3, 4, iterations=2, epsilon=np.float32(1e-6), inverse_temperature=[np.float64(0.1), 1])
    config = json.loads(json.dumps({name: layer.get_config()[name] for name in ("epsilon", "inverse_temperature")}))
    assert config == {"epsilon": pytest.approx(1e-6), "inverse_temperature": [0.1, 1]}
