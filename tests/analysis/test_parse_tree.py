import keras
import numpy as np
import pytest

from tf_capsules.analysis import draw_parse_tree, measure_parse_tree, measure_routing_maps
from tf_capsules.analysis.attribution import class_shares
from tf_capsules.models.heinsen2019 import ImageCapsNet, TextCapsNet
from tf_capsules.models.hinton2018 import MatrixCapsNet
from tf_capsules.models.sabour2017 import CapsNet
from tf_capsules.models.tsai2020 import AttentionCapsNet


def network(kind):
    keras.utils.set_random_seed(0)
    if kind == "dynamic":
        sizes = {"filters": 6, "kernel_size": 3, "types": 3, "pose": 4, "primary_kernel_size": 3, "primary_strides": 1}
        return CapsNet((8, 7, 1), classes=5, dim=9, **sizes, decoder_units=None)
    if kind == "EM":
        return MatrixCapsNet((25, 23, 1), classes=5, filters=6, types=3, capsules=(4, 2), iterations=2)
    if kind == "attention":
        return AttentionCapsNet((24, 22, 3), classes=5, types=4, convolutions=((3, 3, 2), (2, 3, 1)), iterations=2)
    model = ImageCapsNet((45, 37, 2), classes=5, filters=6, types=4, parts=9, pose=(3, 2))
    for weight in model.weights:  # with betas of zero no score differs from another
        if "beta" in weight.name:
            weight.assign(np.random.default_rng(1).normal(scale=0.1, size=weight.shape))
    return model


def image_of(model):
    return np.random.default_rng(0).random(model.image_shape, dtype="float32")


def array(tensor):
    return keras.ops.convert_to_numpy(tensor)


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
    model = network(kind)
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


def test_shares_of_attention_are_those_of_the_routing_maps():
    model = network("attention")
    image = image_of(model)
    maps = measure_routing_maps(model, image[None])[0]
    np.testing.assert_allclose(measure_parse_tree(model, image)[-1].map, maps, atol=1e-6)


def test_shares_through_parts_are_those_of_the_attribution():
    model = network("Heinsen")
    image = image_of(model)
    classes, parts = measure_parse_tree(model, image)
    shares = array(class_shares(model, image[None]))[0]  # of an activation, which they sum to
    np.testing.assert_allclose(parts.shares * parts.weights[..., None], shares, atol=1e-6)
    # The tree: a child's share of a class is the sum over its parts of theirs.
    np.testing.assert_allclose(parts.shares, parts.couplings @ classes.shares, atol=1e-6)
    assert classes.weights.shape == (9,) and parts.couplings.shape == (*parts.weights.shape, 9)


def test_a_place_counts_its_capsules_by_their_activations():
    model = network("EM")
    level = measure_parse_tree(model, image_of(model))[1]
    row, column = 2, 1
    weights = level.weights[row, column]
    by_hand = sum(w * share for w, share in zip(weights, level.shares[row, column], strict=True)) / weights.sum()
    np.testing.assert_allclose(level.map[row, column], by_hand, rtol=1e-5)


@pytest.mark.parametrize("kind, panels", [("dynamic", 1 + 3), ("EM", 1 + 3 * 3), ("Heinsen", 1 + 3 + 3 * 2)])
def test_the_picture_names_the_likeliest_classes(kind, panels):
    model = network(kind)
    image = image_of(model)
    figure = draw_parse_tree(model, image, parts=2, class_names=list("abcde"))
    assert len(figure.axes) == panels
    scores = array(model(image[None])["activations"])[0]
    titles = [axes.get_title()[0] for axes in figure.axes[1:4]]
    assert titles == ["abcde"[i] for i in np.argsort(-scores, kind="stable")[:3]]


def test_wrong_arguments():
    model = network("dynamic")
    with pytest.raises(ValueError, match="The model has 5 classes. Received 2 names"):
        draw_parse_tree(model, image_of(model), class_names=["a", "b"])
    with pytest.raises(ValueError, match="Received an array of shape"):
        measure_parse_tree(model, np.zeros((3, 3, 1)))
    plain = keras.Sequential([keras.Input((4, 4, 1)), keras.layers.Flatten(), keras.layers.Dense(2)])
    with pytest.raises(ValueError, match="A parse tree is that of a CapsuleClassifier"):
        measure_parse_tree(plain, np.zeros((4, 4, 1)))
    with pytest.raises(ValueError, match="of texts see `sentence_attribution`"):
        measure_parse_tree(TextCapsNet(layers=2, width=4, classes=3, dim=4, parts=3), np.zeros((5, 2, 4)))
