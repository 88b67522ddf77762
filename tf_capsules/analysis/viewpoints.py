"""Class capsules while the viewpoint moves round a toy, and the other figures of Heinsen 2019 on images.

First what is measured, as NumPy arrays; then the figures, each a `matplotlib.figure.Figure`. They take any set with
the factors of smallNORB: `instance`, `elevation`, `azimuth` and `lighting`.
"""

import dataclasses
import itertools
import textwrap
from typing import NamedTuple

import numpy as np

from tf_capsules.analysis.drawing import COLORS, add_caption, new_figure, shortened
from tf_capsules.datasets import augment
from tf_capsules.models import class_scores

_DEGREES = {"azimuth": lambda number: 20 * number, "elevation": lambda number: 30 + 5 * number}
_DARK_BLUE = "#0b2a6f"

# What Heinsen 2019 compares itself with. smallNORB: parameters, test accuracy in percent.
SMALLNORB = (
    ("Sabour et al. 2017", 8_200_000, 97.3),
    ("Cireşan et al. 2011, extensive image processing", 2_700_000, 97.4),
    ("Hinton et al. 2018", 310_000, 98.2),
    ("Hinton et al. 2018, mean of several crops", 310_000, 98.6),
    ("Heinsen 2019", 273_000, 99.1),
)
# Root sentences of the Stanford Sentiment Treebank, five classes: year, test accuracy in percent.
SST5 = (
    ("RNTN", 2013, 45.7),
    ("CNN / word2vec", 2014, 48.0),
    ("Para-Vec", 2014, 48.7),
    ("LSTM / PP2B", 2015, 49.1),
    ("DMN / GloVe", 2015, 51.1),
    ("NSE / GloVe", 2016, 52.8),
    ("ByteLSTM / 82M reviews", 2017, 52.9),
    ("CT-LSTM / word2vec", 2017, 53.6),
    ("BCN+Char / CoVe", 2017, 53.7),
    ("BCN / ELMo", 2018, 54.7),
    ("SuBiLSTM+Char / CoVe", 2018, 56.2),
    ("Heinsen 2019 / GPT-2 large", 2019, 58.5),
)


@dataclasses.dataclass(frozen=True, eq=False)
class Views:
    """Where in a split the images of each toy stand, in the order of one factor while the others stay.

    Attributes:
        factor: "azimuth" or "elevation".
        degrees: (views,).
        labels, instances: (toys,), the toys' categories and their numbers within them.
        index: (toys, views), numbers of examples.
    """

    factor: str
    degrees: np.ndarray
    labels: np.ndarray
    instances: np.ndarray
    index: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class ViewPoses:
    """Poses of the capsule of the true category in every view.

    Attributes:
        views: the `Views`.
        poses: (toys, views, pose vectors, size), the rows of the pose matrices.
        activated: (toys, views), the class with the highest score.
    """

    views: Views
    poses: np.ndarray
    activated: np.ndarray

    @property
    def differing(self):
        """How many images activate another capsule than that of the true category."""
        return int((self.activated != self.views.labels[:, None]).sum())


class PoseChanges(NamedTuple):
    """|p(t) - p(0)| / |p(0)|, |p(t)| / |p(0)| and cos(p(t), p(0)), each (..., views, pose vectors)."""

    change: np.ndarray
    norm_ratio: np.ndarray
    cosine: np.ndarray


