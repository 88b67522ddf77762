import numpy as np
import pytest
from analysis.capsnets import legend, small_capsnet, small_images, ticks

from tf_capsules.analysis import measure_pose_changes, measure_routing_changes, plots
from tf_capsules.models.tsai2020 import AttentionCapsNet


@pytest.fixture(scope="module")
def model():
    return small_capsnet(dim=16)


@pytest.fixture(scope="module")
def images():
    return small_images()


def routing_changes(model, images, iterations):
    return plots.draw_routing_changes(measure_routing_changes(model, images, iterations), len(images))


def test_routing_changes_are_drawn_on_a_logarithmic_scale(model, images, saved):
    figure = saved(routing_changes(model, images, iterations=4))
    (axes,) = figure.axes
    ((points),) = [line.get_xydata() for line in axes.get_lines()]
    np.testing.assert_array_equal(points[:, 0], [1, 2, 3, 4])
    np.testing.assert_allclose(points[:, 1], measure_routing_changes(model, images, 4), rtol=1e-6)
    assert axes.get_yscale() == "log" and "6 images" in figure.get_supxlabel()


@pytest.mark.parametrize("iterations", [1, 2, 5])
def test_routing_iterations_are_whole_numbers(model, images, iterations):
    (axes,) = routing_changes(model, images, iterations).axes
    assert ticks(axes.xaxis) == [str(i + 1) for i in range(iterations)]


def test_pose_changes_have_a_panel_a_schedule_and_a_line_a_layer(saved):
    model = AttentionCapsNet((11, 12, 1), 4, filters=5, types=3, pose=(2, 2), convolutions=((4, 3, 1),))
    images = np.random.default_rng(0).normal(size=(3, 11, 12, 1)).astype("float32")
    changes = {one: measure_pose_changes(model, images, 5, one) for one in ("concurrent", "sequential")}
    layers = [layer.name for layer in model.encoder.get_layer("routing").chain]
    figure = saved(plots.draw_pose_changes(changes, layers, len(images)))
    assert legend(figure) == [name.replace("_", " ") for name in layers]
    assert [axes.get_title() for axes in figure.axes] == ["concurrent", "sequential"]
    for axes in figure.axes:
        points = [line.get_xydata() for line in axes.get_lines()]
        want = measure_pose_changes(model, images, 5, axes.get_title())
        np.testing.assert_allclose([line[:, 1] for line in points], want, rtol=1e-5)
        np.testing.assert_array_equal(points[0][:, 0], [2, 3, 4, 5])
    assert "3 images" in figure.get_supxlabel()


def test_all_pose_changes_are_in_the_picture():
    changes = {"concurrent": [[1.2, 1.0, 0.9]], "sequential": [[1.0, 0.01, 1e-4]]}
    for order in (changes, dict(reversed(changes.items()))):
        for axes in plots.draw_pose_changes(order, ["one"], 3).axes:
            low, high = axes.get_ylim()
            assert axes.get_yscale() == "log" and low <= 1e-4 and high >= 1.2
