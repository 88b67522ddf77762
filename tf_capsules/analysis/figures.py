"""The papers' figures. Each function returns a `matplotlib.figure.Figure`; `figure.savefig(path)` writes it.

>>> figure = dimension_perturbation(model, images[0], labels[0])
>>> figure.savefig("perturbation.png")
"""

import numpy as np

from tf_capsules.analysis.drawing import COLORS, MARKERS, add_caption, image_grid, new_figure, shortened, show_image
from tf_capsules.analysis.measures import (
    OFFSETS,
    measure_pose_changes,
    measure_routing_changes,
    measure_routing_maps,
    measure_vote_distances,
    measure_vote_similarities,
    perturb_dimensions,
    predict,
    reconstruct_parts,
    to_numpy,
)
from tf_capsules.models import class_probabilities

_STYLES = ("-", "--", ":")
# The paper's red and green can't be told apart by many readers. Where these two overlap in full they add up to white.
ORANGE, BLUE = np.array([1.0, 0.55, 0.0]), np.array([0.0, 0.45, 1.0])

_LOW_CONTRAST = 0.25  # between the darkest and the brightest pixel, where images look plain grey


def training_curves(history):
    """Loss and accuracy by epoch, in training and in validation, with a band of one standard deviation over batches.

    Source: Heinsen 2019, figure 8.

    Args:
        history: a run's rows, one dict an epoch with "epoch", "loss", "val_loss", and a metric with its "val_" twin;
            for the bands "val_loss_std" and so on; or several runs as a dict from name to rows, drawn without bands.
            Of runs with feedback, whose rows have "feedback", the loss is shown without what the units add.

    Returns:
        A figure with one panel for the loss and one for the metric, if there is any.

    Raises:
        ValueError: no rows, or rows without a loss.

    Example:
        >>> training_curves({"3 iterations": rows, "1 iteration": other_rows})
    """
    runs = _runs(history)
    metric = next((key for row in runs.values() for key in row[0] if key != "loss" and f"val_{key}" in row[0]), None)
    points = all(len(rows) == 1 for rows in runs.values())
    panels = ["loss"] + [metric] * (metric is not None)
    figure = new_figure(4.8 * len(panels) + 0.4, 4.2)
    for axes, quantity in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        shares = quantity != "loss"
        for number, (name, rows) in enumerate(runs.items()):
            for key, style, part in ((quantity, "--", "training"), (f"val_{quantity}", "-", "validation")):
                epochs, values = _column(rows, key)
                if len(values):
                    _line(
                        axes,
                        number,
                        epochs,
                        values * (100 if shares else 1),
                        ", ".join(filter(None, (name, part))),
                        style,
                    )
            epochs, spread = _column(rows, f"val_{quantity}_std")
            if len(spread) and len(runs) == 1:
                centre = _column(rows, f"val_{quantity}")[1]
                low, high = (centre - spread, centre + spread) if not shares else (
                    np.clip(centre + sign * spread, 0, 1) * 100 for sign in (-1, 1)
                )  # fmt: skip
                if points:
                    axes.vlines(epochs, low, high, color=COLORS[number], alpha=0.15, linewidth=20)
                else:
                    axes.fill_between(epochs, low, high, color=COLORS[number], alpha=0.15, linewidth=0)
        title = quantity.replace("_", " ")
        _label(axes, "epoch", f"{title} (%)" if shares else title)
        if points:  # which no curve puts into proportion
            axes.set_ylim(0, 105 if shares else 1.1 * axes.dataLim.ymax or 1)
        axes.legend(frameon=False)
    lines = ("Hollow", "Filled") if points else ("Dashed", "Solid")
    text = "{}: training, the mean over each epoch. {}: validation, after each epoch".format(*lines)
    banded = len(runs) == 1 and any(row.get("val_loss_std") for row in next(iter(runs.values())))
    return add_caption(figure, f"{text}; band: one standard deviation over batches." if banded else f"{text}.")


