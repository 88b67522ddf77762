"""Loss and accuracy while networks train, and what accuracy they reach."""

import numpy as np

from tf_capsules.analysis.plots import drawing

LEAST_PERCENT = 10  # an axis of accuracies spans at least so many percent
HIGH = 0.95  # from this accuracy on, the axis shows the error, on a logarithmic scale


def draw_training_curves(history, losses=None):
    """Loss and accuracy by epoch, in training and in validation, with a band of one standard deviation over batches.

    Where the accuracy of all runs ends at 95% or more, and never is 1, the error is drawn, on a logarithmic axis.

    Source: Heinsen 2019, figure 8.

    Args:
        history: what `fit` returned; or a run's rows, one dict an epoch with "epoch", "loss", "val_loss", a metric and
            its "val_" twin, and for the bands "val_loss_std" and so on. Or several runs as a dict from name to either,
            drawn without bands. If rows have "feedback", the loss of the feedback units, it is subtracted from "loss".
        losses: for several runs, a dict from name to kind of loss. Each kind has a panel. None: all are of one kind.

    Returns:
        A figure with a panel for each kind of loss and one for the metric, if there is any.

    Raises:
        ValueError: no rows, or rows without a loss; a run whose kind of loss is not named.

    Example:
        >>> rows = [{"epoch": 1, "loss": 0.8, "val_loss": 0.7, "accuracy": 0.5, "val_accuracy": 0.6}]
        >>> len(draw_training_curves({"3 iterations": rows, "1 iteration": rows}).axes)
        2
    """
    runs, kinds = _runs(history, losses)
    of_both = (key for row in runs.values() for key in row[0] if f"val_{key}" in row[0])
    metric = next((key for key in of_both if key != "loss" and not key.endswith("_loss")), None)
    shared = metric is None or all(len(_columns(rows, f"val_{metric}")[1]) for rows in runs.values())
    panels = [("loss", kind) for kind in dict.fromkeys(kinds.values())]
    panels += [(metric, None)] if metric is not None and shared else []
    points = all(len(rows) == 1 for rows in runs.values())
    figure = drawing.new_figure(4.8 * len(panels) + 1.8, 4.2)
    for axes, (quantity, kind) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        show, label, of_error = _shown(runs, quantity, points)
        for number, (name, rows) in enumerate(runs.items()):
            if quantity == "loss" and kinds[name] != kind:
                continue
            for key, style, part in ((quantity, "--", "training"), (f"val_{quantity}", "-", "validation")):
                epochs, values = _columns(rows, key)
                if len(values):
                    drawing.add_line(axes, number, epochs, show(values), ", ".join(filter(None, (name, part))), style)
            if len(runs) == 1 and not of_error:
                _draw_band(axes, rows, quantity, show, points)
        drawing.label_axes(axes, "epoch", f"{label}, {kind}" if kind else label)
        low, high = (value if np.isfinite(value) else 0 for value in axes.dataLim.intervaly)
        if points:  # no curve puts these into proportion
            axes.set_ylim(0, 105 if label.endswith("(%)") else 1.1 * high or 1)
        elif of_error:
            drawing.log_scale(axes)
        elif label.endswith("(%)"):
            drawing.show_at_least(axes, LEAST_PERCENT, 0, 105)
        else:
            axes.set_ylim(min(0, low), None)
    drawing.add_legend(figure)
    lines = ("Hollow", "Filled") if points else ("Dashed", "Solid")
    text = "{}: training, the mean over each epoch. {}: validation, after each epoch".format(*lines)
    banded = len(runs) == 1 and any(row.get("val_loss_std") for row in next(iter(runs.values())))
    of_loss = " in the loss" if "log" in [axes.get_yscale() for axes in figure.axes] else ""
    band = f"; band{of_loss}: one standard deviation over batches" if banded else ""
    return drawing.add_caption(figure, f"{text}{band}.{'' if shared else ' The runs have no metric in common.'}")


def _shown(runs, quantity, points):
    """A function from a quantity's values to those that a panel shows, their label, and whether they are errors."""
    if quantity == "loss":
        return (lambda values: values), quantity, False
    title = quantity.replace("_", " ")
    ends = [_columns(rows, f"val_{quantity}")[1][-1] for rows in runs.values()]
    most = max(_columns(rows, key)[1].max(initial=0) for rows in runs.values() for key in (quantity, f"val_{quantity}"))
    if not points and min(ends) >= HIGH and most < 1:  # no error has no place on a logarithmic axis
        label = "error (%)" if quantity == "accuracy" else f"error, {title} (%)"
        return (lambda values: 100 * (1 - values)), label, True
    if most > 1:  # of another kind than an accuracy
        return (lambda values: values), title, False
    return (lambda values: 100 * np.clip(values, 0, 1)), f"{title} (%)", False


