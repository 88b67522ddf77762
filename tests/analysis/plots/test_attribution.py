import re

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from tf_capsules.analysis.plots import draw_sentence_attribution

NAMES = ["bad", "fair", "good", "great"]


def shares_of(tokens, layers, classes, seed=0):
    return np.random.default_rng(seed).dirichlet(np.full(classes, 0.4), (tokens, layers))


def drawn(figure):
    assert isinstance(figure, Figure)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return canvas.get_renderer()


def pictures(figure):
    return [np.asarray(axes.get_images()[0].get_array()) for axes in figure.axes[:2]]


def test_a_sentence_is_drawn_by_class_and_by_layer():
    shares = shares_of(5, 3, 4)
    figure = draw_sentence_attribution(["[CLS]", "a", "fine", "##st", "[SEP]"], shares, NAMES, [0.1, 0.2, 0.65, 0.05])
    drawn(figure)
    by_class, by_layer = pictures(figure)
    np.testing.assert_allclose(by_class, shares.mean(1).T)
    np.testing.assert_allclose(by_layer, shares[..., 2].T)
    top, bottom, bar = figure.axes
    assert figure.get_suptitle() == "good, with probability 65.0%"
    assert [label.get_text() for label in top.get_xticklabels()] == ["[CLS]", "a", "fine", "##st", "[SEP]"]
    assert [label.get_text() for label in top.get_yticklabels()] == NAMES
    assert [label.get_fontweight() for label in top.get_yticklabels()] == ["normal", "normal", "bold", "normal"]
    assert bottom.get_ylim() == (-0.5, 2.5)  # the lowest layer at the bottom
    assert bar.get_ylabel() == "share that goes to a class"


def test_colours_are_white_at_an_even_share():
    shares = shares_of(5, 3, 4)
    figure = draw_sentence_attribution(list("abcde"), shares, NAMES, [0.7, 0.1, 0.1, 0.1])
    for axes in figure.axes[:2]:
        image = axes.get_images()[0]
        norm = image.norm
        assert norm(0.25) == 0.5 and norm.vmin == 0 and norm.vmax == shares.max()
        assert min(image.cmap(norm(0.25))[:3]) > 0.95
    label = figure.axes[0].get_xticklabels()[3]
    assert label.get_bbox_patch().get_facecolor() == pytest.approx(image.cmap(norm(shares[3, :, 0].mean())))


def test_even_shares_are_all_white():
    figure = draw_sentence_attribution(list("abc"), np.full((3, 2, 4), 0.25) + 1e-6, NAMES, [0.4, 0.2, 0.2, 0.2])
    image = figure.axes[1].get_images()[0]
    assert np.asarray(image.cmap(image.norm(image.get_array())))[..., :3].min() > 0.95


@pytest.mark.parametrize("tokens", [1, 12, 60])
def test_tokens_do_not_cover_each_other(tokens):
    words = [("wonderful", "a", "movie")[number % 3] for number in range(tokens)]
    figure = draw_sentence_attribution(words, shares_of(tokens, 13, 4), NAMES, [0.1, 0.2, 0.65, 0.05])
    renderer = drawn(figure)
    top = figure.axes[0]
    boxes = [label.get_window_extent(renderer) for label in top.get_xticklabels()]
    assert len(boxes) == tokens
    assert all(left.x1 < right.x0 for left, right in zip(boxes[:-1], boxes[1:], strict=True))
    assert all(box.y0 >= top.bbox.y1 and box.y1 < figure.bbox.y1 for box in boxes)
    assert top.bbox.width > 0.5 * figure.bbox.width


def test_any_token_and_name_is_shown_as_it_is():
    tokens = ["$x_1$", " ", "\n", "a\x00b", " film", "donaudampfschifffahrtsgesellschaft"]
    figure = draw_sentence_attribution(tokens, shares_of(6, 2, 2), ["$neg$", "$pos$"], [0.4, 0.6])
    drawn(figure)
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert labels == ["$x_1$", "␣", "\ufffd", "a\ufffdb", "film", "donaudampfschifffah…"]
    texts = [*figure.axes[0].get_xticklabels(), *figure.axes[0].get_yticklabels(), figure._suptitle]
    assert not any(text.get_parse_math() for text in texts)


def test_of_many_classes_the_most_probable_are_shown():
    probabilities = np.arange(40) / 780
    shares = shares_of(3, 2, 40)
    figure = draw_sentence_attribution(list("abc"), shares, [f"class {k}" for k in range(40)], probabilities)
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == [f"class {k}" for k in range(28, 40)]
    np.testing.assert_allclose(pictures(figure)[0], shares.mean(1).T[28:])


def test_equal_probabilities_and_a_single_class_are_drawn():
    names = [f"class {k}" for k in range(20)]
    drawn(draw_sentence_attribution(list("abc"), shares_of(3, 2, 20), names, np.full(20, 0.05)))
    drawn(draw_sentence_attribution(list("abc"), np.ones((3, 2, 1)), names[:1], np.ones(1)))


@pytest.mark.parametrize(
    "tokens, shape, names, classes",
    [(4, (5, 3, 4), 4, 4), (5, (1, 5, 3, 4), 4, 4), (5, (5, 3, 4), 3, 4), (5, (5, 3, 4), 4, 3), (0, (0, 3, 4), 4, 4)],
)
def test_arguments_that_do_not_fit_are_named(tokens, shape, names, classes):
    message = f"{shape} and {(classes,)}, {tokens} tokens and {names} class names"
    with pytest.raises(ValueError, match=re.escape(message)):
        draw_sentence_attribution(["a"] * tokens, np.zeros(shape), NAMES[:names], np.zeros(classes))