def convergence(groups, examples=None):
    """Validation accuracy of many runs while they train, with a panel for each group and one scale for all.

    Source: Tsai et al. 2020, figure 3 (dynamic, EM and inverted attention routing with 1 to 5 iterations).

    Args:
        groups: dict from a group's name to a dict from a run's name to its rows (see `training_curves`).
        examples: number of training examples in an epoch, to be counted in their stead; None: epochs.

    Returns:
        A figure with a panel for each group.

    Raises:
        ValueError: no groups, no rows, or rows without a validation metric.

    Example:
        >>> convergence({"dynamic": {"1 iteration": rows}, "EM": {"1 iteration": other_rows}})
    """
    if not groups:
        raise ValueError("There are no groups of runs to draw.")
    figure = new_figure(3.6 * len(groups) + 0.6, 4.0)
    panels = figure.subplots(1, len(groups), sharey=True, squeeze=False)[0]
    for axes, (title, histories) in zip(panels, groups.items(), strict=True):
        for number, (name, rows) in enumerate(_runs(histories).items()):
            metric = next((key for key in rows[0] if key.startswith("val_") and "loss" not in key), None)
            if metric is None:
                raise ValueError(f"The run {name!r} has no validation metric. Received: {', '.join(rows[0])}")
            epochs, values = _column(rows, metric)
            _line(axes, number, epochs * (examples or 1), 100 * values, name, "-")
        _label(axes, "epoch" if examples is None else "training images seen", "")
        if examples is not None:
            axes.locator_params(axis="x", nbins=4, steps=[1, 2, 5, 10])  # long numbers
        axes.set_title(title, fontsize=11)
        axes.legend(frameon=False)
    panels[0].set_ylabel("test accuracy (%)")
    return figure


def accuracy_by_iterations(accuracies):
    """Accuracy against the number of routing iterations, a line for each network.

    Source: the ablations of Tsai et al. 2020, section 5 (without layer normalization, sequential routing).

    Args:
        accuracies: dict from a network's name to a dict from its number of iterations, or None where it doesn't route,
            to a pair: the accuracy, and how uncertain it is. Both are shares.

    Returns:
        A figure: points with bars of that uncertainty, and level lines for what doesn't route.

    Raises:
        ValueError: nothing to draw.

    Example:
        >>> accuracy_by_iterations({"routed": {1: (0.37, 0.005), 2: (0.36, 0.005)}, "CNN": {None: (0.4, 0.005)}})
    """
    if not any(accuracies.values()):
        raise ValueError(f"There is no accuracy to draw. Received: {accuracies!r}")
    figure = new_figure(6.4, 4.0)
    axes = figure.subplots()
    for number, (name, values) in enumerate(accuracies.items()):
        color, marker = COLORS[number % len(COLORS)], MARKERS[number % len(MARKERS)]
        if None in values:
            axes.axhline(100 * values[None][0], color=color, linestyle=":", label=name)
        routed = sorted((count, *value) for count, value in values.items() if count is not None)
        if routed:
            x, y, deviations = np.transpose(routed) * [[1], [100], [100]]
            axes.errorbar(x, y, deviations, color=color, marker=marker, markersize=5, capsize=3, label=name)
    _label(axes, "routing iterations", "test accuracy (%)")
    figure.legend(loc="outside right center", frameon=False)
    return figure


def routing_diagnostics(rows):
    """What routing does with a few examples, epoch by epoch: entropy of couplings, dead capsules, change by iteration.

    Args:
        rows: of a `tf_capsules.analysis.RoutingDiagnostics`.

    Returns:
        A figure with three panels and a line for each routing layer.

    Raises:
        ValueError: no rows.

    Example:
        >>> routing_diagnostics(callback.rows)
    """
    if not rows:
        raise ValueError("There are no rows of diagnostics to draw.")
    figure = new_figure(12.0, 3.8)
    panels = figure.subplots(1, 3)
    last_epoch = max(row["epoch"] for row in rows)
    for number, layer in enumerate(dict.fromkeys(row["layer"] for row in rows)):
        own = [row for row in rows if row["layer"] == layer]
        last = max(row["iteration"] for row in own)
        ends = [row for row in own if row["iteration"] == last]
        epochs = [row["epoch"] for row in ends]
        name = f"{layer}, {last} iteration{'s' * (last > 1)}"
        _line(panels[0], number, epochs, [row["coupling_entropy"] for row in ends], name, "-")
        _line(panels[1], number, epochs, [100 * row["dead_capsules"] for row in ends], name, "-")
        changes = [row for row in own if row["epoch"] == last_epoch and row["iteration"] > 1]
        if changes:
            steps = [row["iteration"] for row in changes]
            _line(panels[2], number, steps, [row["change"] for row in changes], name, "-")
    _label(panels[0], "epoch", "entropy of the couplings (1: even)")
    _label(panels[1], "epoch", "dead capsules (%)")
    _label(panels[2], "iteration", f"change of the couplings, epoch {last_epoch}")
    panels[0].set_ylim(0, 1.05)
    panels[1].set_ylim(0, 105)
    panels[0].legend(frameon=False, fontsize=8)
    return add_caption(
        figure,
        "Dead: in no example a tenth of an even share. Change: mean absolute one since the iteration before, over the "
        "mean coupling.",
    )


