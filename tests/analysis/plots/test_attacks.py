import numpy as np
import pytest
from analysis.capsnets import legend
from analysis.classifiers import KERNEL, SHAPE, linear

from tf_capsules.analysis.attacks import ATTACKS, fgsm, measure_attacked_images
from tf_capsules.analysis.input_gradient import InputGradient
from tf_capsules.analysis.plots import draw_attacked_images, draw_robustness
from tf_capsules.analysis.robustness import measure_attacks


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).random((7, *SHAPE), dtype="float32")


def test_curves_show_each_model_solid_and_what_is_transferred_dashed(gradient, images, labels, tmp_path):
    gradients = {"a": gradient, "b $1": InputGradient(linear(-KERNEL))}
    rows = list(measure_attacks(gradients, images, labels, [0.1, 0.2], steps=2))
    figure = draw_robustness(rows, "shares of the pixel range")
    assert [axes.get_title() for axes in figure.axes[:2]] == list(ATTACKS.values())
    assert len(figure.axes) == 4
    assert legend(figure) == ["a", "b $1, made on a", "a, made on b $1", "b $1"]
    lines = {line.get_label(): line for line in figure.axes[2].get_lines()}
    assert list(lines) == ["a", "b $1, made on a", "a, made on b $1", "b $1"]
    assert [line.get_linestyle() for line in lines.values()] == ["-", "--", "--", "-"]
    for line, (model, made_on) in zip(
        lines.values(), [("a", "a"), ("b $1", "a"), ("a", "b $1"), ("b $1",) * 2], strict=True
    ):
        of_line = ("fgsm", "targeted", model, made_on)
        points = [
            (r["epsilon"], 100 * r["value"])
            for r in rows
            if (r["attack"], r["goal"], r["model"], r["made_on"]) == of_line
        ]
        np.testing.assert_allclose(line.get_xydata(), points)
    figure.savefig(tmp_path / "curves.png")


def test_pictures_name_what_the_model_sees(gradient, images, labels, tmp_path):
    measured = measure_attacked_images(gradient, images, labels[:, None], [0.2, 0.9], "fgsm", bounds=None)
    figure = draw_attacked_images(measured, "pqrs")
    grid = np.reshape(figure.axes, (3, 7))
    for row, epsilon in zip(grid, (0.0, 0.2, 0.9), strict=True):
        found = gradient.classify(fgsm(gradient, images, labels, epsilon))
        assert [axes.get_xlabel() for axes in row] == ["pqrs"[i] for i in found]
        wrong = [axes.xaxis.label.get_color() != "black" for axes in row]
        assert wrong == (found != labels).tolist()
    assert [axes.get_title() for axes in grid[0]] == ["pqrs"[i] for i in labels]
    figure.savefig(tmp_path / "pictures.png")


def test_wrong_names(gradient, images, labels):
    measured = measure_attacked_images(gradient, images, labels, [0.2])
    with pytest.raises(ValueError, match="The model has 4 classes. Received 3 names"):
        draw_attacked_images(measured, "pqr")
    for names in (dict(enumerate("pqrs")), set("pqrs")):
        with pytest.raises(ValueError, match="a name for each class, in their order. Received: {"):
            draw_attacked_images(measured, names)
