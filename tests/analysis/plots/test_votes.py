import re

import numpy as np
import pytest
from analysis.capsnets import legend

from tf_capsules.analysis import (
    measure_example_votes,
    measure_vote_distances,
    measure_vote_similarities,
    plots,
    predict,
)
from tf_capsules.analysis.plots.votes import _end_of_axis
from tf_capsules.analysis.votes import ExampleVotes
from tf_capsules.models.hinton2018 import MatrixCapsNet
from tf_capsules.models.li2018 import CapNet


def vote_distances(model, images, labels, right=2, wrong=1, **options):
    return plots.draw_vote_distances(measure_example_votes(model, images, labels, right, wrong), **options)


def test_vote_distances_have_a_row_an_image_and_a_panel_a_class(saved):
    model = MatrixCapsNet((17, 18, 1), classes=4, filters=4, types=3, capsules=(3, 9), iterations=2)
    images = 3 * np.random.default_rng(0).normal(size=(40, 17, 18, 1)).astype("float32")
    predictions = predict(model, images)["activations"].argmax(-1)
    index = np.sort(np.unique(predictions, return_index=True)[1])
    assert len(index) > 1
    labels = predictions.copy()
    labels[index[1]] = next(label for label in range(4) if label not in predictions[index[:2]])
    images, labels = images[index[:2]], labels[index[:2]]
    names = ["ball", "cube", "cone", "ring"]
    figure = saved(vote_distances(model, images, labels, farthest=2.5, class_names=names))
    assert legend(figure) == ["iteration 1", "iteration 2"]
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == [names[labels[0]], *names, names[labels[1]], *names]
    bold = [axes.get_title() for axes in figure.axes if axes.title.get_fontweight() == "bold"]
    assert bold == [names[labels[1]], names[predictions[index[1]]]]
    distances, couplings = measure_vote_distances(model, images)
    within = couplings * (distances <= 2.5)
    # The patches are the area of the last iteration, then the outlines of both iterations.
    panel = figure.axes[5 + 1 + 2]
    sums = [sum(patch.get_data().values) for patch in panel.patches]
    expected = within[:, 1, :, 2].sum(-1)
    np.testing.assert_allclose(sums, [expected[0], expected[1], expected[1]], rtol=1e-4)
    share = within[1].sum() / couplings[1].sum()
    assert f"cut at 2.5, within which {share:.0%} of" in figure.get_supxlabel().replace("\n", " ")
    untrained = vote_distances(model, images, labels)
    (within,) = re.findall(r"within which (\d+)% of", untrained.get_supxlabel().replace("\n", " "))
    assert 50 <= int(within) < 60  # the median of a few votes
    with pytest.raises(ValueError, match="no image to show with right=0 and wrong=0"):
        vote_distances(model, images, labels, right=0, wrong=0)
    with pytest.raises(ValueError, match="2 images and 1 labels"):
        vote_distances(model, images, labels[:1])


def test_of_many_classes_twelve_are_shown(saved):
    random = np.random.default_rng(0)
    couplings = random.dirichlet(np.ones(40), (2, 2, 5))
    couplings[-1, :, :, 37] += 1
    images, labels, predictions = np.zeros((2, 3, 3, 1)), np.array([39, 4]), np.array([39, 20])
    measured = ExampleVotes(images, labels, predictions, random.uniform(size=couplings.shape), couplings)
    figure = saved(plots.draw_vote_distances(measured))
    titles = [int(axes.get_title()) for axes in figure.axes]
    assert len(titles) == 26 and titles[0] == 39 and titles[1:13] == sorted(titles[1:13]) == titles[14:]
    assert {4, 20, 37, 39} <= set(titles[1:13]) and "12 of 40 classes." in figure.get_supxlabel()


def test_vote_similarities_have_a_panel_a_model(saved):
    # EM routing stores its votes here: its eager loop over the 32 types of capsules takes long.
    sizes = dict(classes=3, dim=4, grid=(1, 1), iterations=1)
    memory = {"dynamic": "auto", "em": "store"}
    models = {name: CapNet((8, 8, 1), routing=name, votes_memory=memory[name], **sizes) for name in memory}
    images = np.random.default_rng(0).random((6, 8, 8, 1)).astype("float32")
    measured = {name: measure_vote_similarities(model, images, [0, 1, 2, 0, 1, 2]) for name, model in models.items()}
    figure = saved(plots.draw_vote_similarities(measured, len(images)))
    shares, lengths = measured["em"]
    np.testing.assert_allclose(figure.axes[3].lines[0].get_ydata(), lengths)
    panel = figure.axes[1]
    np.testing.assert_allclose([bar.get_height() for bar in panel.patches], 100 * shares)
    assert panel.get_title() == f"em: {shares[:10].sum():.0%} of the votes below 0"
    with pytest.raises(ValueError, match="no model"):
        plots.draw_vote_similarities({}, 6)


def test_the_axis_ends_at_the_median_where_no_vote_is_near():
    assert _end_of_axis(np.array([[7.0, 5.0, 6.0]]), np.ones((1, 3))) == 6
    assert _end_of_axis(np.array([[0.01, 5.0, 6.0]]), np.ones((1, 3))) == 0.05
