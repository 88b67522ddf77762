import numpy as np
import pytest
from analysis.capsnets import image_of, routed_network

from tf_capsules.analysis import measure_parse_tree, predict_probabilities
from tf_capsules.analysis.plots import draw_parse_tree


@pytest.mark.parametrize(
    "kind, options, panels",
    [
        ("dynamic", {}, 1 + 3),
        ("EM", {}, 1 + 3 * 3),
        ("Heinsen", {}, 1 + 3 + 3 * 2),
        ("attention", {"hidden": (6,)}, 1 + 3 * 3 + 3 * 2),
        ("attention", {"hidden": (6, 7)}, 1 + 3 * 3 + 3 * 2),
    ],
)
def test_the_picture_names_the_likeliest_classes(kind, options, panels):
    model = routed_network(kind, **options)
    image = image_of(model)
    scores = predict_probabilities(model, image[None])[0]
    levels = measure_parse_tree(model, image)
    figure = draw_parse_tree(image, levels, scores, parts=2, class_names=list("abcde"))
    assert len(figure.axes) == panels
    titles = [axes.get_title()[0] for axes in figure.axes[1:4]]
    assert titles == ["abcde"[i] for i in np.argsort(-scores, kind="stable")[:3]]


def test_wrong_names():
    image = image_of(routed_network("dynamic"))
    levels = measure_parse_tree(routed_network("dynamic"), image)
    with pytest.raises(ValueError, match="The model has 5 classes. Received 2 names"):
        draw_parse_tree(image, levels, np.arange(5), class_names=["a", "b"])
