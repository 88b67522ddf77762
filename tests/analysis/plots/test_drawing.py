import numpy as np
import pytest

from tf_capsules.analysis.plots import drawing


@pytest.fixture
def axes():
    return drawing.new_figure(3, 2).subplots()


def test_names_of_classes():
    assert drawing.names_of(3) == ["0", "1", "2"]
    short, cut = drawing.names_of(2, ["ant", "b" * 30])
    assert short == "ant" and len(cut) == drawing.LONGEST_NAME and cut.startswith("bbb") and cut.endswith("…")
    with pytest.raises(ValueError, match="has 2 classes. Received 1 names"):
        drawing.names_of(2, ["ant"])
    with pytest.raises(ValueError, match="in their order. Received: {0: 'ant', 1: 'bee'}"):
        drawing.names_of(2, {0: "ant", 1: "bee"})
    assert [drawing.counted(number, "image") for number in (1, 1000)] == ["one image", "1,000 images"]


@pytest.mark.parametrize(
    "limits, expected",
    [((0.4, 0.5), (0.2, 0.7)), ((0.9, 1.0), (0.5, 1.0)), ((0.0, 0.1), (0.0, 0.5)), ((0.1, 0.9), (0.1, 0.9))],
    ids=["in the middle", "near the highest", "near the lowest", "wide enough"],
)
def test_small_changes_look_small(axes, limits, expected):
    axes.set_ylim(*limits)
    drawing.show_at_least(axes, 0.5, 0.0, 1.0)
    np.testing.assert_allclose(axes.get_ylim(), expected)


def test_a_logarithmic_axis_has_a_power_of_ten(axes):
    axes.set_ylim(2.0, 3.0)
    drawing.log_scale(axes)
    low, high = axes.get_ylim()
    assert high == pytest.approx(10 * low) and low < 2 and high > 3
    axes.set_ylim(0.01, 5.0)
    drawing.log_scale(axes)
    assert axes.get_ylim() == (0.01, 5.0)


def test_one_number_of_epochs_is_in_the_middle_of_its_axis(axes):
    axes.plot([4], [1.0])
    drawing.label_axes(axes, "epoch", "loss")
    assert axes.get_xlim() == (3.5, 4.5) and (axes.get_xlabel(), axes.get_ylabel()) == ("epoch", "loss")


def test_a_legend_names_each_line_once(axes):
    figure = axes.figure
    for number, name in enumerate(("a", "b", "a")):
        drawing.add_line(axes, number, [0, 1], [0, 1], name)
    (legend,) = drawing.add_legend(figure).legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b"]
    assert not drawing.add_legend(drawing.new_figure(2, 2)).legends


def test_images_are_shown_in_colours_or_in_grey(axes):
    image = np.linspace(0.2, 0.4, 24).reshape(2, 4, 3)
    shown = []
    for channels, stretched in ((3, False), (2, False), (1, True)):
        drawing.show_image(axes, image[..., :channels], stretched)
        shown.append(np.asarray(axes.images[-1].get_array()))
    np.testing.assert_allclose(shown[0], image)
    np.testing.assert_allclose(shown[1], image[..., :2].mean(-1))
    assert shown[2].shape == (2, 4) and (shown[2].min(), shown[2].max()) == (0, 1)
