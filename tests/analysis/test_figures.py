import re

import keras
import numpy as np
import pytest
from matplotlib.figure import Figure

from tf_capsules.analysis import figures, measure_routing_changes, measures, perturb_dimensions, reconstruct_parts
from tf_capsules.layers import ConcurrentRouting, InvertedAttentionRouting, PrimaryCapsules
from tf_capsules.models.hinton2018 import MatrixCapsNet
from tf_capsules.models.li2018 import CapNet
from tf_capsules.models.sabour2017 import CapsNet
from tf_capsules.models.tsai2020 import AttentionCapsNet


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    sizes = {"filters": 6, "kernel_size": 3, "types": 3, "pose": 4, "primary_kernel_size": 3, "primary_strides": 1}
    model = CapsNet((8, 7, 1), classes=5, dim=16, **sizes, decoder_units=(11,))
    strengthen(model, 10)
    return model


def strengthen(model, factor):
    """Multiplies what goes into the pixels, so that an untrained decoder draws something, or next to nothing."""
    kernel = next(weight for weight in reversed(model.decoder.trainable_variables) if len(weight.shape) == 2)
    kernel.assign(kernel * factor)


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).random((6, 8, 7, 1), dtype="float32")


@pytest.fixture(scope="module")
def predictions(model, images):
    return keras.ops.convert_to_numpy(model(images)["activations"]).argsort(-1)[:, ::-1]


@pytest.fixture
def saved(tmp_path):
    """Saves a figure and checks that a picture of its size came out."""

    def save(figure):
        assert isinstance(figure, Figure)
        figure.savefig(tmp_path / "figure.png")
        content = (tmp_path / "figure.png").read_bytes()
        assert content.startswith(b"\x89PNG")
        width, height = np.frombuffer(content[16:24], ">u4")
        np.testing.assert_allclose((width, height), figure.get_size_inches() * 150, atol=1)
        return figure

    return save


def rows(*losses, accuracy="accuracy"):
    return [
        {"epoch": i + 1, "loss": x, "val_loss": x / 2, accuracy: 1 - x, f"val_{accuracy}": 1 - x / 4}
        for i, x in enumerate(losses)
    ]


def lines(axes):
    return {line.get_label(): line.get_xydata().tolist() for line in axes.get_lines()}


NAMES = ("deer", "automobile", "ankle boot", "four-legged animals of $1 or $2", "cat")
SHOWN = ("deer", "automobile", "ankle boot", "four-legged animals…", "cat")


def ticks(axis):
    """The labels of the ticks that are seen."""
    low, high = sorted(axis.get_view_interval())
    places = axis.get_ticklocs()
    labels = axis.get_major_formatter().format_ticks(places)
    return [label for place, label in zip(places, labels, strict=True) if low <= place <= high]


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


def picture(axes):
    return np.asarray(axes.get_images()[0].get_array())


def test_training_curves_show_loss_and_metric_in_training_and_test(saved):
    figure = saved(figures.training_curves(rows(0.8, 0.4, accuracy="exact_match")))
    loss, metric = figure.axes
    assert lines(loss) == {"training": [[1, 0.8], [2, 0.4]], "validation": [[1, 0.4], [2, 0.2]]}
    np.testing.assert_allclose(lines(metric)["training"], [[1, 20], [2, 60]])
    np.testing.assert_allclose(lines(metric)["validation"], [[1, 80], [2, 90]])
    assert metric.get_ylabel() == "exact match (%)" and loss.get_ylabel() == "loss"


def test_training_curves_of_several_runs_and_gaps(saved):
    gap = rows(0.8, 0.4, 0.2)
    gap[1]["val_loss"], gap[1]["val_accuracy"] = "", None
    figure = saved(figures.training_curves({"three": gap, "one": rows(0.8)}))
    assert set(lines(figure.axes[0])) == {"three, training", "three, validation", "one, training", "one, validation"}
    assert lines(figure.axes[0])["three, validation"] == [[1, 0.4], [3, 0.1]]
    colors = {line.get_label(): line.get_color() for line in figure.axes[0].get_lines()}
    assert colors["three, training"] == colors["three, validation"] != colors["one, validation"]