def loss_comparison(histories):
    """Training loss of several runs in one picture.

    Source: Sabour et al. 2017, appendix A (1 against 3 routing iterations); Li et al. 2018, figure 4 (with and without
    feedback).

    Args:
        histories: dict from a run's name to its rows (see `training_curves`). Of runs with feedback, whose rows have
            "feedback", the loss is shown without what the units add.

    Returns:
        A figure with one panel, the loss on a logarithmic scale.

    Raises:
        ValueError: no rows, or rows without a loss.

    Example:
        >>> loss_comparison({"1 iteration": rows, "3 iterations": other_rows})
    """
    figure = new_figure(6.4, 4.4)
    axes = figure.subplots()
    for number, (name, rows) in enumerate(_runs(histories).items()):
        _line(axes, number, *_column(rows, "loss"), name or "training", "-")
    _label(axes, "epoch", "training loss")
    _log_scale(axes)
    axes.legend(frameon=False)
    return figure


def reconstructions(model, images, labels, right=6, wrong=2, class_names=None):
    """Images and what is reconstructed from a class capsule, each column named (label, prediction, reconstructed from).

    Source: Sabour et al. 2017, figure 3.

    Args:
        model: a `CapsuleClassifier` with a decoder.
        images: (batch, height, width, channels).
        labels: (batch,).
        right: how many of the correctly classified images are shown, the first ones.
        wrong: the same for wrongly classified images, as far as there are any; each takes two columns, reconstructed
            from the prediction and from the label.
        class_names: a name for each class; None for numbers. Of a long one the beginning is shown.

    Returns:
        A figure with a row of images above a row of reconstructions.

    Raises:
        ValueError: no decoder, or images, labels or names that do not fit the model.

    Example:
        >>> reconstructions(model, test_images, test_labels, right=8, wrong=3)
    """
    labels = np.asarray(labels).reshape(-1)
    predictions = predict(model, images)["activations"].argmax(-1)
    if len(labels) != len(predictions):
        raise ValueError(f"Received {len(predictions)} images and {len(labels)} labels.")
    names = _names(class_names, _classes(model))
    hits = np.flatnonzero(predictions == labels)[:right]
    misses = np.flatnonzero(predictions != labels)[:wrong]
    columns = [(i, labels[i]) for i in hits] + [(i, source) for i in misses for source in (predictions[i], labels[i])]
    if not columns:
        raise ValueError(f"There is no image to show with right={right} and wrong={wrong}.")
    index, sources = (np.array(values) for values in zip(*columns, strict=True))
    shown = np.asarray(images)[index]
    decoded = reconstruct_parts(model, shown, sources[:, None])[:, 0]
    titles = [_joined(names, (labels[i], predictions[i], source), "({})") for i, source in columns]
    figure = image_grid(
        [shown, decoded], ["input", "reconstruction"], titles, [predictions[i] != labels[i] for i in index]
    )
    note = " Bold: wrong predictions, reconstructed from the prediction and from the label." if len(misses) else ""
    return add_caption(figure, f"Above: label, prediction, and the class whose capsule is decoded.{note}")


