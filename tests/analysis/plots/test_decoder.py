import keras
import numpy as np
import pytest
from analysis.capsnets import array, picture, small_capsnet, small_images, strengthen

from tf_capsules.analysis import (
    measure_overlapping_reconstructions,
    measure_reconstructions,
    perturb_dimensions,
    plots,
    reconstruct_parts,
)
from tf_capsules.analysis.plots.decoder import overlay
from tf_capsules.models.sabour2017 import CapsNet

NAMES = ("deer", "automobile", "ankle boot", "four-legged animals of $1 or $2", "cat")
SHOWN = ("deer", "automobile", "ankle boot", "four-legged animals…", "cat")


def check_apart(figure):
    """Checks that no text of the figure covers another one."""
    figure.draw_without_rendering()
    texts = [figure._supxlabel]
    for axes in figure.axes:
        texts += [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.get_xticklabels(), *axes.get_yticklabels()]
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts if text.get_text() and text.get_visible()]
    assert len(boxes) > 5
    for n, (name, box) in enumerate(boxes):
        assert not [other for other, second in boxes[:n] if box.overlaps(second)], name


def reconstructions(model, images, labels, class_names=None, **options):
    return plots.draw_reconstructions(measure_reconstructions(model, images, labels, **options), class_names)


def perturbation(model, image, label, name=None):
    return plots.draw_dimension_perturbation(perturb_dimensions(model, image, label), label if name is None else name)


def overlapping(model, images, parts, labels, class_names=None):
    measured = measure_overlapping_reconstructions(model, images, parts, labels)
    return plots.draw_overlapping_reconstructions(measured, class_names)


@pytest.fixture(scope="module")
def model():
    model = small_capsnet(dim=16)
    strengthen(model, 10)
    return model


@pytest.fixture(scope="module")
def images():
    return small_images()


@pytest.fixture(scope="module")
def predictions(model, images):
    return array(model(images)["activations"]).argsort(-1)[:, ::-1]


def test_reconstructions_name_their_columns_and_show_wrong_ones_twice(model, images, predictions, saved):
    labels = predictions[:, 0].copy()
    labels[[1, 4]] = predictions[[1, 4], 1]
    figure = saved(reconstructions(model, images, labels, right=3, wrong=5))
    index, sources = [0, 2, 3, 1, 1, 4, 4], []
    for i in [0, 2, 3]:
        sources.append(labels[i])
    for i in [1, 4]:
        sources += [predictions[i, 0], labels[i]]
    top, bottom = figure.axes[:7], figure.axes[7:]
    assert len(bottom) == 7
    titles = [f"({labels[i]}, {predictions[i, 0]}, {source})" for i, source in zip(index, sources, strict=True)]
    assert [axes.get_title() for axes in top] == titles
    want = reconstruct_parts(model, images[index], np.array(sources)[:, None])[:, 0, ..., 0]
    for n in range(7):
        np.testing.assert_array_equal(picture(top[n]), images[index[n], ..., 0])
        np.testing.assert_allclose(picture(bottom[n]), want[n], atol=1e-6)
    assert "wrong predictions" in figure.get_supxlabel()


def test_reconstructions_without_wrong_predictions_do_not_speak_of_them(model, images, predictions):
    figure = reconstructions(model, images, predictions[:, 0])
    assert len(figure.axes) == 2 * 6 and "wrong" not in figure.get_supxlabel()


def test_reconstructions_name_classes_without_overlap(model, images, predictions):
    labels = predictions[:, 0].copy()
    labels[1] = predictions[1, 1]
    figure = reconstructions(model, images, labels, right=3, class_names=NAMES)
    columns = [(i, labels[i]) for i in (0, 2, 3)] + [(1, predictions[1, 0]), (1, labels[1])]
    want = ["\n".join(SHOWN[k] for k in (labels[i], predictions[i, 0], source)) for i, source in columns]
    assert [axes.get_title() for axes in figure.axes[:5]] == want
    check_apart(figure)


