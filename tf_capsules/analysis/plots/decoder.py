"""Pictures of reconstructions from class capsules."""

import numpy as np

from tf_capsules.analysis.decoder import OFFSETS
from tf_capsules.analysis.plots import drawing

_LOW_CONTRAST = 0.25  # with a smaller difference between darkest and brightest pixel, images look plain grey


def draw_reconstructions(measured, class_names=None):
    """A row of images above their reconstructions. Titles: label, prediction, and the class that is decoded.

    Source: Sabour et al. 2017, figure 3.

    Args:
        measured: `Reconstructions` of `measure_reconstructions`.
        class_names: a name for each class; None for numbers. A ValueError for another number. Long names are cut.
    """
    names = drawing.names_of(measured.classes, class_names)
    triples = zip(measured.labels, measured.predictions, measured.sources, strict=True)
    titles = [_joined(names, triple, "({})") for triple in triples]
    wrong = measured.predictions != measured.labels
    figure = drawing.image_grid([measured.images, measured.decoded], ["input", "reconstruction"], titles, wrong)
    note = " Bold: wrong predictions, reconstructed from the prediction and from the label." if wrong.any() else ""
    return drawing.add_caption(figure, f"Above: label, prediction, and the class whose capsule is decoded.{note}")


def draw_dimension_perturbation(images, name):
    """Reconstructions from a class capsule, with one of its dimensions changed at a time.

    Source: Sabour et al. 2017, figure 4. If they would look plain grey, contrast is stretched, and the caption says so.

    Args:
        images: (dimensions, offsets, height, width, channels) of `perturb_dimensions` with its default offsets.
        name: of the class. Long names are cut.

    Returns:
        A figure with a row for each dimension and a column for each change from -0.25 to 0.25.
    """
    text = f"Reconstructions from the capsule of class {drawing.shortened(name)}. The middle column is unchanged."
    low, high = float(images.min()), float(images.max())
    if high - low < _LOW_CONTRAST:
        images = (images - low) / (high - low or 1)
        text += f" They are almost plain grey, so the contrast is stretched: black is {low:.4g} and white {high:.4g}."
    rows, columns, height, width, channels = images.shape
    # One image of all, parted and framed by white lines one pixel wide.
    tiles = np.pad(images, [(0, 0), (0, 0), (1, 0), (1, 0), (0, 0)], constant_values=1).swapaxes(1, 2)
    mosaic = tiles.reshape(rows * (height + 1), columns * (width + 1), channels)
    mosaic = np.pad(mosaic, [(0, 1), (0, 1), (0, 0)], constant_values=1)
    axes = drawing.new_figure(8.0, 0.8 + 7.35 * mosaic.shape[0] / mosaic.shape[1]).subplots()
    drawing.show_image(axes, mosaic)
    names = [f"{offset:+.2f}" if offset else "0" for offset in OFFSETS]
    axes.set_xticks((np.arange(columns) + 0.5) * (width + 1), names)
    axes.set_yticks((np.arange(rows) + 0.5) * (height + 1), np.arange(1, rows + 1))
    axes.tick_params(length=0, labelsize=9)
    axes.set(xlabel="added to the dimension", ylabel="dimension of the capsule")
    return drawing.add_caption(axes.figure, text)


def draw_overlapping_reconstructions(measured, class_names=None):
    """Two overlapping digits, reconstructed one by one and laid over each other in two colours.

    Source: Sabour et al. 2017, figure 5. The first digit is orange and the second blue, because many colour-blind
    readers can't tell the paper's red and green apart. Where both are bright, the sum is white.

    Args:
        measured: `OverlappingReconstructions` of `measure_overlapping_reconstructions`.
        class_names: a name for each class; None for numbers. A ValueError for another number. Long names are cut.

    Returns:
        A figure with a column for each image. Its rows are the merged image, its two digits in colours, and
        reconstructions from the labels, from the predictions and from a wrong choice.
    """
    classes = drawing.names_of(measured.classes, class_names)
    rows = [measured.images, overlay(measured.parts), *map(overlay, measured.decoded)]
    names = ["input", "digits", "from\nlabels", "from\npredictions", "from a\nwrong choice"]
    titles = [_joined(classes, pair) for pair in measured.labels]
    choices = measured.labels, measured.predictions, measured.wrong
    below = [[], [], *([_joined(classes, pair) for pair in choice] for choice in choices)]
    wrong = [set(p) != set(t) for p, t in zip(measured.predictions, measured.labels, strict=True)]
    figure = drawing.image_grid(rows, names, titles, wrong, below)
    text = "Above: the labels, bold where a prediction is wrong. Under each reconstruction: the decoded classes."
    return drawing.add_caption(figure, f"{text} First orange, second blue, both together white.")


def overlay(parts):
    """Two grey images in orange and blue, added: (..., 2, height, width, channels) -> (..., height, width, 3)."""
    first, second = np.moveaxis(np.asarray(parts, "float32").mean(-1), -3, 0)[..., None]
    return np.clip(first * drawing.ORANGE + second * drawing.BLUE, 0, 1)


def _joined(names, classes, form="{}"):
    """The names of some classes: in one line if all names are as short as digits, else one below the other."""
    chosen = [names[number] for number in classes]
    return form.format(", ".join(chosen)) if max(map(len, names)) < 3 else "\n".join(chosen)
