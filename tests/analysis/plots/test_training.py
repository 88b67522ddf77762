import keras
import numpy as np
import pytest
from analysis.capsnets import legend, lines, ticks

from tf_capsules.analysis import plots


def rows(*losses, accuracy="accuracy"):
    return [
        {"epoch": i + 1, "loss": x, "val_loss": x / 2, accuracy: 1 - x, f"val_{accuracy}": 1 - x / 4}
        for i, x in enumerate(losses)
    ]


def test_training_curves_show_loss_and_metric_in_training_and_test(saved):
    figure = saved(plots.draw_training_curves(rows(0.8, 0.4, accuracy="exact_match")))
    loss, metric = figure.axes
    assert lines(loss) == {"training": [[1, 0.8], [2, 0.4]], "validation": [[1, 0.4], [2, 0.2]]}
    np.testing.assert_allclose(lines(metric)["training"], [[1, 20], [2, 60]])
    np.testing.assert_allclose(lines(metric)["validation"], [[1, 80], [2, 90]])
    assert metric.get_ylabel() == "exact match (%)" and loss.get_ylabel() == "loss"


def test_a_high_accuracy_is_drawn_as_error_on_a_logarithmic_axis(saved):
    high = [row | {"val_loss_std": 0.1, "val_accuracy_std": 0.3} for row in rows(0.8, 0.1)]
    loss, metric = saved(plots.draw_training_curves(high)).axes
    np.testing.assert_allclose(lines(metric)["training"], [[1, 80], [2, 10]])
    np.testing.assert_allclose(lines(metric)["validation"], [[1, 20], [2, 2.5]])
    assert metric.get_ylabel() == "error (%)" and metric.get_yscale() == "log" and not metric.collections
    assert loss.collections
    perfect = plots.draw_training_curves(rows(0.8, 0.0)).axes[1]  # no place on a logarithmic axis
    assert perfect.get_ylabel() == "accuracy (%)" and perfect.get_yscale() == "linear"
    two = plots.draw_training_curves({"high": high, "low": rows(0.8, 0.4)}).axes[1]
    assert two.get_ylabel() == "accuracy (%)" and two.get_yscale() == "linear"


def test_what_fit_returned_is_drawn():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, "softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    x, y = np.random.default_rng(0).normal(size=(8, 3)), np.arange(8) % 2
    fitted = model.fit(x, y, epochs=3, validation_data=(x, y), verbose=0)
    for history in (fitted, fitted.history):
        loss, metric = plots.draw_training_curves(history).axes
        np.testing.assert_allclose(lines(loss)["training"], list(enumerate(fitted.history["loss"], 1)))
        np.testing.assert_allclose(lines(metric)["validation"][2], [3, 100 * fitted.history["val_accuracy"][2]])
    assert len(plots.draw_training_curves({"a": fitted, "b": fitted.history}).axes[0].lines) == 4
    later = model.fit(x, y, epochs=5, initial_epoch=3, validation_data=(x, y), verbose=0)
    assert [epoch for epoch, _ in lines(plots.draw_training_curves(later).axes[0])["training"]] == [4, 5]
    rare = model.fit(x, y, epochs=4, validation_data=(x, y), validation_freq=2, verbose=0)
    assert list(lines(plots.draw_training_curves(rare).axes[0])) == ["training"]


@pytest.mark.parametrize("losses", [[np.nan], [np.inf], [np.nan, np.nan], [1, np.inf]])
def test_a_training_that_diverged_is_drawn(saved, losses):
    saved(plots.draw_training_curves([row | {"accuracy": 0.5, "val_accuracy": 0.5} for row in rows(*losses)]))


def test_a_metric_above_1_is_no_percentage():
    metric = plots.draw_training_curves([row | {"val_mae_std": 0.5} for row in rows(-2, -3, accuracy="mae")]).axes[1]
    assert metric.get_ylabel() == "mae" and metric.get_ylim()[1] > 4
    np.testing.assert_allclose(lines(metric)["training"], [[1, 3], [2, 4]])


def test_the_loss_of_an_output_is_not_drawn_as_a_metric():
    both = [{"epoch": row["epoch"], "p_loss": 0.5, "val_p_loss": 0.5} | row for row in rows(0.5, 0.25)]
    assert plots.draw_training_curves(both).axes[1].get_ylabel() == "accuracy (%)"


def test_a_band_is_drawn_where_it_was_measured():
    some = rows(0.8, 0.4, 0.3)
    some[0]["val_loss_std"] = some[2]["val_loss_std"] = 0.1
    (band,) = plots.draw_training_curves(some).axes[0].collections
    assert set(band.get_paths()[0].vertices[:, 0]) == {1, 3}


def test_training_curves_of_several_runs_and_gaps(saved):
    gap = rows(0.8, 0.4, 0.2)
    gap[1]["val_loss"], gap[1]["val_accuracy"] = "", None
    figure = saved(plots.draw_training_curves({"three": gap, "one": rows(0.8)}))
    assert set(lines(figure.axes[0])) == {"three, training", "three, validation", "one, training", "one, validation"}
    assert lines(figure.axes[0])["three, validation"] == [[1, 0.4], [3, 0.1]]
    colors = {line.get_label(): line.get_color() for line in figure.axes[0].get_lines()}
    assert colors["three, training"] == colors["three, validation"] != colors["one, validation"]


