"""A parse tree of an image: which capsules each class took, and from which places of the image these came."""

import dataclasses

import keras
import numpy as np
from keras import ops

from tf_capsules.analysis.drawing import add_caption, new_figure, shortened, show_image
from tf_capsules.analysis.figures import ORANGE
from tf_capsules.analysis.measures import chain_couplings, in_batches, to_numpy
from tf_capsules.layers import ConcurrentRouting, HeinsenRouting
from tf_capsules.layers.connections import children_of, on_grid
from tf_capsules.models import class_probabilities


@dataclasses.dataclass(frozen=True)
class Level:
    """The children of a routing layer.

    Attributes:
        layer: name of the routing above them.
        shares: of what a child sends up, that which reaches each class, (rows, columns, types, classes) for children on
            a grid, else (children, classes); over the classes they sum to 1, or are 0 where no window looks.
        weights: how much each child sends up, shaped like `shares` without the classes: its activation, if it has one,
            times the sum of its couplings on all ways up, more than 1 where several windows each take all of it.
        couplings: to the capsules of the layer above, shaped like `shares` with parents in place of classes; None for a
            convolutional layer.
    """

    layer: str
    shares: np.ndarray
    weights: np.ndarray
    couplings: np.ndarray | None

    def places(self, values):
        """The mean of values (rows, columns, types, ...) over the types of a place, by what they count."""
        weights = self.weights[..., None]
        total = weights.sum(2)
        return np.divide((values * weights).sum(2), total, out=np.zeros_like(values[:, :, 0]), where=total > 0)

    @property
    def map(self):
        """Of what the capsules at a place send up, the share that reaches each class, (rows, columns, classes)."""
        return self.places(self.shares)


def measure_parse_tree(model, image):
    """What each class took of the capsules below, layer by layer.

    The couplings are those of the last iteration, where layers are routed concurrently those that the class capsules
    were made in; shares are followed through all layers, as in `measure_routing_maps`. They say where votes went, and
    not what the class gained by them.

    Args:
        model: a `CapsuleClassifier` on images with routing layers of any kind from its primary capsules to its classes,
            one above the other.
        image: (height, width, channels), as the model takes it.

    Returns:
        A `Level` for each routing layer, the highest first.

    Raises:
        ValueError: a model without such layers, or an image of another shape.

    Example:
        >>> from tf_capsules.models.heinsen2019 import ImageCapsNet
        >>> levels = measure_parse_tree(ImageCapsNet(), np.zeros((96, 96, 2)))
        >>> [(level.layer, level.shares.shape) for level in levels]
        [('classes', (64, 5)), ('parts', (9, 9, 64, 5))]
    """
    if getattr(model, "encoder", None) is None:
        raise ValueError(f"A parse tree is that of a CapsuleClassifier. Received: {model!r}")
    if isinstance(model.encoder.input, dict):
        raise ValueError(f"Parse trees are of images; of texts see `sentence_attribution`. Received: {model!r}")
    (inputs,) = in_batches(model, np.asarray(image)[None], 1)
    levels, held = [], None
    for layer, children, couplings in reversed(_routings(model, inputs)):
        shape = tuple(children[0].shape[1:4]) if on_grid(children[0].shape) else (children_of(children[0].shape),)
        if held is not None and held.shape[0] != np.prod(couplings.shape[1:-2], initial=1) * couplings.shape[-1]:
            raise ValueError(f"The capsules above the layer {layer.name!r} are not those that it routes to.")
        if couplings.ndim == 3:
            shares, own = couplings[0] if held is None else couplings[0] @ held, couplings[0]
        else:
            upward = couplings[0].reshape(-1, *couplings.shape[3:])
            upward = upward if held is None else upward @ held.reshape(len(upward), couplings.shape[4], -1)
            classes = [to_numpy(layer.windows.scatter(ops.convert_to_tensor(upward[..., c])))[0].ravel() for c in
                       range(upward.shape[-1])]  # fmt: skip
            shares, own = np.stack(classes, axis=-1), None
        held, total = shares, shares.sum(-1, keepdims=True)
        shares = np.divide(shares, total, out=np.zeros_like(shares), where=total > 0)
        weights = np.ones(shape, "float32")
        if len(children) > 1:
            weights = to_numpy(ops.sigmoid(children[1]) if isinstance(layer, HeinsenRouting) else children[1])[0]
        own = None if own is None else own.reshape(*shape, -1)
        weights = weights.reshape(shape) * total.reshape(shape)
        levels.append(Level(layer.name, shares.reshape(*shape, -1), weights, own))
    return levels


