"""What all figures are drawn with."""

import textwrap

import numpy as np

# Colours that stay apart under every common kind of colour blindness (Okabe and Ito 2008), and as shades of grey.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
MARKERS = "osD^vPX"

LONGEST_NAME = 20  # characters of a class in a picture


def new_figure(width, height):
    from matplotlib.figure import Figure

    return Figure((width, height), dpi=150, layout="constrained")


def add_caption(figure, text):
    characters = int(figure.get_figwidth() * 13)
    figure.supxlabel("\n".join(textwrap.wrap(text, characters)), fontsize=9, color="0.25", parse_math=False)
    return figure


def shortened(name):
    text = str(name)
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "\u2026"


def image_grid(rows, names, titles, bold, below=None):
    """Rows of images with a name each, a title above each column, and under some rows a text under each image."""
    count = len(titles)
    aspect = rows[0].shape[1] / rows[0].shape[2]
    below = [[] if texts is None else texts for texts in below or [None] * len(rows)]
    texts = [titles, *below]
    longest = max(len(line) for row in texts for text in row for line in text.split("\n"))
    lines = sum(max((text.count("\n") + 1 for text in row), default=0) for row in texts)
    figure = new_figure(max(1.0, 0.1 + 0.1 * longest) * count + 1.1, aspect * len(rows) + 0.18 * lines + 0.5)
    axes = figure.subplots(len(rows), count, squeeze=False)
    for line, images, name in zip(axes, rows, names, strict=True):
        for cell, image in zip(line, images, strict=True):
            show_image(cell, image)
            cell.set(xticks=[], yticks=[])
        line[0].set_ylabel(name, rotation=0, ha="right", va="center")
    for cell, title, heavy in zip(axes[0], titles, bold, strict=True):
        cell.set_title(title, fontsize=10, fontweight="bold" if heavy else "normal", parse_math=False)
    for line, under in zip(axes, below, strict=True):
        for cell, text in zip(line, under, strict=False):
            cell.set_xlabel(text, fontsize=9, labelpad=2, parse_math=False)
    return figure


def show_image(axes, image):
    """An image of one channel in grey, of three in colours; of any other number its channels' mean."""
    image = np.clip(image if image.shape[-1] == 3 else image.mean(-1), 0, 1)
    axes.imshow(image, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.spines[:].set_visible(False)
