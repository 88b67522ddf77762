"""Pictures of class capsules while the viewpoint moves around a toy, and of the toys themselves."""

import numpy as np

from tf_capsules.analysis.plots import drawing
from tf_capsules.analysis.viewpoints import ViewPoses, project_poses


def draw_pose_curves(measured):
    """Change, norm ratio and cosine of each pose vector while the viewpoint moves around the toys.

    Source: Heinsen 2019, figures 6 (azimuth) and 7 (elevation). Each axis spans at least 0.2.

    Args:
        measured: `ViewPoses` of `measure_view_poses`.

    Returns:
        A figure with a column for each pose vector and a row for each quantity. Each thin line is a toy.
    """
    views, (toys, _, vectors, _) = measured.views, measured.poses.shape
    names = (r"$\|p_t - p_0\|\,/\,\|p_0\|$", r"$\|p_t\|\,/\,\|p_0\|$", r"$\cos(p_t,\,p_0)$")
    figure = drawing.new_figure(2.5 * vectors + 1.2, 7.2)
    grid = figure.subplots(3, vectors, sharex=True, sharey="row", squeeze=False)
    for row, name, values in zip(grid, names, measured.changes, strict=True):
        for vector, axes in enumerate(row):
            axes.plot(views.degrees, values[..., vector].T, color=drawing.COLORS[4], linewidth=0.6, alpha=0.55)
            axes.plot(views.degrees, values[..., vector].mean(0), color=drawing.DARK_BLUE, linewidth=2.2)
            drawing.bare(axes)
        row[0].set_ylabel(name)
    drawing.show_at_least(grid[0, 0], 0.2, lowest=-0.01)
    drawing.show_at_least(grid[1, 0], 0.2)
    drawing.show_at_least(grid[2, 0], 0.2, highest=1.01)
    for vector, axes in enumerate(grid[0]):
        axes.set_title(f"pose vector {vector + 1}", fontsize=10)
    for axes in grid[2]:
        axes.set(xlabel=f"{views.factor} (degrees)", xticks=views.degrees[:: max(1, (len(views.degrees) - 1) // 4)])
    text = f"p: the pose vector, at the angle t and at the first. Thin: each of {toys} toys. Dark blue: their mean."
    another = f"{measured.differing} of {measured.activated.size} images activate another one"
    return drawing.add_caption(figure, f"{text} The capsule is that of the true category; {another}.")


def draw_pose_trajectories(measured, class_names=None, instance=None):
    """The pose vectors of one toy of each category, in the plane that keeps their distances best.

    Source: Heinsen 2019, figure 4; the points are those of `project_poses`.

    Args:
        measured: `ViewPoses`, or a sequence of them, which gives a row for each.
        class_names: titles instead of the categories' numbers.
        instance: number of the toy within its category; None: the first. A ValueError if a category has no such toy.

    Returns:
        A figure with a panel for each category. Each pose vector has a colour, and a line from view to view, which
        begins with a ring and ends with a disc. Grey polygons join the vectors of the first and of the last view.
    """
    rows = [measured] if isinstance(measured, ViewPoses) else list(measured)
    labels = np.unique(rows[0].views.labels)
    figure = drawing.new_figure(2.9 * len(labels), 3.0 * len(rows) + 0.5)
    grid = figure.subplots(len(rows), len(labels), squeeze=False)
    for line, row in zip(grid, rows, strict=True):
        for axes, label in zip(line, labels, strict=True):
            _draw_trajectory(axes, project_poses(row.poses[row.views.toy(label, instance)]))
            axes.set_title(f"{_category(label, class_names)}, by {row.views.factor}", fontsize=10, parse_math=False)
    text = "Each colour: a pose vector from view to view, from ring to disc, in the plane that keeps distances best."
    return drawing.add_caption(figure, f"{text} Grey: the vectors of the first view (dashed) and of the last.")


def _category(label, class_names):
    """The name of a category; a ValueError if names are given and it has none."""
    if class_names is not None and label >= len(class_names):
        raise ValueError(f"There is no name for category {label}. Received: {class_names!r}")
    return f"category {label}" if class_names is None else drawing.shortened(class_names[label])


def _draw_trajectory(axes, points):
    for corners, style in ((points[0], "--"), (points[-1], "-")):
        axes.plot(*np.concatenate([corners, corners[:1]]).T, style, color="0.6", linewidth=1)
    for number, path in enumerate(points.transpose(1, 0, 2)):
        color = drawing.COLORS[number % len(drawing.COLORS)]
        axes.plot(*path.T, color=color, linewidth=1.3, solid_joinstyle="round")
        axes.plot(*path[0], "o", markersize=8, fillstyle="none", color=color, markeredgewidth=1.6)
        axes.plot(*path[-1], "o", markersize=8, color=color)
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.12)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_color("0.8")


def draw_stereo_sheet(images, views, class_names=None, instance=None):
    """One toy of each category from all sides, the left camera's pictures above the right one's.

    Source: Heinsen 2019, figure 9.

    Args:
        images: (examples, height, width, 2), uint8: a split's images of two cameras. A ValueError for other channels.
        views: its `Views` by azimuth, of `find_views`.
        class_names, instance: see `draw_pose_trajectories`.

    Returns:
        A figure with two rows for each category and a column for each azimuth.
    """
    if images.shape[-1] != 2:
        raise ValueError(f"A stereo sheet needs images of two channels. Received: {images.shape}")
    labels = np.unique(views.labels)
    height, width = images.shape[1:3]
    count = len(views.degrees)
    figure = drawing.new_figure(12.0, (2 * 11.0 / count * height / width + 0.12) * len(labels) + 0.5)
    for axes, label in zip(figure.subplots(len(labels), 1, squeeze=False)[:, 0], labels, strict=True):
        pairs = images[views.index[views.toy(label, instance)]]
        axes.imshow(pairs.transpose(3, 1, 0, 2).reshape(2 * height, count * width), cmap="gray", vmin=0, vmax=255)
        axes.set_yticks([height / 2, 1.5 * height], ["left", "right"], fontsize=8)
        axes.set_ylabel(_category(label, class_names).replace(" ", "\n"), fontsize=9, parse_math=False)
        axes.set_xticks([])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    axes.set_xticks((np.arange(count) + 0.5) * width, views.degrees, fontsize=8)
    axes.set_xlabel("azimuth (degrees)")
    return figure