def _routings(model, inputs):
    """The routing layers of a network, the lowest first, with what each takes, a tuple, and its last couplings."""
    network, found = model.encoder, []
    for layer in network.layers:
        if not isinstance(layer, ConcurrentRouting) and not hasattr(layer, "_couplings_shape") and not isinstance(
            layer, HeinsenRouting
        ):  # fmt: skip
            continue
        below = keras.Model(network.input, keras.tree.flatten(layer.input))(inputs, training=False)
        below = tuple(below) if isinstance(below, (tuple, list)) else (below,)
        if isinstance(layer, ConcurrentRouting):
            found += chain_couplings(layer, below)
        else:
            found.append((layer, below, to_numpy(layer(*below, return_couplings=True)[-1])))
    if not found:
        raise ValueError(f"The model {model.name!r} has no routing layer.")
    return found


def draw_parse_tree(model, image, inputs=None, classes=3, parts=3, class_names=None):
    """An image, the likeliest classes, and below each the capsules and places that it took, layer by layer.

    Source: see `measure_parse_tree`, whose numbers these are.

    Args:
        model: see there.
        image: (height, width, channels), as it is to be seen.
        inputs: the same as the model takes it, where it is preprocessed; None: the image.
        classes: how many classes are shown, the likeliest ones.
        parts: for capsules that are on no grid, how many of each class, those that gave it the most.
        class_names: a name for each class; None for numbers.

    Returns:
        A figure with a column for each class. A picture of a layer on a grid shows how much of what each place sent up
        reached the class; where capsules on no grid lie between, those that gave the class the most, and their places.
        Places are drawn as equal parts of the image, which a capsule's window is not exactly.

    Raises:
        ValueError: see `measure_parse_tree`; names that do not fit the model; more than one layer without a grid.

    Example:
        >>> from tf_capsules.models.heinsen2019 import ImageCapsNet
        >>> figure = draw_parse_tree(ImageCapsNet(), np.zeros((96, 96, 2)))
        >>> len(figure.axes)
        13
    """
    inputs = image if inputs is None else inputs
    levels = measure_parse_tree(model, inputs)
    count = levels[0].shares.shape[-1]
    if class_names is not None and len(class_names) != count:
        raise ValueError(f"The model has {count} classes. Received {len(class_names)} names: {class_names!r}")
    names = [shortened(name) for name in (range(count) if class_names is None else class_names)]
    scores = to_numpy(class_probabilities(model, model(np.asarray(inputs, "float32")[None], training=False)))[0]
    likely = np.argsort(-scores, kind="stable")[: min(classes, count)]
    grids = [level for level in levels if level.shares.ndim == 4]
    flat = [level for level in levels if level.shares.ndim == 2]
    if len(flat) > 1 or (flat and (len(grids) != 1 or grids[0].couplings is None)):
        raise ValueError("A picture has room for one layer of capsules that are on no grid, above one that is on one.")
    return (_draw_parts if flat else _draw_grids)(image, levels, likely, names, scores, parts)


def _draw_grids(image, levels, likely, names, scores, parts):
    cells = [(f"{level.layer}\ntook from", level.map, [(c, None) for c in likely]) for level in levels]
    return _draw_rows(
        image,
        cells,
        [f"{names[c]}: {scores[c]:.0%}" for c in likely],
        "Under each class the layers that its votes came through, the highest first. The more orange a place, the more "
        "of what its capsules sent up reached the class; on the left from which share to which",
    )


