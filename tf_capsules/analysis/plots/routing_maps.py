"""Pictures of the places from which class capsules took their votes."""

import numpy as np

from tf_capsules.analysis.plots.drawing import add_caption, names_of, new_figure, show_image


def draw_routing_maps(images, maps, probabilities, labels=None, classes=3, class_names=None):
    """From which places of each image the likeliest class capsules took their votes.

    Source: see `measure_routing_maps`. Colours span at least half an even share: small differences look small.

    Args:
        images: (batch, height, width, channels), as shown.
        maps: (batch, rows, columns, classes) of `measure_routing_maps`.
        probabilities: (batch, classes) of `predict_probabilities`; a ValueError if they, labels or names do not fit.
        labels: true classes, (batch,) or (batch, 1), or (batch, classes) with 1 for each class of an image; None:
            unknown.
        classes: number of classes shown for each image, the likeliest ones.
        class_names: a name for each class; None for numbers.

    Returns:
        A figure with a row for each image: the image, then a map for each of the classes.
    """
    names = names_of(maps.shape[-1], class_names)
    if probabilities.shape != (len(images), len(names)):
        shape = probabilities.shape
        raise ValueError(f"The model must give a probability for each of {len(names)} classes. Received: {shape}")
    labels = [()] * len(images) if labels is None else labels
    if len(labels) != len(images):
        raise ValueError(f"`labels` must name the classes of {len(images)} images. Received: {labels!r}")
    maps = np.where(maps.sum(-1, keepdims=True) > 0, maps, np.nan)  # nothing is drawn where no window looks
    percent = probabilities.min() >= 0 and probabilities.max() <= 1
    classes = min(classes, len(names))
    height, width = images.shape[1:3]
    true = [_classes_of(label, len(names)) for label in labels]
    figure = new_figure(1.7 * (classes + 1) + 0.8, (1.7 * height / width + 0.3) * len(images) + 0.6)
    axes = figure.subplots(len(images), classes + 1, squeeze=False)
    likely = [np.argsort(-row, kind="stable")[:classes] for row in probabilities]
    shown = np.concatenate([maps[i][..., chosen].ravel() for i, chosen in enumerate(likely)])
    low, high = np.nanmin(shown), np.nanmax(shown)
    lack = max(0.0, 0.5 / len(names) - (high - low)) / 2
    low, high = low - lack, high + lack
    for i, line in enumerate(axes):
        for cell in line:
            show_image(cell, images[i] if cell is line[0] else images[i].mean(-1, keepdims=True))
        line[0].set_title(", ".join(names[c] for c in true[i]), fontsize=10, parse_math=False)
        for cell, c in zip(line[1:], likely[i], strict=True):
            cell.images[0].set_alpha(0.35)
            options = dict(cmap="viridis", vmin=low, vmax=high, alpha=0.65, interpolation="nearest")
            drawn = cell.imshow(maps[i][..., c], extent=cell.images[0].get_extent(), **options)
            title = f"{names[c]} {100 * probabilities[i, c]:.0f}%" if percent else names[c]
            cell.set_title(title, fontsize=10, fontweight="bold" if c in true[i] else "normal", parse_math=False)
    bar = figure.colorbar(drawn, ax=axes, shrink=0.6, pad=0.02)
    bar.ax.set_title("share", fontsize=9)
    likeliest = f"the {classes} likeliest classes{', with their probabilities' if percent else ''}"
    text = f"Colour: the share of a place's votes that reached a class, for {likeliest}. Even routing gives "
    return add_caption(figure, f"{text}{1 / len(names):.2g}.{' Bold: a true class.' if any(map(len, true)) else ''}")


def _classes_of(label, count):
    """The classes of an image, by its label: a number, also in a row of its own, or a row of `count`."""
    row = np.asarray(label)
    if row.ndim and row.size in (0, count):
        return np.flatnonzero(row)
    if row.size != 1:
        raise ValueError(f"A label is the number of a class, or a row with 1 for some of {count}. Received: {label!r}")
    return row.reshape(-1)