def test_runs_of_different_metrics_are_not_drawn_together():
    figure = plots.draw_training_curves({"a": rows(0.8), "b": rows(0.8, accuracy="exact_match")})
    assert len(figure.axes) == 1 and "no metric in common" in figure.get_supxlabel()


def test_training_curves_have_a_band_of_one_deviation_over_batches(saved):
    spread = [row | {"val_loss_std": 0.1, "val_accuracy_std": 0.3} for row in rows(0.8, 0.4)]
    loss, metric = saved(plots.draw_training_curves(spread)).axes
    corners = [axes.collections[0].get_paths()[0].get_extents() for axes in (loss, metric)]
    np.testing.assert_allclose([corners[0].y0, corners[0].y1], [0.1, 0.5])
    np.testing.assert_allclose([corners[1].y0, corners[1].y1], [50, 100])  # no share is above 1
    assert not saved(plots.draw_training_curves({"a": spread, "b": spread})).axes[0].collections


@pytest.mark.parametrize("epochs", [1, 2, 3, 8, 31])
def test_epochs_are_whole_numbers_and_all_in_the_picture(epochs):
    history = rows(*np.linspace(0.9, 0.2, epochs))
    for figure in (plots.draw_training_curves(history), plots.draw_loss_comparison(history)):
        for axes in figure.axes:
            assert ticks(axes.xaxis) and all(text.isdigit() for text in ticks(axes.xaxis))
            assert axes.get_xlim()[0] < 1 and axes.get_xlim()[1] > epochs


def test_a_single_epoch_is_drawn_as_points_in_proportion():
    (row,) = rows(0.8)
    figure = plots.draw_training_curves([row | {"val_loss_std": 0.1, "val_accuracy_std": 0.05}])
    loss, metric = figure.axes
    assert ticks(loss.xaxis) == ticks(metric.xaxis) == ["1"]
    np.testing.assert_allclose(loss.get_ylim(), [0, 0.88])
    assert metric.get_ylim() == (0, 105)
    np.testing.assert_allclose(loss.collections[0].get_segments(), [[[1, 0.3], [1, 0.5]]])
    np.testing.assert_allclose(metric.collections[0].get_segments(), [[[1, 75], [1, 85]]])
    assert "Hollow: training" in figure.get_supxlabel()


def test_training_curves_without_a_metric_have_one_panel(saved):
    assert len(saved(plots.draw_training_curves([{"epoch": 1, "loss": 0.5}])).axes) == 1


def test_loss_comparison_draws_each_training_loss(saved):
    figure = saved(plots.draw_loss_comparison({"1 iteration": rows(0.8, 0.5), "3 iterations": rows(0.6, 0.1)}))
    (axes,) = figure.axes
    assert lines(axes) == {"1 iteration": [[1, 0.8], [2, 0.5]], "3 iterations": [[1, 0.6], [2, 0.1]]}
    assert axes.get_yscale() == "log"
    assert legend(figure) == ["1 iteration", "3 iterations"]
    fed = [{**row, "feedback": 0.25} for row in rows(0.75, 0.5)]
    (axes,) = plots.draw_loss_comparison({"plain": rows(0.8, 0.5), "fed": fed}).axes
    assert lines(axes)["fed"] == [[1, 0.5], [2, 0.25]]
    assert [[1, 0.5], [2, 0.25]] in lines(plots.draw_training_curves(fed).axes[0]).values()


@pytest.mark.parametrize("history", [[], {}, {"run": []}, [{"epoch": 1}]])
def test_histories_without_a_loss_are_refused(history):
    for function in (plots.draw_training_curves, plots.draw_loss_comparison):
        with pytest.raises(ValueError, match="no run|epoch"):
            function(history)


def test_convergence_has_a_panel_a_group_and_a_line_a_run(saved):
    rows = [{"epoch": epoch, "loss": 1.0, "val_loss": 1.0, "val_accuracy": epoch / 4} for epoch in (1, 2, 3)]
    groups = {"dynamic": {"1 iteration": rows, "3 iterations": rows[:2]}, "EM": {"1 iteration": rows}}
    figure = saved(plots.draw_convergence(groups, examples=5000))
    assert [axes.get_title() for axes in figure.axes] == ["dynamic", "EM"]
    assert [len(axes.get_lines()) for axes in figure.axes] == [2, 1]
    points = figure.axes[0].get_lines()[0].get_xydata()
    np.testing.assert_allclose(points, [(5000, 25), (10000, 50), (15000, 75)])
    labels = [(axes.get_xlabel(), axes.get_ylabel()) for axes in figure.axes]
    assert labels == [("training examples seen", "validation accuracy (%)"), ("training examples seen", "")]
    one = plots.draw_convergence({"a": {"b": [{"epoch": 1, "loss": 1.0, "val_exact_match": 0.5}]}})
    assert one.axes[0].get_ylabel() == "validation exact match (%)"
    counted = [{"epoch": epoch, "loss": 1.0, "val_mean_error": 3.0 - epoch} for epoch in (1, 2)]
    (axes,) = plots.draw_convergence({"a": {"b": counted}}).axes
    assert axes.get_ylabel() == "validation mean error"
    np.testing.assert_allclose(axes.get_lines()[0].get_ydata(), [2, 1])
    with pytest.raises(ValueError, match="no groups"):
        plots.draw_convergence({})
    with pytest.raises(ValueError, match="no validation metric"):
        plots.draw_convergence({"a": {"b": [{"epoch": 1, "loss": 1.0}]}})