def test_training_curves_have_a_band_of_one_deviation_over_batches(saved):
    spread = [row | {"val_loss_std": 0.1, "val_accuracy_std": 0.3} for row in rows(0.8, 0.4)]
    loss, metric = saved(figures.training_curves(spread)).axes
    corners = [axes.collections[0].get_paths()[0].get_extents() for axes in (loss, metric)]
    np.testing.assert_allclose([corners[0].y0, corners[0].y1], [0.1, 0.5])
    np.testing.assert_allclose([corners[1].y0, corners[1].y1], [50, 100])  # no share is above 1
    assert not saved(figures.training_curves({"a": spread, "b": spread})).axes[0].collections


@pytest.mark.parametrize("epochs", [1, 2, 3, 8, 31])
def test_epochs_are_whole_numbers_and_all_in_the_picture(epochs):
    history = rows(*np.linspace(0.9, 0.2, epochs))
    for figure in (figures.training_curves(history), figures.loss_comparison(history)):
        for axes in figure.axes:
            assert ticks(axes.xaxis) and all(text.isdigit() for text in ticks(axes.xaxis))
            assert axes.get_xlim()[0] < 1 and axes.get_xlim()[1] > epochs


def test_a_single_epoch_is_drawn_as_points_in_proportion():
    (row,) = rows(0.8)
    figure = figures.training_curves([row | {"val_loss_std": 0.1, "val_accuracy_std": 0.05}])
    loss, metric = figure.axes
    assert ticks(loss.xaxis) == ticks(metric.xaxis) == ["1"]
    np.testing.assert_allclose(loss.get_ylim(), [0, 0.88])
    assert metric.get_ylim() == (0, 105)
    np.testing.assert_allclose(loss.collections[0].get_segments(), [[[1, 0.3], [1, 0.5]]])
    np.testing.assert_allclose(metric.collections[0].get_segments(), [[[1, 75], [1, 85]]])
    assert "Hollow: training" in figure.get_supxlabel()


def test_training_curves_without_a_metric_have_one_panel(saved):
    assert len(saved(figures.training_curves([{"epoch": 1, "loss": 0.5}])).axes) == 1


def test_loss_comparison_draws_each_training_loss(saved):
    figure = saved(figures.loss_comparison({"1 iteration": rows(0.8, 0.5), "3 iterations": rows(0.6, 0.1)}))
    (axes,) = figure.axes
    assert lines(axes) == {"1 iteration": [[1, 0.8], [2, 0.5]], "3 iterations": [[1, 0.6], [2, 0.1]]}
    assert axes.get_yscale() == "log"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["1 iteration", "3 iterations"]
    fed = [{**row, "feedback": 0.25} for row in rows(0.75, 0.5)]
    (axes,) = figures.loss_comparison({"plain": rows(0.8, 0.5), "fed": fed}).axes
    assert lines(axes)["fed"] == [[1, 0.5], [2, 0.25]]
    assert [[1, 0.5], [2, 0.25]] in lines(figures.training_curves(fed).axes[0]).values()


@pytest.mark.parametrize("history", [[], {}, {"run": []}, [{"epoch": 1}]])
def test_histories_without_a_loss_are_refused(history):
    for function in (figures.training_curves, figures.loss_comparison):
        with pytest.raises(ValueError, match="no run|epoch"):
            function(history)


def test_reconstructions_name_their_columns_and_show_wrong_ones_twice(model, images, predictions, saved):
    labels = predictions[:, 0].copy()
    labels[[1, 4]] = predictions[[1, 4], 1]
    figure = saved(figures.reconstructions(model, images, labels, right=3, wrong=5))
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
    figure = figures.reconstructions(model, images, predictions[:, 0])
    assert len(figure.axes) == 2 * 6 and "wrong" not in figure.get_supxlabel()


