"""A picture of which capsules each class took, and from which places of the image these came."""

import itertools

import numpy as np

from tf_capsules.analysis.plots.drawing import ORANGE, add_caption, names_of, new_figure, show_image


def draw_parse_tree(image, levels, probabilities, classes=3, parts=3, class_names=None):
    """An image, its likeliest classes, and below each class the capsules and places that it took from, by layer.

    Source: see `measure_parse_tree`. Colours span at least half an even share: small differences look small.

    Args:
        image: (height, width, channels), as it is to be seen.
        levels: of `measure_parse_tree`; a ValueError if none of them has a grid.
        probabilities: (classes,) of `predict_probabilities`.
        classes: number of classes shown, the likeliest ones.
        parts: number of capsules shown for each class, of a layer without a grid: those that gave it the most.
        class_names: a name for each class; None for numbers. A ValueError for another number of names.

    Returns:
        A figure with a column for each class. The picture of a layer on a grid shows how much of what each place sent
        up reached the class. If a layer without a grid lies above, its capsules that gave the class the most are
        shown, with their places. Places are drawn as equal parts of the image, not exactly as the capsules' windows.
    """
    names = names_of(levels[0].shares.shape[-1], class_names)
    likely = np.argsort(-probabilities, kind="stable")[: min(classes, len(names))]
    grids = [level for level in levels if level.shares.ndim == 4]
    if not grids:
        raise ValueError(f"A layer must be on a grid. Received shares {[level.shares.shape for level in levels]}")
    cells = [(f"{level.layer}\ntook from", level.map, [(c, None) for c in likely]) for level in grids]
    text = "Under each class: the layers that its votes came through, the highest first."
    for above, below in itertools.pairwise(levels):
        if above.shares.ndim == 2 and below.shares.ndim == 4 and below.couplings is not None:
            taken = above.taken
            chosen = [(p, f"part {p}: {taken[p, c]:.0%}") for c in likely for p in np.argsort(-taken[:, c])[:parts]]
            cells.append(("each part\ntook from", below.places(below.couplings), chosen))
            text += f" Lowest row: through one capsule of {below.layer} each, and what share of all the class took."
    text = f"Orange: the share of a place's votes that reached the class. On the left: its range. {text}"
    return _draw_rows(image, cells, [f"{names[c]}: {probabilities[c]:.0%}" for c in likely], text)


def _draw_rows(image, cells, titles, text):
    """The image as the root, and `cells` as rows below it: a name, shares, and (capsule, title) of each picture."""
    from matplotlib.patches import ConnectionPatch

    columns = max(len(chosen) for _, _, chosen in cells)
    heights = [1.5] + [2.0 if len(chosen) == len(titles) else 1.2 for _, _, chosen in cells]
    figure = new_figure(max(1.1 * columns, 2.0 * len(titles)) + 1.6, sum(heights) + 0.2 * len(heights) + 0.7)
    grid = figure.add_gridspec(1 + len(cells), columns, height_ratios=heights)
    above = [figure.add_subplot(grid[0, :])]
    show_image(above[0], image, stretched=True)
    for row, (name, values, chosen) in enumerate(cells, start=1):
        drawn = values[..., [number for number, _ in chosen]]
        seen = values.sum(-1) > 0  # where some window looks
        least, most = drawn[seen].min(), drawn[seen].max()
        span = max(most - least, 0.5 / values.shape[-1])
        width, axes = columns // len(chosen), []
        for number, (_, title) in enumerate(chosen):
            cell = figure.add_subplot(grid[row, number * width : (number + 1) * width])
            show_image(cell, image, stretched=True)
            strength = 0.85 * np.clip((drawn[..., number] - least) / span, 0, 1) * seen
            colors = np.broadcast_to(ORANGE, (*strength.shape, 3))
            cell.imshow(np.dstack([colors, strength]), extent=cell.images[0].get_extent(), interpolation="nearest")
            title = titles[number] if title is None and row == 1 else title
            if title is not None:
                heavy = "bold" if row == 1 and not number else "normal"
                cell.set_title(title, fontsize=10 if row == 1 else 8, fontweight=heavy, parse_math=False)
            top = (1.16 if row == 1 else 1.26) if title else 1
            ends = dict(axesA=above[number * len(above) // len(chosen)], axesB=cell, color="0.6", linewidth=1.2)
            figure.add_artist(ConnectionPatch((0.5, 0), (0.5, top), "axes fraction", "axes fraction", **ends))
            axes.append(cell)
        ends = [f"{round(100 * x, 1):g}%" for x in (least, most, 1 / values.shape[-1])]
        label = "{}\n{} to {}\n({} if even)".format(name.replace("_", " "), *ends)
        axes[0].set_ylabel(label, fontsize=8, rotation=0, ha="right", va="center")
        above = axes
    return add_caption(figure, text)