def dimension_perturbation(model, image, label, class_names=None):
    """What each dimension of a class capsule stands for: the reconstruction while it is changed.

    Source: Sabour et al. 2017, figure 4; the numbers are those of `perturb_dimensions`. Where they would look plain
    grey, as those of a model that is hardly trained, their contrast is stretched, and the figure says so.

    Args:
        model: a `CapsuleClassifier` with a decoder.
        image: (height, width, channels).
        label: the class.
        class_names: a name for each class; None for numbers. Of a long one the beginning is shown.

    Returns:
        A figure with one row a dimension and one column a change from -0.25 to 0.25.

    Raises:
        ValueError: see `perturb_dimensions`; or another number of names than of classes.

    Example:
        >>> dimension_perturbation(model, images[0], labels[0])
    """
    images = perturb_dimensions(model, image, label)
    name = _names(class_names, _classes(model))[label]
    text = f"Reconstructions from the capsule of class {name}. The middle column is unchanged."
    low, high = float(images.min()), float(images.max())
    if high - low < _LOW_CONTRAST:
        images = (images - low) / (high - low or 1)
        text += f" They are almost plain grey, so the contrast is stretched: black is {low:.4g} and white {high:.4g}."
    rows, columns = images.shape[:2]
    mosaic = _mosaic(images)
    figure = new_figure(8.0, 0.8 + 7.35 * mosaic.shape[0] / mosaic.shape[1])
    axes = figure.subplots()
    show_image(axes, mosaic)
    height, width = ((size - 1) / count for size, count in zip(mosaic.shape, (rows, columns), strict=False))
    axes.set_xticks((np.arange(columns) + 0.5) * width, [f"{offset:+.2f}" if offset else "0" for offset in OFFSETS])
    axes.set_yticks((np.arange(rows) + 0.5) * height, np.arange(1, rows + 1))
    axes.tick_params(length=0, labelsize=9)
    axes.set_xlabel("added to the dimension")
    axes.set_ylabel("dimension of the capsule")
    return add_caption(figure, text)


def overlapping_reconstructions(model, images, parts, part_labels, class_names=None):
    """Two overlapping digits, reconstructed one by one and laid over each other in two colours.

    Source: Sabour et al. 2017, figure 5. The first digit is orange and the second blue in place of red and green, which
    many colour-blind readers can't tell apart; where both are bright the sum is white.

    Args:
        model: a `CapsuleClassifier` with a decoder.
        images: (batch, height, width, channels), the merged images.
        parts: (batch, 2, height, width, channels), the single digits.
        part_labels: (batch, 2), their classes.
        class_names: a name for each class; None for numbers. Of a long one the beginning is shown.

    Returns:
        A figure with one column an image and the rows: the merged image; its two digits in colours; reconstructions
        from the two labels, from the two predicted classes, and from a wrong choice (the first label and the least
        active class).

    Raises:
        ValueError: no decoder, or arrays or names that do not fit the model or each other.

    Example:
        >>> overlapping_reconstructions(model, images[:6], parts[:6], part_labels[:6])
    """
    images, parts, labels = np.asarray(images), np.asarray(parts), np.asarray(part_labels)
    if parts.shape != (len(images), 2, *images.shape[1:]) or labels.shape != (len(images), 2):
        raise ValueError(
            f"`parts` must be two images, and `part_labels` two classes, for each of the images {images.shape}. "
            f"Received shapes {parts.shape} and {labels.shape}."
        )
    activations = predict(model, images)["activations"]
    classes = _names(class_names, _classes(model))
    predicted = np.stack(
        [_aligned(pair, truth) for pair, truth in zip(activations.argsort(-1)[:, :-3:-1], labels, strict=True)]
    )
    wrong = np.stack([labels[:, 0], activations.argmin(-1)], axis=-1)
    choices = [labels, predicted, wrong]
    rows = [images, overlay(parts)] + [overlay(reconstruct_parts(model, images, choice)) for choice in choices]
    names = ["input", "digits", "from\nlabels", "from\npredictions", "from a\nwrong choice"]
    titles = [_joined(classes, pair) for pair in labels]
    below = [None, None, *([_joined(classes, pair) for pair in choice] for choice in choices)]
    figure = image_grid(rows, names, titles, [set(p) != set(t) for p, t in zip(predicted, labels, strict=True)], below)
    return add_caption(
        figure,
        "Above: the labels, bold where a prediction is wrong. Under each reconstruction: the decoded classes. "
        "First orange, second blue, both together white.",
    )


def overlay(parts):
    """Two grey images in orange and blue, added: (..., 2, height, width, channels) -> (..., height, width, 3)."""
    first, second = np.moveaxis(np.asarray(parts, "float32").mean(-1), -3, 0)[..., None]
    return np.clip(first * ORANGE + second * BLUE, 0, 1)


