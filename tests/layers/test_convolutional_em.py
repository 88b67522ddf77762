import dataclasses

import numpy as np
import pytest
from backend import array
from keras import ops
from layers.test_em import built
from oracle import expand, read

from tf_capsules.layers import ConvEMRouting, EMRouting

ORACLE = read("em_routing")
RANDOM = np.random.default_rng(0)


def test_oracle_of_the_convolution():
    case = ORACLE["B_conv_k3_s1_spatial_competition"]
    x = {name: expand(**value) for name, value in case["params"].items()}
    weights = {"kernel": x["W"], "beta_u": x["beta_u"], "beta_a": x["beta_a"]}
    poses, activations = (np.stack([value, 0 * value]) for value in (x["poses"], x["activations"]))
    for expected in case["iterations"]:
        layer = built(ConvEMRouting(2, 2, 3, iterations=expected["iteration"]), poses.shape, **weights)
        result, parents, _, couplings = map(array, layer(poses, activations, return_couplings=True))
        np.testing.assert_allclose(result[0].reshape(2, 2, 2, 4), expected["mean"], atol=2e-5)
        np.testing.assert_allclose(parents[0], expected["activation"], atol=1e-6)
    np.testing.assert_allclose(couplings[0, 0, 0, 8:10], case["R_iteration3_parent00_child_row1_col1"], atol=2e-5)


@pytest.mark.parametrize("pose", [(3, 5), (5,)], ids=["matrices", "vectors"])
def test_the_convolution_equals_full_connection_of_each_window(pose):
    poses = RANDOM.normal(size=(2, 6, 7, 3, *pose)).astype("float32")
    activations = RANDOM.random((2, 6, 7, 3)).astype("float32")
    options = {"use_bias": True, "normalization": "data", "bias_initializer": "uniform", "variance_floor": 1e-4}
    layer = ConvEMRouting(4, 2, (2, 3), (3, 2), competition="types", **options)
    results = layer(poses, activations, return_couplings=True)
    full = EMRouting(4, 2, **options)
    full.build((None, 18, *pose))
    for weight, conv in zip(full.weights, layer.weights, strict=True):
        weight.assign(ops.reshape(conv, weight.shape))
    assert results[0].shape == (2, 2, 3, 4, *pose[:-1], 2) and results[3].shape == (2, 2, 3, 18, 4)
    places = [(slice(3 * y, 3 * y + 2), slice(2 * x, 2 * x + 3)) for y in range(2) for x in range(3)]
    seen = [np.stack([values[:, y, x] for y, x in places], axis=1) for values in (poses, activations)]
    seen = seen[0].reshape(12, 18, *pose), seen[1].reshape(12, 18)
    for result, wanted in zip(results, full(*seen, return_couplings=True), strict=True):
        np.testing.assert_allclose(array(result).reshape(wanted.shape), array(wanted), atol=1e-4, rtol=1e-4)


def test_children_that_no_window_covers_or_that_are_masked_count_for_nothing():
    poses = RANDOM.normal(size=(2, 6, 5, 3, 2, 4)).astype("float32")
    layer = ConvEMRouting(4, 2, 3, 2, inverse_temperature=1.0)  # its windows cover five of the six rows
    mask = np.ones((2, 6, 5, 3), bool)
    mask[:, 2, 1] = False
    expected = layer(poses, mask=mask)
    changed = poses.copy()
    changed[:, 5], changed[:, 2, 1] = 9.0, -7.0
    for result, wanted in zip(layer(changed, mask=mask), expected, strict=True):
        np.testing.assert_allclose(array(result), array(wanted), atol=1e-5)


def test_one_iteration_holds_votes_as_several_do():
    layers = [ConvEMRouting(3, 4, iterations=count) for count in (1, 2)]
    for layer in layers:
        layer.build((None, 4, 5, 2, 4))
    once, twice = (layer.votes_cost((2, 4, 5, 2, 4)) for layer in layers)
    assert once == twice and once.held == once.tensor


@pytest.mark.parametrize("competition", ["all", "types"])
def test_recomputed_votes_give_what_stored_ones_give(competition):
    poses = RANDOM.normal(size=(3, 5, 4, 2, 2, 3)).astype("float32")
    activations = RANDOM.random((3, 5, 4, 2)).astype("float32")
    options = dict(competition=competition, use_bias=True, bias_initializer="uniform", inverse_temperature=1.0)
    layer = ConvEMRouting(3, 4, (3, 2), variance_floor=0.1, **options)
    expected = layer(poses, activations, return_couplings=True)[:3]
    for examples in (2, None):  # None: as with votes_memory="store"
        layer.plan = dataclasses.replace(layer.plan, examples=examples)
        for result, wanted in zip(layer(poses, activations), expected, strict=True):
            np.testing.assert_allclose(array(result), array(wanted), rtol=1e-4, atol=1e-5)