def test_accuracy_by_iterations_has_a_line_a_network_and_a_level_for_what_does_not_route(saved):
    accuracies = {"plain": {3: (0.5, 0.01), 1: (0.25, 0.02)}, "one": {2: (0.4, 0.01)}, "cnn": {None: (0.3, 0.01)}}
    figure = saved(plots.draw_accuracy_by_iterations(accuracies))
    (axes,) = figure.axes
    plain, one = (bars.lines[0].get_xydata() for bars in axes.containers)
    np.testing.assert_allclose(plain, [(1, 25), (3, 50)])
    np.testing.assert_allclose(one, [(2, 40)])
    bars = axes.containers[0].lines[2][0].get_segments()
    np.testing.assert_allclose(bars, [[(1, 23), (1, 27)], [(3, 49), (3, 51)]])
    assert sorted(text.get_text() for text in figure.legends[0].get_texts()) == ["cnn", "one", "plain"]
    with pytest.raises(ValueError, match="no accuracy to draw. Received: {'a': {}}"):
        plots.draw_accuracy_by_iterations({"a": {}})


def test_losses_of_different_kinds_have_a_panel_each(saved):
    runs = {"capsules": rows(0.8, 0.4), "CNN": rows(2.0, 1.0)}
    losses = {"capsules": "margin", "CNN": "cross-entropy"}
    figure = saved(plots.draw_training_curves(runs, losses))
    margin, crossentropy, metric = figure.axes
    assert set(lines(margin)) == {"capsules, training", "capsules, validation"}
    assert set(lines(crossentropy)) == {"CNN, training", "CNN, validation"}
    assert (margin.get_ylabel(), crossentropy.get_ylabel()) == ("loss, margin", "loss, cross-entropy")
    assert len(lines(metric)) == 4
    assert legend(figure) == [*lines(margin), *lines(crossentropy)]
    first, second = saved(plots.draw_loss_comparison(runs, losses)).axes
    assert (list(lines(first)), list(lines(second))) == (["capsules"], ["CNN"])
    with pytest.raises(ValueError, match="Received none for 'CNN'"):
        plots.draw_training_curves(runs, {"capsules": "margin"})


def test_small_changes_look_small():
    still = {"val_loss": 1.0, "accuracy": 0.5}
    near = [{"epoch": e, "loss": 1 + e / 1000, "val_accuracy": 0.5 + e / 1000, **still} for e in (1, 2)]
    loss, metric = plots.draw_training_curves(near).axes
    assert loss.get_ylim()[0] == 0
    assert np.ptp(metric.get_ylim()) >= 10
    (panel,) = plots.draw_convergence({"group": {"run": near}}).axes
    assert np.ptp(panel.get_ylim()) >= 10
    perfect = [row | {"accuracy": 1.0, "val_accuracy": 1.0} for row in near]
    _, metric = plots.draw_training_curves(perfect).axes
    assert 10 <= np.ptp(metric.get_ylim()) < 12
    assert metric.get_ylim()[1] <= 105


def test_a_run_has_one_colour_in_all_panels():
    some = [{"epoch": 1, "loss": 1.0, "val_accuracy": 0.5}]
    figure = plots.draw_convergence({"dynamic": {"1": some, "2": some}, "EM": {"2": some}})
    colors = [{line.get_label(): line.get_color() for line in axes.get_lines()} for axes in figure.axes]
    assert colors[0]["2"] == colors[1]["2"] != colors[0]["1"]
    assert legend(figure) == ["1", "2"]


def test_a_metric_called_error_is_none():
    history = [row | {"val_loss_std": 0.1, "val_error_rate_std": 0.1} for row in rows(0.8, 0.1, accuracy="error_rate")]
    history = [{**row, "error_rate": 0.2, "val_error_rate": 0.1} for row in history]
    metric = plots.draw_training_curves(history).axes[1]
    assert metric.get_yscale() == "linear" and metric.collections and metric.get_ylabel() == "error rate (%)"


def test_a_run_called_loss():
    runs = {name: keras.callbacks.History() for name in ("loss", "other")}
    for run in runs.values():
        run.epoch, run.history = [0, 1], {"loss": [0.8, 0.4]}
    assert set(lines(plots.draw_loss_comparison(runs).axes[0])) == set(runs)