def routing_changes(model, images, iterations=5):
    """How much the routing logits change in each routing iteration, on a logarithmic scale.

    Source: Sabour et al. 2017, appendix A; the numbers are those of `measure_routing_changes`.

    Args:
        model: a `CapsuleClassifier` with a `DynamicRouting` layer named "class_capsules".
        images: (batch, height, width, channels).
        iterations: how many are shown.

    Returns:
        A figure with one panel.

    Raises:
        ValueError: see `measure_routing_changes`.

    Example:
        >>> routing_changes(model, test_images, iterations=5)
    """
    changes = measure_routing_changes(model, images, iterations)
    figure = new_figure(5.6, 4.0)
    axes = figure.subplots()
    _line(axes, 0, np.arange(1, iterations + 1), changes, None, "-")
    _label(axes, "routing iteration", "mean absolute change of a logit")
    _log_scale(axes)
    images = "one image" if len(images) == 1 else f"{len(images):,} images"
    return add_caption(figure, f"Mean over {images}, all children and all parents.")


def pose_changes(model, images, iterations=50, layer="routing"):
    """How far the poses of each layer move in each routing iteration, routed concurrently and sequentially.

    Source: see `measure_pose_changes`, whose numbers these are.

    Args:
        model: a `CapsuleClassifier`, or a functional model, with a `ConcurrentRouting` layer.
        images: (batch, height, width, channels).
        iterations: how many are shown.
        layer: name of the `ConcurrentRouting`.

    Returns:
        A figure with a panel for each schedule.

    Raises:
        ValueError: see `measure_pose_changes`.

    Example:
        >>> pose_changes(model, test_images)
    """
    figure = new_figure(9.6, 4.0)
    schedules = ("concurrent", "sequential")
    chain = getattr(model, "encoder", model).get_layer(layer).chain
    names = [one.name.replace("_", " ") for one in chain]
    for axes, schedule in zip(figure.subplots(1, 2, sharey=True), schedules, strict=True):
        for number, changes in enumerate(measure_pose_changes(model, images, iterations, schedule, layer)):
            _line(axes, number, np.arange(2, iterations + 1), changes, names[number], "-")
        _label(axes, "routing iteration", "mean distance that a pose moves" if schedule == "concurrent" else "")
        axes.set_title(schedule, fontsize=11)
        _log_scale(axes)
        axes.legend(fontsize=9, frameon=False)
    images = "one image" if len(images) == 1 else f"{len(images):,} images"
    return add_caption(figure, f"Mean over {images} and all capsules of a layer; the same weights in all iterations.")


def routing_maps(model, images, inputs=None, labels=None, classes=3, class_names=None, layer="routing"):
    """Where in each image the votes come from that the likeliest class capsules took.

    Source: see `measure_routing_maps`, whose numbers these are.

    Args:
        model: a `CapsuleClassifier`, or a functional model that gives a score for each class, with a
            `ConcurrentRouting` layer.
        images: (batch, height, width, channels), as they are to be seen.
        inputs: the same as the model takes them, where they are preprocessed; None: the images.
        labels: classes to be marked, (batch,), or (batch, classes) with 1 for those of an image; or None.
        classes: how many class capsules are shown for each image, the likeliest ones.
        class_names: a name for each class; None for numbers.
        layer: name of the `ConcurrentRouting`.

    Returns:
        A figure with a row for each image: the image, then a map for each of the classes.

    Raises:
        ValueError: see `measure_routing_maps`; names that do not fit the model; a model without scores of the classes.

    Example:
        >>> routing_maps(model, test_images[:4], labels=test_labels[:4])
    """
    inputs = images if inputs is None else inputs
    maps = measure_routing_maps(model, inputs, layer)
    names = _names(class_names, maps.shape[-1])
    maps[maps.sum(-1) == 0] = np.nan  # where no window looks nothing is drawn
    outputs = predict(model, inputs)
    scores = to_numpy(class_probabilities(model, outputs))
    if scores.shape != (len(images), len(names)):
        raise ValueError(f"The model must give a score for each of {len(names)} classes. Received: {scores.shape}")
    percent = scores.min() >= 0 and scores.max() <= 1
    classes = min(classes, len(names))
    height, width = images.shape[1:3]
    true = [np.flatnonzero(label) if np.ndim(label) else [label] for label in ([] if labels is None else labels)]
    figure = new_figure(1.7 * (classes + 1) + 0.8, (1.7 * height / width + 0.3) * len(images) + 0.6)
    axes = figure.subplots(len(images), classes + 1, squeeze=False)
    likely = [np.argsort(-row, kind="stable")[:classes] for row in scores]
    shown = np.concatenate([maps[i][..., chosen].ravel() for i, chosen in enumerate(likely)])
    low, high = np.nanmin(shown), max(np.nanmax(shown), np.nanmin(shown) + 1e-6)
    for i, line in enumerate(axes):
        for cell in line:
            show_image(cell, images[i])
            cell.set(xticks=[], yticks=[])
        if labels is not None:
            line[0].set_title(shortened(", ".join(names[c] for c in true[i])), fontsize=10, parse_math=False)
        for cell, c in zip(line[1:], likely[i], strict=True):
            cell.images[0].set_alpha(0.35)
            extent = (-0.5, width - 0.5, height - 0.5, -0.5)
            options = dict(cmap="viridis", vmin=low, vmax=high, alpha=0.65, interpolation="nearest", extent=extent)
            drawn = cell.imshow(maps[i][..., c], **options)
            right = labels is not None and c in true[i]
            title = f"{shortened(names[c])} {100 * scores[i, c]:.0f}%" if percent else shortened(names[c])
            cell.set_title(title, fontsize=10, fontweight="bold" if right else "normal", parse_math=False)
    bar = figure.colorbar(drawn, ax=axes, shrink=0.6, pad=0.02)
    bar.ax.set_title("share", fontsize=9)
    likeliest = f"{classes} with their probabilities" if percent else classes
    text = (
        "Of the votes that a place sent up, the share that reached the class capsule named above, the likeliest "
        f"{likeliest}; {1 / len(names):.2g} if routing made no difference."
    )
    return add_caption(figure, text + (" Bold: a true class." if labels is not None else ""))


