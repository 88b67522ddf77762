import keras
import numpy as np
import pytest
from analysis.capsnets import array, image_of, routed_network
from sweep import MODELS

from tf_capsules.analysis import measure_parse_tree, measure_routing_maps
from tf_capsules.analysis.attribution import class_shares
from tf_capsules.analysis.parse_tree import Level
from tf_capsules.layers import CapsuleLength, DynamicRouting, PrimaryCapsules
from tf_capsules.models import CapsuleClassifier
from tf_capsules.models.heinsen2019 import TextCapsNet


@pytest.mark.parametrize(
    "kind, layers",
    [
        ("dynamic", ["class_capsules"]),
        ("EM", ["class_capsules", "convolutional_capsules_2", "convolutional_capsules_1"]),
        ("attention", ["class_capsules", "convolutional_capsules_2", "convolutional_capsules_1"]),
        ("Heinsen", ["classes", "parts"]),
    ],
)
def test_each_layer_shares_out_all_that_it_holds(kind, layers):
    model = routed_network(kind)
    levels = measure_parse_tree(model, image_of(model))
    assert [level.layer for level in levels] == layers
    for level in levels:
        assert level.shares.shape[:-1] == level.weights.shape and level.shares.shape[-1] == 5
        sums = level.shares.sum(-1)
        assert level.shares.min() >= 0
        np.testing.assert_allclose(sums[sums > 0], 1, rtol=1e-5)
        if level.shares.ndim == 4:
            maps = level.map.sum(-1)
            np.testing.assert_allclose(maps[maps > 0], 1, rtol=1e-5)
    assert (levels[0].shares > 0).all()


@pytest.mark.parametrize("options", [{}, {"activations": True, "schedule": "sequential"}])
def test_shares_of_attention_are_those_of_the_routing_maps(options):
    model = routed_network("attention", **options)
    image = image_of(model)
    maps = measure_routing_maps(model, image[None])[0]
    np.testing.assert_allclose(measure_parse_tree(model, image)[-1].map, maps, atol=1e-6)


def test_shares_through_parts_are_those_of_the_attribution():
    model = routed_network("Heinsen")
    image = image_of(model)
    classes, parts = measure_parse_tree(model, image)
    shares = array(class_shares(model, image[None]))[0]  # shares of one child sum to its activation
    np.testing.assert_allclose(parts.shares * parts.weights[..., None], shares, atol=1e-6)
    # In the tree a child's share of a class is the sum of its parts' shares, weighted with its couplings.
    np.testing.assert_allclose(parts.shares, parts.couplings @ classes.shares, atol=1e-6)
    assert classes.weights.shape == (9,) and parts.couplings.shape == (*parts.weights.shape, 9)


def test_a_place_counts_its_capsules_by_their_activations():
    model = routed_network("EM")
    image = image_of(model)
    level = next(one for one in measure_parse_tree(model, image) if one.layer == "class_capsules")
    activations = keras.Model(model.encoder.input, model.encoder.get_layer("class_capsules").input[1])
    np.testing.assert_allclose(level.weights, array(activations(image[None]))[0], rtol=1e-5)
    row, column = 2, 1
    weights = level.weights[row, column]
    by_hand = sum(w * share for w, share in zip(weights, level.shares[row, column], strict=True)) / weights.sum()
    np.testing.assert_allclose(level.map[row, column], by_hand, rtol=1e-5)


def test_wrong_arguments():
    model = routed_network("dynamic")
    with pytest.raises(ValueError, match="Received an array of shape"):
        measure_parse_tree(model, np.zeros((3, 3, 1)))
    with pytest.raises(ValueError, match="below the layer 'class_capsules' are put into another order"):
        measure_parse_tree(MODELS["CapNet"].make(), np.zeros((4, 5, 3)))
    poses = DynamicRouting(4, 4)(PrimaryCapsules(2, 4, 3)(images := keras.Input((5, 5, 1))))
    poses = DynamicRouting(3, 4, name="last")(keras.ops.flip(poses, axis=1))
    turned = keras.Model(images, {"activations": CapsuleLength()(poses), "poses": poses})
    with pytest.raises(ValueError, match="below the layer 'last' are put into another order"):
        measure_parse_tree(CapsuleClassifier(turned), np.zeros((5, 5, 1)))
    plain = keras.Sequential([keras.Input((4, 4, 1)), keras.layers.Flatten(), keras.layers.Dense(2)])
    with pytest.raises(ValueError, match="A parse tree needs a CapsuleClassifier"):
        measure_parse_tree(plain, np.zeros((4, 4, 1)))
    with pytest.raises(ValueError, match="'class_capsules' are no shares: they contain a learned prior"):
        measure_parse_tree(MODELS["EfficientCapsNet"].make(), np.zeros((11, 12, 2)))
    with pytest.raises(ValueError, match="for texts use `class_shares`"):
        measure_parse_tree(TextCapsNet(layers=2, width=4, classes=3, dim=4, parts=3), np.zeros((5, 2, 4)))


def test_what_each_class_took_sums_to_one():
    shares = np.array([[0.25, 0.75], [0.5, 0.5], [1.0, 0.0]])
    level = Level("classes", shares, np.array([1.0, 2.0, 0.5]), None)
    np.testing.assert_allclose(level.taken, np.array([[0.25, 0.75], [1, 1], [0.5, 0]]) / 1.75)