def find_views(arrays, factor, elevation=0, azimuth=0, lighting=0):
    """Looks up every toy's images in the order of one factor, the others being fixed.

    Source: Heinsen 2019, figures 6 and 7.

    Args:
        arrays: those of a `Split`: aligned columns `label`, `instance`, `elevation`, `azimuth` and `lighting`.
        factor: "azimuth" or "elevation".
        elevation, azimuth, lighting: the numbers at which the other two stay.

    Returns:
        `Views` of all toys there are, sorted by category and instance.

    Raises:
        ValueError: another factor, a column that is missing or unknown (-1), or a toy without one of the views.

    >>> azimuth = np.tile(np.arange(18), 2)
    >>> columns = {"label": azimuth * 0, "instance": np.repeat([0, 3], 18), "azimuth": azimuth}
    >>> find_views(columns | {"elevation": azimuth * 0, "lighting": azimuth * 0}, "azimuth").index.shape
    (2, 18)
    """
    if factor not in _DEGREES:
        raise ValueError(f"The factor is azimuth or elevation. Received: {factor!r}")
    names = ("label", "instance", "elevation", "azimuth", "lighting")
    unknown = [name for name in names if name not in arrays or (np.asarray(arrays[name]) < 0).any()]
    if unknown:
        raise ValueError(f"The split does not tell {', '.join(unknown)} of its examples; views are looked up by them.")
    fixed = {"elevation": elevation, "azimuth": azimuth, "lighting": lighting}
    del fixed[factor]
    chosen = np.flatnonzero(np.all([arrays[name] == value for name, value in fixed.items()], axis=0))
    toys = np.unique(np.stack([arrays["label"], arrays["instance"]], axis=-1), axis=0)
    numbers = np.unique(arrays[factor][chosen])
    index = np.full((len(toys), len(numbers)), -1)
    for place in chosen:
        toy = (toys == (arrays["label"][place], arrays["instance"][place])).all(-1).argmax()
        index[toy, np.searchsorted(numbers, arrays[factor][place])] = place
    lacking = (index < 0).sum(1) if index.size else np.ones(len(toys), int)
    if lacking.any():
        label, instance = toys[lacking.argmax()]
        where = " and ".join(f"{name} {value}" for name, value in fixed.items())
        raise ValueError(
            f"{(lacking > 0).sum()} of {len(toys)} toys lack views by {factor} at {where}, such as instance {instance} "
            f"of category {label}. Take the whole test split, not a part of it."
        )
    return Views(factor, _DEGREES[factor](numbers), toys[:, 0], toys[:, 1], index)


def measure_view_poses(predict, split, factor, preprocess=(), **fixed):
    """Poses of the true category's capsule, view by view.

    Source: Heinsen 2019, figures 6 and 7. Their captions speak of the activated capsule, the author's code takes that
    of the true category; `ViewPoses.differing` counts the images for which this is not the same.

    Args:
        predict: function from images (batch, height, width, channels) in [0, 1] to a dict of "activations" (batch,
            classes) and "poses" (batch, classes, rows, columns), for instance `functools.partial(measures.predict,
            model)`. The rows are the pose vectors; a pose that is a vector (batch, classes, size) is a single one.
        split: a `Split` with the factors of smallNORB.
        factor: "azimuth" or "elevation".
        preprocess: steps of `tf_capsules.datasets.augment`, as in evaluation.
        fixed: other numbers of the other factors, see `find_views`.

    Returns:
        `ViewPoses`.

    Raises:
        ValueError: see `find_views`.

    >>> from tf_capsules import datasets
    >>> options = {"elevations": 0, "lightings": 0, "train_pairs": 1, "test_pairs": None}
    >>> toys = datasets.load("rendered_toys", size=8, **options)
    >>> def predict(images):
    ...     return {"activations": np.ones((len(images), 5)), "poses": np.ones((len(images), 5, 4, 4))}
    >>> measure_view_poses(predict, toys.test, "azimuth").poses.shape
    (25, 18, 4, 4)
    """
    views = find_views(split.arrays, factor, **fixed)
    flat = views.index.reshape(-1)
    images = split.arrays["image"][flat].astype("float32") / 255
    outputs = predict(np.stack([augment.apply(preprocess, image) for image in images]))
    poses = np.asarray(outputs["poses"])[np.arange(len(flat)), np.asarray(split.arrays["label"])[flat]]
    poses = poses if poses.ndim == 3 else poses[:, None]
    activated = np.asarray(class_scores(outputs)).argmax(-1)
    return ViewPoses(views, poses.reshape(*views.index.shape, *poses.shape[1:]), activated.reshape(views.index.shape))


def compare_poses(poses):
    """How pose vectors change from the first view on.

    Source: Heinsen 2019, figures 6 and 7.

    Args:
        poses: (..., views, pose vectors, size).

    Returns:
        `PoseChanges`.

    Raises:
        ValueError: a pose vector of length 0 in the first view, to which nothing can be compared.

    >>> turned = compare_poses(np.array([[[1.0, 0.0]], [[0.0, 2.0]]]))
    >>> turned.norm_ratio[:, 0], turned.cosine[:, 0]
    (array([1., 2.]), array([1., 0.]))
    """
    poses = np.asarray(poses, "float64")
    first, norms = poses[..., :1, :, :], np.linalg.norm(poses, axis=-1)
    start = norms[..., :1, :]
    if not start.all():
        raise ValueError("A pose vector of the first view is zero: changes relative to it are undefined.")
    change = np.linalg.norm(poses - first, axis=-1) / start
    # A vector of length 0 has no direction; its inner product, 0, is what it shares with any.
    cosine = (poses * first).sum(-1) / np.where(norms > 0, norms * start, 1)
    return PoseChanges(change, norms / start, cosine)