def vote_distances(model, images, labels, right=2, wrong=1, farthest=None, class_names=None):
    """Histograms of the distances of the votes to each class capsule after each routing iteration.

    Source: Hinton et al. 2018, figure 2; the numbers are those of `measure_vote_distances`. A vote weighs as much as
    it is assigned to the class. Where routing agrees, votes gather near 0 for one class and leave the others.

    Args:
        model: a `CapsuleClassifier` with an `EMRouting` layer named "class_capsules".
        images: (batch, height, width, channels).
        labels: (batch,).
        right: how many of the correctly classified images are shown, the first ones, each of another class.
        wrong: the same for wrongly classified images, as far as there are any.
        farthest: where the axis of the distances is cut; None: at 0.05 as in the paper, or, where less than a tenth of
            all weight is left there in the last iteration, at the median.
        class_names: a name for each class; None for numbers. Of a long one the beginning is shown.

    Returns:
        A figure with a row for each image and a panel for each class.

    Raises:
        ValueError: see `measure_vote_distances`; or labels or names that do not fit the model, or no image to show.

    Example:
        >>> vote_distances(model, test_images, test_labels)
    """
    labels = np.asarray(labels).reshape(-1)
    predictions = predict(model, images)["activations"].argmax(-1)
    if len(labels) != len(predictions):
        raise ValueError(f"Received {len(predictions)} images and {len(labels)} labels.")
    names = _names(class_names, _classes(model))
    hits = _of_different_classes(labels, np.flatnonzero(predictions == labels), right)
    others = np.flatnonzero((predictions != labels) & ~np.isin(labels, labels[hits]))
    index = hits + _of_different_classes(labels, others, wrong)
    if not index:
        raise ValueError(f"There is no image to show with right={right} and wrong={wrong}.")
    shown = np.asarray(images)[index]
    distances, couplings = measure_vote_distances(model, shown)
    if farthest is None:
        order = np.argsort(distances[-1], axis=None)
        mass = np.cumsum(couplings[-1].ravel()[order]) / couplings[-1].sum()
        near = mass[max(0, np.searchsorted(distances[-1].ravel()[order], 0.05) - 1)]
        farthest = 0.05 if near >= 0.1 else float(distances[-1].ravel()[order][np.searchsorted(mass, 0.5)])
    edges = np.linspace(0, farthest, 31)
    figure = new_figure(1.2 + 1.75 * len(names), 1.2 + 1.45 * len(index))
    grid = figure.subplots(len(index), 1 + len(names), squeeze=False, width_ratios=[0.8] + [1] * len(names))
    for row, (cells, i) in enumerate(zip(grid, index, strict=True)):
        low, high = shown[row].min(), shown[row].max()
        show_image(cells[0], (shown[row] - low) / (high - low or 1))
        cells[0].set(xticks=[], yticks=[])
        wrong_one = "bold" if predictions[i] != labels[i] else "normal"
        cells[0].set_title(names[labels[i]], fontsize=9, fontweight=wrong_one, parse_math=False)
        for number, cell in enumerate(cells[1:]):
            _histograms(cell, edges, distances[:, row, :, number], couplings[:, row, :, number])
            style = dict(color=COLORS[0], fontweight=wrong_one) if number == predictions[i] else {}
            cell.set_title(names[number], fontsize=9, parse_math=False, **style)
        most = max(cell.dataLim.ymax for cell in cells[1:])
        for number, cell in enumerate(cells[1:]):
            cell.set(xlim=(0, farthest), ylim=(0, 1.05 * most or 1))
            cell.tick_params(labelsize=8, labelleft=not number, labelbottom=row == len(index) - 1)
        cells[1].set_ylabel("assigned votes", fontsize=8)
    for cell in grid[-1, 1:]:
        cell.set_xlabel("distance", fontsize=8)
    handles, texts = grid[0, 1].get_legend_handles_labels()
    figure.legend(handles, texts, loc="outside upper right", ncols=len(texts), frameon=False, fontsize=8)
    within = (couplings[-1] * (distances[-1] <= farthest)).sum() / couplings[-1].sum()
    failures = " Bold: a wrong prediction." if (predictions[index] != labels[index]).any() else ""
    return add_caption(
        figure,
        "Distances of the votes to each class capsule, a vote weighing as much as it is assigned to the class. Blue "
        f"title: the predicted class.{failures} The axis is cut at {farthest:.2g}, within which {within:.0%} of the "
        "assignments lie after the last iteration.",
    )