def _draw_parts(image, levels, likely, names, scores, parts):
    above, below = levels
    taken = above.weights[:, None] * above.couplings
    taken = taken / np.maximum(taken.sum(0), 1e-30)  # what share of a class came from each part
    chosen = [(p, f"part {p}: {taken[p, c]:.0%}") for c in likely for p in np.argsort(-taken[:, c])[:parts]]
    cells = [
        ("all parts\ntook from", below.map, [(c, None) for c in likely]),
        ("each part\ntook from", below.places(below.couplings), chosen),
    ]
    return _draw_rows(
        image,
        cells,
        [f"{names[c]}: {scores[c]:.0%}" for c in likely],
        "The more orange a place, the more of what its capsules sent up reached the class through all parts or, below, "
        "one of those that gave the class the most (above them: what share of all that it took); on the left from "
        "which share to which",
    )


def _draw_rows(image, cells, titles, text):
    """The image as the root, and rows of (name, map, one (number, title) for each picture) below it, joined by lines.

    A map is (rows, columns, capsules), of shares. The titles are those of the first row.
    """
    from matplotlib.patches import ConnectionPatch

    low, high = image.min(), image.max()
    shown = (image - low) / (high - low or 1)
    columns = max(len(chosen) for _, _, chosen in cells)
    heights = [1.5] + [2.0 if len(chosen) == len(titles) else 1.2 for _, _, chosen in cells]
    figure = new_figure(max(1.1 * columns, 2.0 * len(titles)) + 1.6, sum(heights) + 0.2 * len(heights) + 0.7)
    grid = figure.add_gridspec(1 + len(cells), columns, height_ratios=heights)
    above = [figure.add_subplot(grid[0, :])]
    show_image(above[0], shown)
    for row, (name, values, chosen) in enumerate(cells, start=1):
        drawn = values[..., [number for number, _ in chosen]]
        seen = values.sum(-1) > 0  # where some window looks
        least, most = drawn[seen].min(), drawn[seen].max()
        # Routing that makes hardly a difference is to look like it.
        span = max(most - least, 0.5 / values.shape[-1])
        width, axes = columns // len(chosen), []
        for number, (_, title) in enumerate(chosen):
            cell = figure.add_subplot(grid[row, number * width : (number + 1) * width])
            show_image(cell, shown)
            extent = (-0.5, image.shape[1] - 0.5, image.shape[0] - 0.5, -0.5)
            strength = 0.85 * np.clip((drawn[..., number] - least) / span, 0, 1) * seen
            colors = np.broadcast_to(ORANGE, (*strength.shape, 3))
            cell.imshow(np.dstack([colors, strength]), extent=extent, interpolation="nearest")
            title = titles[number] if title is None and row == 1 else title
            if title is not None:
                heavy = "bold" if row == 1 and not number else "normal"
                cell.set_title(title, fontsize=10 if row == 1 else 8, fontweight=heavy, parse_math=False)
            line = ConnectionPatch(
                (0.5, 0),
                (0.5, 1.16 if title and row == 1 else 1.26 if title else 1),
                "axes fraction",
                "axes fraction",
                axesA=above[number * len(above) // len(chosen)],
                axesB=cell,
            )
            line.set(color="0.6", linewidth=1.2)
            figure.add_artist(line)
            axes.append(cell)
        ends = [f"{round(100 * x, 1):g}%" for x in (least, most, 1 / values.shape[-1])]
        label = "{}\n{} to {}\n({} if even)".format(name.replace("_", " "), *ends)
        axes[0].set_ylabel(label, fontsize=8, rotation=0, ha="right", va="center")
        above = axes
    for cell in figure.axes:
        cell.set(xticks=[], yticks=[])
    return add_caption(figure, f"{text}.")
