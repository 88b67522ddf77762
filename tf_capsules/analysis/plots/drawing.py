"""What all pictures share: colours, axes, legends beside the curves, captions, grids of images."""

import textwrap

import numpy as np

# Colours that stay apart under every common kind of colour blindness (Okabe and Ito 2008), and as shades of grey.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
MARKERS = "osD^vP"  # one fewer than the colours, so that pairs of colour and marker repeat late
DARK_BLUE = "#0b2a6f"
# The colours of two overlapping objects. Many readers can't tell red from green; these two add up to white.
ORANGE, BLUE = np.array([1.0, 0.55, 0.0]), np.array([0.0, 0.45, 1.0])
LONGEST_NAME = 20  # characters of a class name in a picture
MOST_CLASSES = 12  # in a picture


def new_figure(width, height):
    """An empty figure of this size in inches."""
    from matplotlib.figure import Figure

    return Figure((width, height), dpi=150, layout="constrained")


def add_caption(figure, text):
    """Writes a text below the figure and returns the figure."""
    characters = int(figure.get_figwidth() * 13)
    figure.supxlabel("\n".join(textwrap.wrap(text, characters)), fontsize=9, color="0.25", parse_math=False)
    return figure


def add_legend(figure, where="outside right center", **options):
    """Writes one legend beside the panels, with each name once, and returns the figure."""
    named = {}
    for axes in figure.axes:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(name, handle)
    if named:
        legend = figure.legend(named.values(), named, loc=where, frameon=False, **{"fontsize": 9} | options)
        for text in legend.get_texts():
            text.set_parse_math(False)
    return figure


def add_line(axes, number, x, y, name, style="-", marker=None):
    """A line in the colour of `number`, with its marker or that of `marker`; hollow markers if it isn't solid."""
    color, marker = COLORS[number % len(COLORS)], MARKERS[(number if marker is None else marker) % len(MARKERS)]
    options = dict(color=color, marker=marker, markersize=5, markerfacecolor=color if style == "-" else "white")
    axes.plot(x, y, style, markevery=max(1, len(x) // 12), label=name, **options)


def label_axes(axes, x, y):
    """Names both axes, with whole numbers on the x-axis."""
    from matplotlib.ticker import MaxNLocator

    axes.set(xlabel=x, ylabel=y)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    first, last = axes.dataLim.intervalx
    if first == last:
        axes.set_xlim(first - 0.5, last + 0.5)
    bare(axes)


def bare(axes):
    """A light grid, and no frame above and on the right."""
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def show_at_least(axes, span, lowest=-np.inf, highest=np.inf):
    """Widens the y-axis to at least this span, so that small changes look small, within these limits."""
    low, high = axes.get_ylim()
    lack = max(0.0, span - (high - low)) / 2
    low, high = low - lack, high + lack
    below, above = max(0.0, lowest - low), max(0.0, high - highest)
    axes.set_ylim(max(lowest, low - above), min(highest, high + below))


def log_scale(axes):
    """A logarithmic y-axis of at least one power of ten, so that small changes look small."""
    from matplotlib.ticker import LogFormatterMathtext, LogLocator, NullFormatter

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    if high < 10 * low:
        middle = (low * high) ** 0.5
        low, high = axes.set_ylim(middle / 10**0.5, middle * 10**0.5)
    few = (1, 2, 5) if high < 1e4 * low else (1,)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7) if high < 100 * low else few))
    axes.yaxis.set_major_formatter(LogFormatterMathtext() if high > 1e4 * low else lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def shortened(name):
    """The name, or the beginning of a long one."""
    text = str(name)
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "\u2026"


def names_of(classes, class_names=None):
    """A short name for each class, or its number without names; a ValueError if there are not `classes` names."""
    if isinstance(class_names, (dict, set, frozenset)):
        raise ValueError(f"`class_names` has a name for each class, in their order. Received: {class_names!r}")
    if class_names is not None and len(class_names) != classes:
        raise ValueError(f"The model has {classes} classes. Received {len(class_names)} names: {class_names!r}")
    return [shortened(name) for name in (range(classes) if class_names is None else class_names)]


def counted(number, what):
    """For example "one image" or "1,000 images"."""
    return f"one {what}" if number == 1 else f"{number:,} {what}s"


def show_image(axes, image, stretched=False):
    """Shows an image without ticks: three channels in colours, any other number as their mean, in grey.

    0 is black and 1 is white; with `stretched`, the image's lowest value is black and its highest is white.
    """
    if stretched:
        image = (image - image.min()) / (np.ptp(image) or 1)
    image = np.clip(image if image.shape[-1] == 3 else image.mean(-1), 0, 1)
    axes.imshow(image, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def image_grid(rows, names, titles, bold, below=None):
    """A figure of images in named rows and titled columns; `below`: for each row [], or a text under each image."""
    count = len(titles)
    aspect = rows[0].shape[1] / rows[0].shape[2]
    below = below or [[]] * len(rows)
    texts = [titles, *below]
    longest = max(len(line) for row in texts for text in row for line in text.split("\n"))
    lines = sum(max((text.count("\n") + 1 for text in row), default=0) for row in texts)
    figure = new_figure(max(1.0, 0.1 + 0.1 * longest) * count + 1.1, aspect * len(rows) + 0.18 * lines + 0.5)
    axes = figure.subplots(len(rows), count, squeeze=False)
    for line, images, name, under in zip(axes, rows, names, below, strict=True):
        for cell, image in zip(line, images, strict=True):
            show_image(cell, image)
        for cell, text in zip(line, under, strict=False):
            cell.set_xlabel(text, fontsize=9, labelpad=2, parse_math=False)
        line[0].set_ylabel(name, rotation=0, ha="right", va="center")
    for cell, title, heavy in zip(axes[0], titles, bold, strict=True):
        cell.set_title(title, fontsize=10, fontweight="bold" if heavy else "normal", parse_math=False)
    return figure