def _draw_band(axes, rows, quantity, show, points):
    """One standard deviation about the validation curve, where it was measured."""
    epochs, centre, spread = _columns(rows, f"val_{quantity}", f"val_{quantity}_std")
    if not len(epochs):
        return
    low, high = show(centre - spread), show(centre + spread)
    if points:
        axes.vlines(epochs, low, high, color=drawing.COLORS[0], alpha=0.15, linewidth=20)
    else:
        axes.fill_between(epochs, low, high, color=drawing.COLORS[0], alpha=0.15, linewidth=0)


def draw_convergence(groups, examples=None):
    """Validation accuracy of many runs while they train, with a panel for each group and one scale for all.

    It is in percent, unless a value is above 1: then the metric is of another kind.

    Source: Tsai et al. 2020, figure 3 (dynamic, EM and inverted attention routing with 1 to 5 iterations).

    Args:
        groups: dict from group name to a dict from run name to rows, or to what `fit` returned. A run name has the same
            colour in all groups. A ValueError if there are no groups or no rows, or if rows lack a validation metric.
        examples: training examples in an epoch, for an x-axis of examples; None: of epochs.

    Example:
        >>> rows = [{"epoch": epoch, "loss": 1.0, "val_accuracy": epoch / 4} for epoch in (1, 2, 3)]
        >>> len(draw_convergence({"dynamic": {"1 iteration": rows}, "EM": {"1 iteration": rows}}).axes)
        2
    """
    if not groups:
        raise ValueError("There are no groups of runs to draw.")
    groups = {
        title: {name: _validation(name, rows) for name, rows in _runs(histories)[0].items()}
        for title, histories in groups.items()
    }
    curves = [curve for runs in groups.values() for curve in runs.values()]
    percent = max(values.max(initial=0) for _, _, values in curves) <= 1
    names = list(dict.fromkeys(name for runs in groups.values() for name in runs))
    figure = drawing.new_figure(3.6 * len(groups) + 1.8, 4.0)
    panels = figure.subplots(1, len(groups), sharey=True, squeeze=False)[0]
    for axes, (title, runs) in zip(panels, groups.items(), strict=True):
        for name, (_, epochs, values) in runs.items():
            values = 100 * values if percent else values
            drawing.add_line(axes, names.index(name), epochs * (examples or 1), values, name)
        drawing.label_axes(axes, "epoch" if examples is None else "training examples seen", "")
        if examples is not None:
            axes.locator_params(axis="x", nbins=4, steps=[1, 2, 5, 10])  # long numbers
        axes.set_title(title, fontsize=11)
    if percent:
        drawing.show_at_least(panels[0], LEAST_PERCENT, 0, 105)
    metrics = dict.fromkeys(metric for metric, _, _ in curves)
    panels[0].set_ylabel(f"validation {', '.join(metrics)}{' (%)' if percent else ''}")
    return drawing.add_legend(figure)


def _validation(name, rows):
    """The name of a run's validation metric in words, and its epochs and values."""
    key = next((key for key in rows[0] if key.startswith("val_") and "loss" not in key), None)
    if key is None:
        raise ValueError(f"The run {name!r} has no validation metric. Received: {', '.join(rows[0])}")
    return key.removeprefix("val_").replace("_", " "), *_columns(rows, key)


def draw_loss_comparison(histories, losses=None):
    """Training loss of several runs on a logarithmic scale, in a panel for each kind of loss.

    Source: Sabour et al. 2017, appendix A (1 against 3 iterations); Li et al. 2018, figure 4 (feedback).

    Args:
        histories, losses: see `draw_training_curves`, also for the errors.
    """
    runs, kinds = _runs(histories, losses)
    panels = list(dict.fromkeys(kinds.values()))
    figure = drawing.new_figure(4.8 * len(panels) + 1.8, 4.4)
    for axes, kind in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for number, (name, rows) in enumerate(runs.items()):
            if kinds[name] == kind:
                drawing.add_line(axes, number, *_columns(rows, "loss"), name or "training")
        drawing.label_axes(axes, "epoch", f"training loss, {kind}" if kind else "training loss")
        drawing.log_scale(axes)
    return drawing.add_legend(figure)