def test_reconstructions_name_classes_without_overlap(model, images, predictions):
    labels = predictions[:, 0].copy()
    labels[1] = predictions[1, 1]
    figure = figures.reconstructions(model, images, labels, right=3, class_names=NAMES)
    columns = [(i, labels[i]) for i in (0, 2, 3)] + [(1, predictions[1, 0]), (1, labels[1])]
    want = ["\n".join(SHOWN[k] for k in (labels[i], predictions[i, 0], source)) for i, source in columns]
    assert [axes.get_title() for axes in figure.axes[:5]] == want
    check_apart(figure)


def test_the_longest_names_fit_beside_each_other(model, images):
    figure = figures.reconstructions(model, images, [0] * 6, right=3, wrong=2, class_names=[NAMES[3]] * 5)
    assert all(SHOWN[3] in axes.get_title() for axes in figure.axes[: len(figure.axes) // 2])
    check_apart(figure)


def test_perturbation_grid_has_a_row_a_dimension_and_eleven_columns(model, images, saved):
    figure = saved(figures.dimension_perturbation(model, images[0], 3))
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
    figure = figures.dimension_perturbation(model, images[0], 1, NAMES)
    assert "class automobile." in figure.get_supxlabel()


def test_contrast_of_plain_grey_perturbations_is_stretched_and_the_figure_says_so(images):
    keras.utils.set_random_seed(1)
    sizes = {"filters": 6, "kernel_size": 3, "types": 3, "pose": 4, "primary_kernel_size": 3, "primary_strides": 1}
    model = CapsNet((8, 7, 1), classes=5, dim=6, **sizes, decoder_units=(11,))
    values = perturb_dimensions(model, images[0], 2)
    assert np.ptp(values) < 0.1
    figure = figures.dimension_perturbation(model, images[0], 2)
    grid, want = picture(figure.axes[0]), (values - values.min()) / np.ptp(values)
    np.testing.assert_allclose(grid[9 * 4 + 1 : 9 * 5, 8 * 9 + 1 : 8 * 10], want[4, 9, ..., 0], atol=1e-5)
    text = figure.get_supxlabel().replace("\n", " ")
    assert f"stretched: black is {values.min():.4g} and white {values.max():.4g}." in text
    strengthen(model, 0)
    figure = figures.dimension_perturbation(model, images[0], 2)
    assert "black is 0.5 and white 0.5." in figure.get_supxlabel().replace("\n", " ")


def test_overlapping_reconstructions_show_labels_predictions_and_a_wrong_choice(model, images, predictions, saved):
    labels = predictions[:4, :2].copy()
    labels[1] = labels[1, ::-1]  # the same classes in another order: right, and the colours follow the labels
    labels[2, 0] = predictions[2, 3]
    parts = np.random.default_rng(1).random((4, 2, 8, 7, 1), dtype="float32")
    figure = saved(figures.overlapping_reconstructions(model, images[:4], parts, labels))
    cells = np.array(figure.axes).reshape(5, 4)
    predicted = [
        labels[0],
        labels[1],
        predictions[2, 1::-1] if labels[2, 1] == predictions[2, 0] else predictions[2, :2],
    ]
    wrong = np.stack([labels[:, 0], predictions[:4, -1]], axis=-1)
    for n in range(3):
        np.testing.assert_array_equal(picture(cells[0, n]), images[n, ..., 0])
        np.testing.assert_allclose(picture(cells[1, n]), figures.overlay(parts[n]), atol=1e-6)
        for row, choice in ((2, labels[n]), (3, predicted[n]), (4, wrong[n])):
            want = figures.overlay(reconstruct_parts(model, images[n : n + 1], choice[None])[0])
            np.testing.assert_allclose(picture(cells[row, n]), want, atol=1e-6)
            assert cells[row, n].get_xlabel() == ", ".join(str(c) for c in choice)
    assert [axes.get_title() for axes in cells[0]] == [f"{a}, {b}" for a, b in labels]
    assert [axes.title.get_fontweight() for axes in cells[0]] == ["normal", "normal", "bold", "normal"]


def test_overlapping_reconstructions_name_classes_without_overlap(model, images):
    labels = np.array([[0, 3], [1, 2]])
    parts = np.random.default_rng(1).random((2, 2, 8, 7, 1), dtype="float32")
    figure = figures.overlapping_reconstructions(model, images[:2], parts, labels, NAMES)
    cells = np.array(figure.axes).reshape(5, 2)
    want = ["\n".join(SHOWN[k] for k in pair) for pair in labels]
    assert [axes.get_title() for axes in cells[0]] == want
    assert [axes.get_xlabel() for axes in cells[2]] == want
    assert all(set(axes.get_xlabel().split("\n")) <= set(SHOWN) for axes in cells[3:].flat)
    check_apart(figure)


def test_overlay_adds_orange_and_blue():
    first, second = np.array([[[1.0], [0.0], [1.0], [0.5]]]), np.array([[[0.0], [1.0], [1.0], [0.0]]])
    want = [[[1, 0.55, 0], [0, 0.45, 1], [1, 1, 1], [0.5, 0.275, 0]]]
    np.testing.assert_allclose(figures.overlay(np.stack([first, second])), want, atol=1e-6)


def test_routing_changes_are_drawn_on_a_logarithmic_scale(model, images, saved):
    figure = saved(figures.routing_changes(model, images, iterations=4))
    (axes,) = figure.axes
    ((points),) = [line.get_xydata() for line in axes.get_lines()]
    np.testing.assert_array_equal(points[:, 0], [1, 2, 3, 4])
    np.testing.assert_allclose(points[:, 1], measure_routing_changes(model, images, 4), rtol=1e-6)
    assert axes.get_yscale() == "log" and "6 images" in figure.get_supxlabel()


def test_pose_changes_have_a_panel_a_schedule_and_a_line_a_layer(saved):
    model = AttentionCapsNet((11, 12, 1), 4, filters=5, types=3, pose=(2, 2), convolutions=((4, 3, 1),))
    images = np.random.default_rng(0).normal(size=(3, 11, 12, 1)).astype("float32")
    figure = saved(figures.pose_changes(model, images, iterations=5))
    assert [axes.get_title() for axes in figure.axes] == ["concurrent", "sequential"]
    for axes in figure.axes:
        points = [line.get_xydata() for line in axes.get_lines()]
        want = measures.measure_pose_changes(model, images, 5, axes.get_title())
        np.testing.assert_allclose([line[:, 1] for line in points], want, rtol=1e-5)
        np.testing.assert_array_equal(points[0][:, 0], [2, 3, 4, 5])
    assert "3 images" in figure.get_supxlabel()


def test_routing_maps_show_the_likeliest_classes(saved):
    model = AttentionCapsNet((11, 12, 1), 4, filters=5, types=3, pose=(2, 2), convolutions=((4, 3, 1),))
    images = np.random.default_rng(0).uniform(size=(3, 11, 12, 1)).astype("float32")
    figure = saved(figures.routing_maps(model, images, 2 * images, [1, 0, 3], classes=2, class_names="abcd"))
    panels = np.array(figure.axes[:9], object).reshape(3, 3)
    maps = measures.measure_routing_maps(model, 2 * images)
    scores = model.predict_on_batch(2 * images)["activations"]
    for line, own, score, label in zip(panels, maps, scores, [1, 0, 3], strict=True):
        assert line[0].get_title() == "abcd"[label]
        for axes, number in zip(line[1:], np.argsort(-score)[:2], strict=True):
            assert axes.get_title().startswith("abcd"[number] + " ")
            assert (axes.title.get_fontweight() == "bold") == (number == label)
            np.testing.assert_allclose(axes.images[1].get_array(), own[..., number], rtol=1e-6)
    assert "0.25 if routing made no difference" in figure.get_supxlabel().replace("\n", " ")


def test_routing_maps_of_a_functional_model_with_several_classes_an_image(saved):
    images = np.random.default_rng(0).uniform(size=(2, 9, 9, 1)).astype("float32")
    x = keras.Input((9, 9, 1))
    routed = ConcurrentRouting([InvertedAttentionRouting(3, 2)], 2, name="mine")(PrimaryCapsules(2, 2, 3, 2)(x))
    logits = keras.layers.Reshape((3,))(keras.layers.Dense(1)(routed)) - 5
    figure = saved(
        figures.routing_maps(keras.Model(x, logits), images, labels=np.eye(3)[[1, 2]] + [1, 0, 0], layer="mine")
    )
    assert [axes.get_title() for axes in figure.axes[:8:4]] == ["0, 1", "0, 2"]
    assert {axes.get_title() for axes in figure.axes[1:4]} == {"0", "1", "2"}
    with pytest.raises(ValueError, match=r"a score for each of 3 classes. Received: \(2, 3, 2\)"):
        figures.routing_maps(keras.Model(x, routed), images, layer="mine")


def test_convergence_has_a_panel_a_group_and_a_line_a_run(saved):
    rows = [{"epoch": epoch, "loss": 1.0, "val_loss": 1.0, "val_accuracy": epoch / 4} for epoch in (1, 2, 3)]
    groups = {"dynamic": {"1 iteration": rows, "3 iterations": rows[:2]}, "EM": {"1 iteration": rows}}
    figure = saved(figures.convergence(groups, examples=5000))
    assert [axes.get_title() for axes in figure.axes] == ["dynamic", "EM"]
    assert [len(axes.get_lines()) for axes in figure.axes] == [2, 1]
    points = figure.axes[0].get_lines()[0].get_xydata()
    np.testing.assert_allclose(points, [(5000, 25), (10000, 50), (15000, 75)])
    with pytest.raises(ValueError, match="no groups"):
        figures.convergence({})
    with pytest.raises(ValueError, match="no validation metric"):
        figures.convergence({"a": {"b": [{"epoch": 1, "loss": 1.0}]}})


def test_accuracy_by_iterations_has_a_line_a_network_and_a_level_for_what_does_not_route(saved):
    accuracies = {"plain": {3: (0.5, 0.01), 1: (0.25, 0.02)}, "one": {2: (0.4, 0.01)}, "cnn": {None: (0.3, 0.01)}}
    figure = saved(figures.accuracy_by_iterations(accuracies))
    (axes,) = figure.axes
    plain, one = (bars.lines[0].get_xydata() for bars in axes.containers)
    np.testing.assert_allclose(plain, [(1, 25), (3, 50)])
    np.testing.assert_allclose(one, [(2, 40)])
    bars = axes.containers[0].lines[2][0].get_segments()
    np.testing.assert_allclose(bars, [[(1, 23), (1, 27)], [(3, 49), (3, 51)]])
    assert sorted(text.get_text() for text in figure.legends[0].get_texts()) == ["cnn", "one", "plain"]
    with pytest.raises(ValueError, match="no accuracy to draw. Received: {'a': {}}"):
        figures.accuracy_by_iterations({"a": {}})


@pytest.mark.parametrize("iterations", [1, 2, 5])
def test_routing_iterations_are_whole_numbers(model, images, iterations):
    (axes,) = figures.routing_changes(model, images, iterations).axes
    assert ticks(axes.xaxis) == [str(i + 1) for i in range(iterations)]


def test_vote_distances_have_a_row_an_image_and_a_panel_a_class(saved):
    model = MatrixCapsNet((17, 18, 1), classes=4, filters=4, types=3, capsules=(3, 9), iterations=2)
    images = 3 * np.random.default_rng(0).normal(size=(40, 17, 18, 1)).astype("float32")
    predictions = measures.predict(model, images)["activations"].argmax(-1)
    index = np.sort(np.unique(predictions, return_index=True)[1])
    assert len(index) > 1
    labels = predictions.copy()
    labels[index[1]] = next(label for label in range(4) if label not in predictions[index[:2]])
    images, labels = images[index[:2]], labels[index[:2]]
    names = ["ball", "cube", "cone", "ring"]
    figure = saved(figures.vote_distances(model, images, labels, farthest=2.5, class_names=names))
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == [names[labels[0]], *names, names[labels[1]], *names]
    bold = [axes.get_title() for axes in figure.axes if axes.title.get_fontweight() == "bold"]
    assert bold == [names[labels[1]], names[predictions[index[1]]]]
    distances, couplings = measures.measure_vote_distances(model, images)
    within = couplings * (distances <= 2.5)
    # The outlines of both iterations, after the area of the last one.
    panel = figure.axes[5 + 1 + 2]
    sums = [sum(patch.get_data().values) for patch in panel.patches]
    expected = within[:, 1, :, 2].sum(-1)
    np.testing.assert_allclose(sums, [expected[0], expected[1], expected[1]], rtol=1e-4)
    share = within[1].sum() / couplings[1].sum()
    assert f"cut at 2.5, within which {share:.0%} of" in figure.get_supxlabel().replace("\n", " ")
    untrained = figures.vote_distances(model, images, labels)
    (within,) = re.findall(r"within which (\d+)% of", untrained.get_supxlabel().replace("\n", " "))
    assert 50 <= int(within) < 60  # the median of a few votes
    with pytest.raises(ValueError, match="no image to show with right=0 and wrong=0"):
        figures.vote_distances(model, images, labels, right=0, wrong=0)
    with pytest.raises(ValueError, match="2 images and 1 labels"):
        figures.vote_distances(model, images, labels[:1])


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda m, x: figures.reconstructions(m, x, [1, 2]), "6 images and 2 labels"),
        (lambda m, x: figures.reconstructions(m, x, [1] * 6, right=0, wrong=0), "right=0 and wrong=0"),
        (lambda m, x: figures.overlapping_reconstructions(m, x, x[:, None], [[1, 2]] * 6), r"\(6, 1, 8, 7, 1\)"),
        (lambda m, x: figures.overlapping_reconstructions(m, x, np.stack([x, x], 1), [1] * 6), r"and \(6,\)"),
        (lambda m, x: figures.reconstructions(m, x, [1] * 6, class_names=NAMES[:4]), "5 classes. Received 4 names"),
        (lambda m, x: figures.dimension_perturbation(m, x[0], 1, NAMES[:3]), "5 classes. Received 3 names"),
        (
            lambda m, x: figures.overlapping_reconstructions(m, x, np.stack([x, x], 1), [[1, 2]] * 6, NAMES[:2]),
            "5 classes. Received 2 names",
        ),
    ],
)
def test_bad_input_is_named(model, images, call, message):
    with pytest.raises(ValueError, match=message):
        call(model, images)


def test_vote_similarities_have_a_panel_a_model(saved):
    models = {name: CapNet((8, 8, 1), classes=3, dim=4, grid=(1, 1), routing=name) for name in ("dynamic", "em")}
    images = np.random.default_rng(0).random((6, 8, 8, 1)).astype("float32")
    figure = saved(figures.vote_similarities(models, images, [0, 1, 2, 0, 1, 2]))
    shares, _ = measures.measure_vote_similarities(models["em"], images, [0, 1, 2, 0, 1, 2])
    panel = figure.axes[1]
    np.testing.assert_allclose([bar.get_height() for bar in panel.patches], 100 * shares)
    assert panel.get_title() == f"em: {shares[:10].sum():.0%} of the votes below 0"
    with pytest.raises(ValueError, match="no model"):
        figures.vote_similarities({}, images, [0] * 6)
