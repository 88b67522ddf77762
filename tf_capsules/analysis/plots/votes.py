"""Pictures of where the votes for a class lie relative to the pose of its capsule."""

import numpy as np

from tf_capsules.analysis.plots import drawing

_STYLES = ("-", "--", ":")


def draw_vote_distances(measured, farthest=None, class_names=None):
    """Histograms of the distances of the votes to each class capsule after each routing iteration.

    Source: Hinton et al. 2018, figure 2. Each vote is weighted by its coupling coefficient to the class. If routing
    agrees, votes gather near 0 for one class and leave the others.

    Args:
        measured: `ExampleVotes` of `measure_example_votes`.
        farthest: end of the axis of distances. None: 0.05 as in the paper, or the median distance if less than a tenth
            of all weight lies below 0.05 in the last iteration.
        class_names: a name for each class; None for numbers. A ValueError for another number. Long names are cut.

    Returns:
        A figure with a row for each image and a panel for each class: of more than 12, for those of the labels and the
        predictions, and for those that most votes are assigned to.
    """
    distances, couplings = measured.distances, measured.couplings
    names = drawing.names_of(distances.shape[-1], class_names)
    farthest = _end_of_axis(distances[-1], couplings[-1]) if farthest is None else farthest
    assigned = np.argsort(-couplings[-1].sum((0, 1)), kind="stable")
    likely = dict.fromkeys([*measured.labels, *measured.predictions, *assigned])
    shown = sorted(list(likely)[: drawing.MOST_CLASSES])
    edges = np.linspace(0, farthest, 31)
    figure = drawing.new_figure(1.2 + 1.75 * len(shown), 1.2 + 1.45 * len(measured.images))
    ratios = [0.8] + [1] * len(shown)
    grid = figure.subplots(len(measured.images), len(ratios), squeeze=False, width_ratios=ratios)
    for row, (cells, image) in enumerate(zip(grid, measured.images, strict=True)):
        label, prediction = measured.labels[row], measured.predictions[row]
        drawing.show_image(cells[0], image, stretched=True)
        weight = "bold" if prediction != label else "normal"
        cells[0].set_title(names[label], fontsize=9, fontweight=weight, parse_math=False)
        for number, cell in zip(shown, cells[1:], strict=True):
            _draw_histograms(cell, edges, distances[:, row, :, number], couplings[:, row, :, number])
            style = dict(color=drawing.COLORS[0], fontweight=weight) if number == prediction else {}
            cell.set_title(names[number], fontsize=9, parse_math=False, **style)
        most = max(cell.dataLim.ymax for cell in cells[1:])
        for cell in cells[1:]:
            cell.set(xlim=(0, farthest), ylim=(0, 1.05 * most or 1))
            cell.tick_params(labelsize=8, labelleft=cell is cells[1], labelbottom=row == len(grid) - 1)
        cells[1].set_ylabel("assigned votes", fontsize=8)
    for cell in grid[-1, 1:]:
        cell.set_xlabel("distance", fontsize=8)
    drawing.add_legend(figure, "outside upper right", ncols=len(distances), fontsize=8)
    within = (couplings[-1] * (distances[-1] <= farthest)).sum() / couplings[-1].sum()
    failures = " Bold: a wrong prediction." if (measured.predictions != measured.labels).any() else ""
    some = f"{len(shown)} of {len(names)} classes. " if len(shown) < len(names) else ""
    text = "Distances of the votes to each class capsule, a vote weighing as much as it is assigned to the class."
    more = f"Blue title: the predicted class.{failures} The axis is cut at {farthest:.2g}"
    share = f"within which {within:.0%} of the assignments lie after the last iteration"
    return drawing.add_caption(figure, f"{some}{text} {more}, {share}.")


def _end_of_axis(distances, couplings):
    """0.05, or the median distance if less than a tenth of the weight lies below 0.05."""
    order = np.argsort(distances, axis=None)
    ordered = distances.ravel()[order]
    mass = np.cumsum(couplings.ravel()[order]) / couplings.sum()
    below = np.searchsorted(ordered, 0.05)
    return 0.05 if below and mass[below - 1] >= 0.1 else float(ordered[np.searchsorted(mass, 0.5)])


def _draw_histograms(axes, edges, distances, weights):
    """Draws (iterations, votes) as one outline for each iteration; the last one is filled."""
    last = len(distances) - 1
    for iteration, (values, shares) in enumerate(zip(distances, weights, strict=True)):
        counts, _ = np.histogram(values, edges, weights=shares)
        color, name = drawing.COLORS[(last - iteration) % len(drawing.COLORS)], f"iteration {iteration + 1}"
        if iteration == last:
            axes.stairs(counts, edges, color=color, fill=True, alpha=0.3)
        axes.stairs(counts, edges, color=color, linestyle=_STYLES[min(last - iteration, 2)], label=name)
    axes.spines[["top", "right"]].set_visible(False)


def draw_vote_similarities(measured, images):
    """How similar the votes for the right class are to its capsule, and how long they are.

    Source: Li et al. 2018, figure 2 (after epochs 1, 20, 80 and 200, dynamic routing above EM routing).

    Args:
        measured: the pair of `measure_vote_similarities`, or a dict from names, such as epochs, to such pairs.
        images: number of images that were measured.

    Returns:
        A figure with a column for each pair. Above: the shares of the votes. Below: their mean length.
    """
    measured = dict(measured) if isinstance(measured, dict) else {"": measured}
    if not measured:
        raise ValueError("There is no model to show.")
    figure = drawing.new_figure(3.6 * len(measured) + 0.6, 4.8)
    grid = figure.subplots(2, len(measured), sharex=True, sharey="row", squeeze=False, height_ratios=(3, 2))
    for (above, below), (name, (shares, lengths)) in zip(grid.T, measured.items(), strict=True):
        left = np.linspace(-1, 1, len(shares))
        width = left[1] - left[0]
        above.bar(left, 100 * shares, width, align="edge", color=drawing.COLORS[0])
        below.plot(left + width / 2, lengths, color=drawing.COLORS[5], marker="o", markersize=3)
        title = f"{shares[left < -1e-9].sum():.0%} of the votes below 0"
        above.set_title(f"{name}: {title}" if name else title, fontsize=10, parse_math=False)
        below.set_xlabel("cosine of vote and capsule")
        for axes in (above, below):
            axes.axvline(0, color="0.5", linewidth=0.8)
            drawing.bare(axes)
    grid[0, 0].set_ylabel("votes (%)")
    grid[1, 0].set_ylabel("mean length")
    grid[1, 0].set_ylim(0, 1.05 * max(np.nanmax(lengths) for _, lengths in measured.values()))
    votes = f"Votes for the right class in {drawing.counted(images, 'image')}"
    return drawing.add_caption(figure, f"{votes}. Above: their share. Below: their mean length.")
