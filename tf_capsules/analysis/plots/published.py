"""The accuracies that Heinsen 2019 lists, and pictures that show your own beside them."""

import itertools
import textwrap

from tf_capsules.analysis.plots.drawing import COLORS, bare, new_figure

# smallNORB: parameters, test accuracy in percent.
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


def draw_accuracy_by_parameters(ours=(), published=SMALLNORB):
    """Test accuracy on smallNORB against the number of parameters.

    Source: Heinsen 2019, figure 1.

    Args:
        ours: rows (name, parameters, accuracy in percent).
        published: the same for other work; by default what the paper lists.

    Example:
        >>> figure = draw_accuracy_by_parameters([("this run", 271_688, 98.9)])
    """
    axes = _scatter(published, ours, "parameters", "log")
    low, high = axes.get_xlim()
    ticks = [number * 10**power for power in range(3, 10) for number in (1, 2, 5)]
    axes.set_xticks([tick for tick in ticks if low <= tick <= high])
    axes.minorticks_off()
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1e6:g}M" if value >= 1e6 else f"{value / 1e3:g}K")
    return _part_names(axes)


def draw_accuracy_by_year(ours=(), published=SST5):
    """Test accuracy on the root sentences of SST-5 against the year.

    Source: Heinsen 2019, figure 2.

    Args:
        ours, published: see `draw_accuracy_by_parameters`, with the year for the parameters.
    """
    axes = _scatter(published, ours, "year", "linear")
    years = [year for _, year, _ in (*published, *ours)]
    axes.set_xticks(range(min(years), max(years) + 1))
    return _part_names(axes)


def _scatter(published, ours, quantity, scale):
    figure = new_figure(7.6, 4.8)
    axes = figure.subplots()
    axes.set(xlabel=quantity, ylabel="test accuracy (%)", xscale=scale)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.margins(0.07)
    bare(axes)
    for rows, color, marker, weight in ((published, COLORS[0], "o", "normal"), (ours, COLORS[5], "D", "bold")):
        options = dict(textcoords="offset points", va="center", fontsize=8, fontweight=weight)
        for name, x, accuracy in rows:
            axes.plot(x, accuracy, marker, color=color, markersize=7)
            axes.annotate(textwrap.fill(name, 28), (x, accuracy), (8, 0), **options)
    return axes


def _part_names(axes):
    """Moves each name to the right or left of its point, or higher, until it covers no other name or point."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.transforms import Bbox

    canvas = FigureCanvasAgg(axes.figure)
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
    return axes.figure