def vote_similarities(models, images, labels):
    """How like the right class's capsule the votes for it are, a panel for each model.

    Source: Li et al. 2018, figure 2 (after epochs 1, 20, 80 and 200, dynamic routing above EM routing); the numbers are
    those of `measure_vote_similarities`.

    Args:
        models: a `CapsuleClassifier` with a `DynamicRouting` or `EMRouting` layer named "class_capsules"; or several as
            a dict from what is to stand above the panel, for instance of one network after several epochs.
        images: (batch, height, width, channels).
        labels: (batch,).

    Returns:
        A figure with bars for the shares of the votes and a line for their mean length.

    Raises:
        ValueError: see `measure_vote_similarities`; or no model.

    Example:
        >>> vote_similarities({"dynamic": model, "EM": other}, test_images, test_labels)
    """
    models = dict(models) if isinstance(models, dict) else {"": models}
    if not models:
        raise ValueError("There is no model to show.")
    measured = {name: measure_vote_similarities(model, images, labels) for name, model in models.items()}
    figure = new_figure(3.6 * len(models) + 1.2, 3.6)
    panels = figure.subplots(1, len(models), sharey=True, squeeze=False)[0]
    most = max(np.nanmax(lengths) for _, lengths in measured.values())
    for number, (axes, (name, (shares, lengths))) in enumerate(zip(panels, measured.items(), strict=True)):
        left = np.linspace(-1, 1, len(shares))
        axes.bar(left, 100 * shares, left[1] - left[0], align="edge", color=COLORS[0], alpha=0.6)
        axes.axvline(0, color="0.5", linewidth=0.8)
        dissimilar = shares[left < -1e-9].sum()
        title = f"{dissimilar:.0%} of the votes below 0"
        axes.set_title(f"{name}: {title}" if name else title, fontsize=10, parse_math=False)
        _label(axes, "cosine of vote and capsule", "votes (%)" if not number else "")
        other = axes.twinx()
        other.plot(left + (left[1] - left[0]) / 2, lengths, color=COLORS[5], marker="o", markersize=3)
        other.set_ylim(0, 1.05 * most)
        other.tick_params(labelright=number == len(models) - 1)
        if number == len(models) - 1:
            other.set_ylabel("mean length of the votes", color=COLORS[5])
    return add_caption(
        figure, f"Votes for the right class in {len(images)} images. Bars: their share. Line: their mean length."
    )


