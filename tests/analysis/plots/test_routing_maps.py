import keras
import numpy as np
import pytest

from tf_capsules.analysis import measure_routing_maps, plots, predict_probabilities
from tf_capsules.layers import ConcurrentRouting, InvertedAttentionRouting, PrimaryCapsules
from tf_capsules.models.tsai2020 import AttentionCapsNet


def routing_maps(model, images, inputs=None, layer="routing", **options):
    inputs = images if inputs is None else inputs
    maps = measure_routing_maps(model, inputs, layer)
    return plots.draw_routing_maps(images, maps, predict_probabilities(model, inputs), **options)


def test_routing_maps_show_the_likeliest_classes(saved):
    model = AttentionCapsNet((11, 12, 1), 4, filters=5, types=3, pose=(2, 2), convolutions=((4, 3, 1),))
    images = np.random.default_rng(0).uniform(size=(3, 11, 12, 1)).astype("float32")
    figure = saved(routing_maps(model, images, 2 * images, labels=[[1], [0], [3]], classes=2, class_names="abcd"))
    panels = np.array(figure.axes[:9], object).reshape(3, 3)
    maps = measure_routing_maps(model, 2 * images)
    scores = model.predict_on_batch(2 * images)["activations"]
    for line, own, score, label in zip(panels, maps, scores, [1, 0, 3], strict=True):
        assert line[0].get_title() == "abcd"[label]
        for axes, number in zip(line[1:], np.argsort(-score)[:2], strict=True):
            assert axes.get_title().startswith("abcd"[number] + " ")
            assert (axes.title.get_fontweight() == "bold") == (number == label)
            np.testing.assert_allclose(axes.images[1].get_array(), own[..., number], rtol=1e-6)
    assert "Even routing gives 0.25." in figure.get_supxlabel().replace("\n", " ")


def test_routing_maps_of_a_functional_model_with_several_classes_an_image(saved):
    images = np.random.default_rng(0).uniform(size=(2, 9, 9, 1)).astype("float32")
    x = keras.Input((9, 9, 1))
    routed = ConcurrentRouting([InvertedAttentionRouting(3, 2)], 2, name="mine")(PrimaryCapsules(2, 2, 3, 2)(x))
    logits = keras.layers.Reshape((3,))(keras.layers.Dense(1)(routed)) - 5
    figure = saved(routing_maps(keras.Model(x, logits), images, labels=np.eye(3)[[1, 2]] + [1, 0, 0], layer="mine"))
    assert [axes.get_title() for axes in figure.axes[:8:4]] == ["0, 1", "0, 2"]
    assert {axes.get_title() for axes in figure.axes[1:4]} == {"0", "1", "2"}
    with pytest.raises(ValueError, match=r"must name the classes of 2 images. Received: .1."):
        routing_maps(keras.Model(x, logits), images, labels=[1], layer="mine")
    with pytest.raises(ValueError, match=r"or a row with 1 for some of 3. Received: .1, 0."):
        routing_maps(keras.Model(x, logits), images, labels=[[1, 0], [0, 1]], layer="mine")
    with pytest.raises(ValueError, match=r"a probability for each of 3 classes. Received: \(2, 3, 2\)"):
        routing_maps(keras.Model(x, routed), images, layer="mine")


def test_maps_that_hardly_differ_look_alike():
    images, scores = np.zeros((1, 8, 8, 1)), np.full((1, 4), 0.25)
    even = 0.25 + np.random.default_rng(0).normal(scale=0.001, size=(1, 4, 4, 4))
    image = plots.draw_routing_maps(images, even, scores).axes[1].images[1]
    low, high = image.get_clim()
    assert high - low == pytest.approx(0.125) and low < 0.25 < high