def draw_accuracy_by_iterations(accuracies):
    """Accuracy against the number of routing iterations, a line for each network.

    Source: the ablations of Tsai et al. 2020, section 5 (without layer normalization, sequential routing).

    Args:
        accuracies: `{network: {iterations: (accuracy, deviation)}}`: accuracies and their standard deviations are
            shares; iterations are None for a network without routing. A ValueError if all are empty.

    Returns:
        A figure: points with bars of one deviation, and level lines for networks without routing.

    Example:
        >>> accuracies = {"routed": {1: (0.37, 0.005), 2: (0.36, 0.005)}, "CNN": {None: (0.4, 0.005)}}
        >>> len(draw_accuracy_by_iterations(accuracies).axes)
        1
    """
    if not any(accuracies.values()):
        raise ValueError(f"There is no accuracy to draw. Received: {accuracies!r}")
    axes = drawing.new_figure(6.4, 4.0).subplots()
    for number, (name, values) in enumerate(accuracies.items()):
        color, marker = drawing.COLORS[number % len(drawing.COLORS)], drawing.MARKERS[number % len(drawing.MARKERS)]
        if None in values:
            axes.axhline(100 * values[None][0], color=color, linestyle=":", label=name)
        routed = sorted((count, *value) for count, value in values.items() if count is not None)
        if routed:
            x, y, deviations = np.transpose(routed) * [[1], [100], [100]]
            axes.errorbar(x, y, deviations, color=color, marker=marker, markersize=5, capsize=3, label=name)
    drawing.label_axes(axes, "routing iterations", "test accuracy (%)")
    drawing.show_at_least(axes, LEAST_PERCENT, 0, 105)
    return drawing.add_legend(axes.figure)


def _runs(history, losses=None):
    """Checks runs. Returns, by name, the rows of each without the loss of feedback units, and its kind of loss."""
    one = not isinstance(history, dict) or _of_fit(history)
    runs = {name: _rows(run) for name, run in ({"": history} if one else history).items()}
    for name, rows in runs.items():
        if not len(rows) or "epoch" not in rows[0] or "loss" not in rows[0]:
            raise ValueError(f'The history {name!r} needs rows with "epoch" and "loss". Received: {list(rows)[:1]!r}')
    if not runs:
        raise ValueError("There is no run to show.")
    if lacking := [name for name in runs if losses is not None and name not in losses]:
        raise ValueError(f"`losses` must name the loss of each run. Received none for {lacking[0]!r}: {losses!r}")
    kinds = {name: None if losses is None else losses[name] for name in runs}
    return {name: [_without_feedback(row) for row in rows] for name, rows in runs.items()}, kinds


def _of_fit(lists):
    """Whether this is the dict of lists in what Keras's `fit` returned."""
    loss = lists.get("loss") if isinstance(lists, dict) else None
    return isinstance(loss, (list, tuple)) and bool(loss) and not isinstance(loss[0], dict)


def _rows(history):
    """The rows of a run; what was not measured in every epoch of a `fit` is left out."""
    lists = getattr(history, "history", history)
    if not _of_fit(lists):
        return lists
    epochs = [epoch + 1 for epoch in getattr(history, "epoch", ())]  # of a training that went on, not from 1
    epochs = epochs if len(epochs) == len(lists["loss"]) else range(1, len(lists["loss"]) + 1)
    whole = {name: values for name, values in lists.items() if len(values) == len(lists["loss"])}
    rows = zip(*whole.values(), strict=True)
    return [{"epoch": epoch, **dict(zip(whole, row, strict=True))} for epoch, row in zip(epochs, rows, strict=True)]


def _without_feedback(row):
    """The row without the loss of feedback units, so that training compares with validation."""
    fed = float(row.get("feedback") or 0)
    return {**row, "loss": float(row["loss"]) - fed} if fed and row.get("loss") not in (None, "") else row


def _columns(rows, *keys):
    """Epochs, and the values of some quantities, where all of them were measured."""
    measured = [row for row in rows if all(row.get(key) not in (None, "") for key in keys)]
    return np.array([[float(row[key]) for row in measured] for key in ("epoch", *keys)])