def test_the_longest_names_fit_beside_each_other(model, images):
    figure = reconstructions(model, images, [0] * 6, right=3, wrong=2, class_names=[NAMES[3]] * 5)
    assert all(SHOWN[3] in axes.get_title() for axes in figure.axes[: len(figure.axes) // 2])
    check_apart(figure)


def test_perturbation_grid_has_a_row_a_dimension_and_eleven_columns(model, images, saved):
    figure = saved(perturbation(model, images[0], 3))
    (axes,) = figure.axes
    grid, want = picture(axes), perturb_dimensions(model, images[0], 3)
    assert grid.shape == (16 * 9 + 1, 11 * 8 + 1)
    for i in range(16):
        for k in range(11):
            tile = grid[9 * i + 1 : 9 * i + 9, 8 * k + 1 : 8 * k + 8]
            np.testing.assert_allclose(tile, want[i, k, ..., 0], atol=1e-6)
    assert (grid[::9] == 1).all() and (grid[:, ::8] == 1).all()
    assert [text.get_text() for text in axes.get_xticklabels()][::5] == ["-0.25", "0", "+0.25"]
    assert [text.get_text() for text in axes.get_yticklabels()] == [str(i) for i in range(1, 17)]
    assert "class 3." in figure.get_supxlabel() and "stretched" not in figure.get_supxlabel()


def test_perturbation_grid_names_the_class(model, images):
    figure = perturbation(model, images[0], 1, NAMES[1])
    assert "class automobile." in figure.get_supxlabel()


def test_contrast_of_plain_grey_perturbations_is_stretched_and_the_figure_says_so(images):
    keras.utils.set_random_seed(1)
    sizes = {"filters": 6, "kernel_size": 3, "types": 3, "pose": 4, "primary_kernel_size": 3, "primary_strides": 1}
    model = CapsNet((8, 7, 1), classes=5, dim=6, **sizes, decoder_units=(11,))
    values = perturb_dimensions(model, images[0], 2)
    assert np.ptp(values) < 0.1
    figure = perturbation(model, images[0], 2)
    grid, want = picture(figure.axes[0]), (values - values.min()) / np.ptp(values)
    np.testing.assert_allclose(grid[9 * 4 + 1 : 9 * 5, 8 * 9 + 1 : 8 * 10], want[4, 9, ..., 0], atol=1e-5)
    text = figure.get_supxlabel().replace("\n", " ")
    assert f"stretched: black is {values.min():.4g} and white {values.max():.4g}." in text
    strengthen(model, 0)
    figure = perturbation(model, images[0], 2)
    assert "black is 0.5 and white 0.5." in figure.get_supxlabel().replace("\n", " ")


def test_overlapping_reconstructions_show_labels_predictions_and_a_wrong_choice(model, images, predictions, saved):
    labels = predictions[:4, :2].copy()
    labels[1] = labels[1, ::-1]  # the same classes in another order: right, and the colours follow the labels
    labels[2, 0] = predictions[2, 3]
    parts = np.random.default_rng(1).random((4, 2, 8, 7, 1), dtype="float32")
    figure = saved(overlapping(model, images[:4], parts, labels))
    cells = np.array(figure.axes).reshape(5, 4)
    predicted = [
        labels[0],
        labels[1],
        predictions[2, 1::-1] if labels[2, 1] == predictions[2, 0] else predictions[2, :2],
    ]
    wrong = np.stack([labels[:, 0], predictions[:4, -1]], axis=-1)
    for n in range(3):
        np.testing.assert_array_equal(picture(cells[0, n]), images[n, ..., 0])
        np.testing.assert_allclose(picture(cells[1, n]), overlay(parts[n]), atol=1e-6)
        for row, choice in ((2, labels[n]), (3, predicted[n]), (4, wrong[n])):
            want = overlay(reconstruct_parts(model, images[n : n + 1], choice[None])[0])
            np.testing.assert_allclose(picture(cells[row, n]), want, atol=1e-6)
            assert cells[row, n].get_xlabel() == ", ".join(str(c) for c in choice)
    assert [axes.get_title() for axes in cells[0]] == [f"{a}, {b}" for a, b in labels]
    assert [axes.title.get_fontweight() for axes in cells[0]] == ["normal", "normal", "bold", "normal"]


def test_overlapping_reconstructions_name_classes_without_overlap(model, images):
    labels = np.array([[0, 3], [1, 2]])
    parts = np.random.default_rng(1).random((2, 2, 8, 7, 1), dtype="float32")
    figure = overlapping(model, images[:2], parts, labels, NAMES)
    cells = np.array(figure.axes).reshape(5, 2)
    want = ["\n".join(SHOWN[k] for k in pair) for pair in labels]
    assert [axes.get_title() for axes in cells[0]] == want
    assert [axes.get_xlabel() for axes in cells[2]] == want
    assert all(set(axes.get_xlabel().split("\n")) <= set(SHOWN) for axes in cells[3:].flat)
    check_apart(figure)


def test_overlay_adds_orange_and_blue():
    first, second = np.array([[[1.0], [0.0], [1.0], [0.5]]]), np.array([[[0.0], [1.0], [1.0], [0.0]]])
    want = [[[1, 0.55, 0], [0, 0.45, 1], [1, 1, 1], [0.5, 0.275, 0]]]
    np.testing.assert_allclose(overlay(np.stack([first, second])), want, atol=1e-6)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda m, x: reconstructions(m, x, [1] * 6, class_names=NAMES[:4]), "5 classes. Received 4 names"),
        (
            lambda m, x: overlapping(m, x, np.stack([x, x], 1), [[1, 2]] * 6, NAMES[:2]),
            "5 classes. Received 2 names",
        ),
    ],
)
def test_bad_input_is_named(model, images, call, message):
    with pytest.raises(ValueError, match=message):
        call(model, images)