def project_poses(poses):
    """The pose vectors of one toy in all views as points of a plane, by metric multidimensional scaling.

    Source: Heinsen 2019, figure 4. Starts from the two principal axes rather than from a random state, so the same
    poses always give the same picture.

    Args:
        poses: (views, pose vectors, size).

    Returns:
        (views, pose vectors, 2); distances between points are close to those between the vectors.

    >>> project_poses(np.random.default_rng(0).normal(size=(9, 4, 4))).shape
    (9, 4, 2)
    """
    from sklearn.manifold import smacof
    from sklearn.metrics import pairwise_distances

    vectors = np.asarray(poses, "float64").reshape(-1, np.shape(poses)[-1])
    centred = vectors - vectors.mean(0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    start = np.zeros((len(vectors), 2))
    start[:, : len(axes)] = centred @ axes[:2].T
    points, _ = smacof(
        pairwise_distances(vectors), init=start, n_init=1, max_iter=3000, eps=1e-9, normalized_stress=False
    )
    return points.reshape(*np.shape(poses)[:2], 2)


def signed_areas(points):
    """Areas of closed polygons (..., corners, 2); a polygon that has been flipped over changes its sign.

    >>> signed_areas(np.array([[0, 0], [2, 0], [2, 1], [0, 1]]))
    np.float64(2.0)
    """
    x, y = np.moveaxis(np.asarray(points, "float64"), -1, 0)
    return (x * np.roll(y, -1, -1) - np.roll(x, -1, -1) * y).sum(-1) / 2


def pose_rows(measured):
    """The mean curves of `pose_curves` as rows of a table, one for each view and pose vector.

    Args:
        measured: `ViewPoses`.

    Returns:
        A list of dicts.
    """
    quantities = compare_poses(measured.poses)
    return [
        {measured.views.factor: int(degrees), "pose_vector": vector + 1}
        | {
            f"{name}_{statistic}": float(f"{getattr(np, statistic)(values[:, view, vector]):.6g}")
            for name, values in quantities._asdict().items()
            for statistic in ("mean", "std")
        }
        for view, degrees in enumerate(measured.views.degrees)
        for vector in range(measured.poses.shape[2])
    ]


def pose_curves(measured):
    """Change, norm ratio and cosine of each pose vector while the viewpoint moves round the toys.

    Source: Heinsen 2019, figures 6 (azimuth) and 7 (elevation); the numbers are those of `compare_poses`.

    Args:
        measured: `ViewPoses`.

    Returns:
        A figure with a column for each pose vector and a row for each quantity; a thin line is a toy.

    Example:
        >>> views = Views("azimuth", np.arange(0, 360, 20), np.array([2]), np.array([0]), np.arange(18)[None])
        >>> figure = pose_curves(ViewPoses(views, np.random.rand(1, 18, 4, 4), np.full((1, 18), 2)))
        >>> len(figure.axes)
        12
    """
    views, toys = measured.views, len(measured.poses)
    vectors = measured.poses.shape[2]
    names = (
        r"$\|p(t) - p(0)\|\,/\,\|p(0)\|$",
        r"$\|p(t)\|\,/\,\|p(0)\|$",
        r"$\cos(p(t),\,p(0))$",
    )
    figure = new_figure(2.5 * vectors + 1.2, 7.2)
    grid = figure.subplots(3, vectors, sharex=True, sharey="row", squeeze=False)
    for row, name, values in zip(grid, names, compare_poses(measured.poses), strict=True):
        for vector, axes in enumerate(row):
            for line in values[..., vector]:
                axes.plot(views.degrees, line, color=COLORS[4], linewidth=0.6, alpha=0.55)
            mean = values[..., vector].mean(0)
            axes.plot(views.degrees, mean, color=_DARK_BLUE, linewidth=2.2)
            axes.grid(alpha=0.3)
            axes.spines[["top", "right"]].set_visible(False)
        row[0].set_ylabel(name)
    for vector, axes in enumerate(grid[0]):
        axes.set_title(f"pose vector {vector + 1}", fontsize=10)
    for axes in grid[2]:
        axes.set_xlabel(f"{views.factor} (degrees)")
        axes.set_xticks(views.degrees[:: max(1, (len(views.degrees) - 1) // 4)])
    images = measured.activated.size
    return add_caption(
        figure,
        f"Thin: each of {toys} toys. Dark blue: their mean. The capsule is that of the true category; "
        f"{measured.differing} of {images} images activate another one.",
    )


def pose_trajectories(measured, class_names=None, instance=None):
    """How the pose vectors of one toy of each category move together, in the plane that keeps their distances best.

    Source: Heinsen 2019, figure 4; the points are those of `project_poses`.

    Args:
        measured: `ViewPoses`, or a sequence of them: a row each.
        class_names: titles in place of the categories' numbers.
        instance: number of the toys; None takes each category's first.

    Returns:
        A figure with a panel for each category. A view is a closed polygon whose corners are the pose vectors, the more
        opaque the later. The ring is the first vector in the first view, the disc the same one in the last.

    Raises:
        ValueError: a category has no toy of that number.

    Example:
        >>> views = Views("elevation", np.arange(30, 75, 5), np.array([2]), np.array([0]), np.arange(9)[None])
        >>> figure = pose_trajectories(ViewPoses(views, np.random.rand(1, 9, 4, 4), np.full((1, 9), 2)))
        >>> figure.axes[0].get_title()
        'category 2, by elevation'
    """
    rows = [measured] if isinstance(measured, ViewPoses) else list(measured)
    labels = np.unique(rows[0].views.labels)
    figure = new_figure(2.9 * len(labels), 3.0 * len(rows) + 0.5)
    grid = figure.subplots(len(rows), len(labels), squeeze=False)
    for line, row in zip(grid, rows, strict=True):
        for axes, label in zip(line, labels, strict=True):
            _draw_trajectory(axes, project_poses(row.poses[_toy(row.views, label, instance)]))
            name = f"category {label}" if class_names is None else shortened(class_names[label])
            axes.set_title(f"{name}, by {row.views.factor}", fontsize=10, parse_math=False)
    return add_caption(
        figure,
        "Corners: pose vectors; a polygon a view, more opaque from view to view. Ring: the first vector in the first "
        "view; disc: in the last.",
    )


def _toy(views, label, instance):
    """The row of a category's toy: the one with that number, or the first if it is None."""
    wanted = (views.labels == label) & (instance is None or views.instances == instance)
    if not wanted.any():
        raise ValueError(f"There is no instance {instance} of category {label}.")
    return wanted.argmax()


def _draw_trajectory(axes, points):
    for opacity, corners in zip(np.linspace(0.2, 1, len(points)), points, strict=True):
        closed = np.concatenate([corners, corners[:1]])
        axes.plot(*closed.T, color=COLORS[0], alpha=opacity, linewidth=1.3, solid_joinstyle="round")
    axes.plot(*points[0, 0], "o", markersize=9, markerfacecolor="none", markeredgecolor=_DARK_BLUE, markeredgewidth=1.6)
    axes.plot(*points[-1, 0], "o", markersize=9, color=_DARK_BLUE)
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.12)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_color("0.8")


def stereo_sheet(split, class_names=None, instance=None, **fixed):
    """One toy of each category from all sides, the left camera's pictures above the right one's.

    Source: Heinsen 2019, figure 9.

    Args:
        split: a `Split` with the factors of smallNORB.
        class_names: names in place of the categories' numbers.
        instance: number of the toys; None takes each category's first.
        fixed: numbers of elevation and lighting, see `find_views`.

    Returns:
        A figure with two rows a category and a column for each azimuth.

    Raises:
        ValueError: see `find_views`; or a category has no toy of that number, or images have not two channels.

    Example:
        >>> from tf_capsules import datasets
        >>> options = {"elevations": 0, "lightings": 0, "train_pairs": 1, "test_pairs": None}
        >>> toys = datasets.load("rendered_toys", size=8, **options)
        >>> len(stereo_sheet(toys.test, toys.class_names).axes)
        5
    """
    images = split.arrays["image"]
    if images.shape[-1] != 2:
        raise ValueError(f"A stereo sheet needs images of two channels. Received: {images.shape}")
    views = find_views(split.arrays, "azimuth", **fixed)
    labels = np.unique(views.labels)
    height, width = images.shape[1:3]
    count = len(views.degrees)
    figure = new_figure(12.0, (2 * 11.0 / count * height / width + 0.12) * len(labels) + 0.5)
    for axes, label in zip(figure.subplots(len(labels), 1, squeeze=False)[:, 0], labels, strict=True):
        pairs = images[views.index[_toy(views, label, instance)]]
        axes.imshow(pairs.transpose(3, 1, 0, 2).reshape(2 * height, count * width), cmap="gray", vmin=0, vmax=255)
        axes.set_yticks([height / 2, 1.5 * height], ["left", "right"], fontsize=8)
        name = f"category {label}" if class_names is None else shortened(class_names[label])
        axes.set_ylabel(name.replace(" ", "\n"), fontsize=9, parse_math=False)
        axes.set_xticks([])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    axes.set_xticks((np.arange(count) + 0.5) * width, views.degrees, fontsize=8)
    axes.set_xlabel("azimuth (degrees)")
    return figure


def accuracy_by_parameters(ours=(), published=SMALLNORB):
    """Test accuracy on smallNORB against the number of parameters.

    Source: Heinsen 2019, figure 1.

    Args:
        ours: rows (name, parameters, accuracy in percent).
        published: the same of others; by default what the paper lists.

    Returns:
        A figure with one panel.

    Example:
        >>> figure = accuracy_by_parameters([("this run", 271_688, 98.9)])
    """
    figure = _scatter(published, ours, "parameters", "log")
    (axes,) = figure.axes
    low, high = axes.get_xlim()
    ticks = [number * 10**power for power in range(3, 10) for number in (1, 2, 5)]
    axes.set_xticks([tick for tick in ticks if low <= tick <= high])
    axes.minorticks_off()
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1e6:g}M" if value >= 1e6 else f"{value / 1e3:g}K")
    return _part_names(figure)


def accuracy_by_year(ours=(), published=SST5):
    """Test accuracy on the root sentences of SST-5 against the year.

    Source: Heinsen 2019, figure 2.

    Args:
        ours: rows (name, year, accuracy in percent).
        published: the same of others; by default what the paper lists.

    Returns:
        A figure with one panel.

    Example:
        >>> figure = accuracy_by_year([("this run", 2019, 47.1)])
    """
    figure = _scatter(published, ours, "year", "linear")
    (axes,) = figure.axes
    years = [year for _, year, _ in (*published, *ours)]
    axes.set_xticks(range(min(years), max(years) + 1))
    return _part_names(figure)


def _scatter(published, ours, quantity, scale):
    figure = new_figure(7.6, 4.8)
    axes = figure.subplots()
    axes.set(xlabel=quantity, ylabel="test accuracy (%)", xscale=scale)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.margins(0.07)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    for rows, color, marker, weight in ((published, COLORS[0], "o", "normal"), (ours, COLORS[5], "D", "bold")):
        for name, x, accuracy in rows:
            axes.plot(x, accuracy, marker, color=color, markersize=7)
            axes.annotate(
                textwrap.fill(name, 28),
                (x, accuracy),
                (8, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
                fontweight=weight,
            )
    return figure


def _part_names(figure):
    """Puts each name right or left of its point, or higher, where it covers no other name or point."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.transforms import Bbox

    (axes,) = figure.axes
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer, points = canvas.get_renderer(), axes.transData.transform([text.xy for text in axes.texts])
    markers = [Bbox([point - 9, point + 9]) for point in points]
    taken = markers[:]
    for text, own in sorted(zip(axes.texts, markers, strict=True), key=lambda pair: pair[0].xy[1]):
        for lift, (side, aside) in itertools.product(range(0, 60, 3), (("left", 8), ("right", -8))):
            text.set(ha=side, position=(aside, lift))
            box = text.get_window_extent(renderer)
            inside = axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1
            if inside and not any(box.overlaps(other) for other in taken if other is not own):
                break
        taken.append(box)
    return figure