def _histograms(axes, edges, distances, weights):
    """One outline an iteration of (iterations, votes), the last one filled."""
    last = len(distances) - 1
    for iteration, (values, shares) in enumerate(zip(distances, weights, strict=True)):
        counts, _ = np.histogram(values, edges, weights=shares)
        color, label = COLORS[(last - iteration) % len(COLORS)], f"iteration {iteration + 1}"
        if iteration == last:
            axes.stairs(counts, edges, color=color, fill=True, alpha=0.3)
        axes.stairs(counts, edges, color=color, linestyle=_STYLES[min(last - iteration, 2)], label=label)
    axes.spines[["top", "right"]].set_visible(False)


def _of_different_classes(labels, index, count):
    """The first of these examples of each class, at most `count` of them."""
    _, first = np.unique(labels[index], return_index=True)
    return [int(i) for i in index[np.sort(first)][:count]]


def _classes(model):
    return model.encoder.output["activations"].shape[-1]


def _names(class_names, classes):
    """A name for each of the classes of a model, such as a picture has room for; numbers where there are none."""
    if class_names is not None and len(class_names) != classes:
        raise ValueError(f"The model has {classes} classes. Received {len(class_names)} names: {class_names!r}")
    return [shortened(name) for name in (range(classes) if class_names is None else class_names)]


def _joined(names, classes, form="{}"):
    """The names of some classes: in one line where all names are as short as digits, else below each other."""
    chosen = [names[number] for number in classes]
    return form.format(", ".join(chosen)) if max(map(len, names)) < 3 else "\n".join(chosen)


def _line(axes, number, x, y, label, style):
    color, marker = COLORS[number % len(COLORS)], MARKERS[number % len(MARKERS)]
    every = max(1, len(x) // 12)
    filled = color if style == "-" else "white"
    axes.plot(
        x, y, style, color=color, marker=marker, markevery=every, markersize=5, markerfacecolor=filled, label=label
    )


def _label(axes, x, y):
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    first, last = axes.dataLim.intervalx
    if first == last:
        axes.set_xlim(first - 0.5, last + 0.5)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _log_scale(axes):
    from matplotlib.ticker import FuncFormatter, LogFormatterMathtext, LogLocator, NullFormatter

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    if high < 10 * low:  # what hardly changes is to look like it
        middle = (low * high) ** 0.5
        low, high = axes.set_ylim(middle / 10**0.5, middle * 10**0.5)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7) if high < 100 * low else (1,)))
    numbers = FuncFormatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_major_formatter(LogFormatterMathtext() if high > 1e4 * low else numbers)
    axes.yaxis.set_minor_formatter(NullFormatter())


def _runs(history):
    runs = dict(history) if isinstance(history, dict) else {"": history}
    for name, rows in runs.items():
        if not len(rows) or "epoch" not in rows[0] or "loss" not in rows[0]:
            raise ValueError(f'The history {name!r} needs rows with "epoch" and "loss". Received: {list(rows)[:1]!r}')
    if not runs:
        raise ValueError("There is no run to show.")
    return {name: [_without_feedback(row) for row in rows] for name, rows in runs.items()}


def _without_feedback(row):
    """The row with the loss alone, which validation has, of training with feedback units."""
    fed = float(row.get("feedback") or 0)
    return {**row, "loss": float(row["loss"]) - fed} if fed and row.get("loss") not in (None, "") else row


def _column(rows, key):
    """Epochs and values of a quantity, where it was measured."""
    measured = [(float(row["epoch"]), float(row[key])) for row in rows if row.get(key) not in (None, "")]
    return np.array(measured).reshape(-1, 2).T


def _aligned(pair, truth):
    """The two classes in the order in which a shared one keeps its place, and with it its colour."""
    return pair[::-1] if pair[0] == truth[1] or pair[1] == truth[0] else pair


def _mosaic(images):
    """(rows, columns, height, width, channels) as one image, tiles parted by lines one pixel wide."""
    rows, columns, height, width, channels = images.shape
    framed = np.ones((rows, columns, height + 1, width + 1, channels), "float32")
    framed[:, :, 1:, 1:] = images
    mosaic = framed.transpose(0, 2, 1, 3, 4).reshape(rows * (height + 1), columns * (width + 1), channels)
    return np.pad(mosaic, ((0, 1), (0, 1), (0, 0)), constant_values=1)
