"""Published accuracies on smallNORB, and a picture that shows your own beside them."""

import itertools
import textwrap

from tf_capsules.analysis.plots.drawing import COLORS, add_legend, bare, new_figure

# smallNORB: parameters, test accuracy in percent.
SMALLNORB = (
    ("Sabour et al. 2017", 8_200_000, 97.3),
    ("Cireşan et al. 2011, extensive image processing", 2_700_000, 97.4),
    ("Hinton et al. 2018", 310_000, 98.2),
    ("Hinton et al. 2018, mean of several crops", 310_000, 98.6),
    ("Heinsen 2019", 273_000, 99.1),
    ("Mazzia et al. 2021", 151_664, 98.23),
)


def draw_accuracy_by_parameters(ours=(), published=SMALLNORB):
    """Test accuracy on smallNORB against the number of parameters.

    Source: Heinsen 2019, figure 1.

    Args:
        ours: rows (name, parameters, accuracy in percent).
        published: the same for other work; by default what the paper lists, and Mazzia et al. 2021.

    Example:
        >>> figure = draw_accuracy_by_parameters([("this run", 271_688, 98.9)])
    """
    axes = new_figure(7.6, 4.8).subplots()
    axes.set(xlabel="parameters", ylabel="test accuracy (%)", xscale="log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.margins(0.07)
    bare(axes)
    groups = ("published", published, COLORS[0], "o", "normal"), ("here", ours, COLORS[5], "D", "bold")
    for group, rows, color, marker, weight in groups:
        line = dict(arrowstyle="-", color="0.5", linewidth=0.7, shrinkA=0, shrinkB=4)
        options = dict(textcoords="offset points", va="center", fontsize=8, fontweight=weight, arrowprops=line)
        for number, (name, parameters, accuracy) in enumerate(rows):
            label = None if number else group
            axes.plot(parameters, accuracy, marker, color=color, markersize=7, linestyle="none", label=label)
            text = axes.annotate(textwrap.fill(name, 23), (parameters, accuracy), (8, 0), **options)
            text.set_in_layout(False)  # the axes must not shrink where a name has been put
    add_legend(axes.figure, "outside lower left", ncols=2)
    low, high = axes.get_xlim()
    ticks = [number * 10**power for power in range(3, 10) for number in (1, 2, 5)]
    axes.set_xticks([tick for tick in ticks if low <= tick <= high])
    axes.minorticks_off()
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1e6:g}M" if value >= 1e6 else f"{value / 1e3:g}K")
    return _part_names(axes)


def _part_names(axes):
    """Moves each name beside its point, higher or lower, until it covers no name or point; lines lead to far ones."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text
    from matplotlib.transforms import Bbox

    canvas = FigureCanvasAgg(axes.figure)
    canvas.draw()
    renderer, points = canvas.get_renderer(), axes.transData.transform([text.xy for text in axes.texts])
    markers = [Bbox([point - 9, point + 9]) for point in points]
    taken = markers[:]
    for text, own in sorted(zip(axes.texts, markers, strict=True), key=lambda pair: pair[0].xy[1]):
        lifts = sorted(range(-150, 151, 3), key=abs)
        for lift, (side, aside) in itertools.product(lifts, (("left", 8), ("right", -8))):
            text.set(ha=side, position=(aside, lift))
            box = Text.get_window_extent(text, renderer)  # without the line
            inside = all(axes.bbox.contains(*corner) for corner in box.get_points())
            if inside and not any(box.overlaps(other) for other in taken if other is not own):
                break
        text.arrow_patch.set_visible(abs(lift) > 15)
        taken.append(box)
    return axes.figure
