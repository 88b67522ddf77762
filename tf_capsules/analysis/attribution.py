"""Which inputs speak for which class: the couplings of two routings, followed from the inputs to the classes."""

import functools

import keras
import numpy as np
from keras import ops

from tf_capsules.analysis.drawing import add_caption, new_figure
from tf_capsules.layers import HeinsenRouting, SequenceCapsules

_MOST_CLASSES = 12  # in a picture
_LONGEST_TOKEN = 20  # characters in a picture


def routings(model):
    """The Heinsen routings "parts", where there is one, and "classes" of a network's encoder; () if it has others.

    >>> from tf_capsules.models.heinsen2019 import TextCapsNet
    >>> [layer.name for layer in routings(TextCapsNet(7, 384, 5))]
    ['parts', 'classes']
    """
    layers = {layer.name: layer for layer in getattr(getattr(model, "encoder", None), "layers", ())}
    found = [layers[name] for name in ("parts", "classes") if name in layers]
    return tuple(found) if "classes" in layers and all(isinstance(layer, HeinsenRouting) for layer in found) else ()


def class_shares(model, inputs, return_outputs=False):
    """The share of each input capsule that goes to each class, through all routings.

    Source: Heinsen 2019, section 2: a routing hands on a share F_i R_ij of child i's data to parent j, and sum_j R_ij
    is 1. So child i gives class k the share F_i sum_j R1_ij R2_jk, which sums over the classes to the child's
    activation F_i. That follows the couplings only, and is ours; what a class gains or pays for a share is in its
    betas.

    Args:
        model: one of the capsule networks of Heinsen 2019, or another `CapsuleClassifier` whose encoder ends in the
            layers "parts" and "classes", or in "classes" alone, all `HeinsenRouting`.
        inputs: what the model is called with.
        return_outputs: also return the model's outputs, which come with the couplings at no further cost.

    Returns:
        (batch, tokens, layers, classes) for texts, 0 where they are masked; (batch, rows, columns, types, classes) for
        images; with `return_outputs` a pair of the outputs, a dict, and these. In at least float32. It works within
        compiled functions, too.

    Raises:
        ValueError: the model has no such layers.

    Example:
        >>> from tf_capsules.models.heinsen2019 import TextCapsNet
        >>> states = {"embeddings": np.zeros((2, 11, 7, 384)), "mask": np.ones((2, 11))}
        >>> class_shares(TextCapsNet(7, 384, 5), states).shape
        TensorShape([2, 11, 7, 5])
    """
    layers = routings(model)
    if not layers:
        raise ValueError(
            'Shares are those of a CapsuleClassifier whose encoder has a HeinsenRouting layer "classes", and before '
            f'it at most "parts". Received: {model!r}'
        )
    poses, first_scores = keras.Model(model.encoder.input, layers[0].input)(inputs, training=False)
    scores, couplings = first_scores, []
    for layer in layers:
        poses, scores, variances, last = layer(poses, scores, return_couplings=True)
        couplings.append(last)
    activations = ops.sigmoid(ops.cast(ops.reshape(first_scores, ops.shape(couplings[0])[:2]), last.dtype))
    shares = activations[..., None] * functools.reduce(ops.matmul, couplings)
    shape = ops.shape(first_scores)
    capsules = next((layer for layer in model.encoder.layers if isinstance(layer, SequenceCapsules)), None)
    if capsules is not None:
        depth = capsules.depth.shape[0]
        shape = (shape[0], shape[1] // depth, depth)
    shares = ops.reshape(shares, (*shape, ops.shape(shares)[-1]))
    outputs = {"activations": scores, "poses": poses, "variances": variances}
    return (outputs, shares) if return_outputs else shares


def sentence_attribution(tokens, shares, class_names, probabilities):
    """A sentence, and how much of each token goes to which class: in every layer, and on the mean over the layers.

    Source: the shares are those of `class_shares`. Colours are centred at an even share, 1 / classes.

    Args:
        tokens: a sequence of str, as `FrozenTransformer.tokens` gives them.
        shares: (tokens, layers, classes), of this sentence and without padding.
        class_names: a name for each class.
        probabilities: (classes,), those that the model gives the sentence.

    Returns:
        A figure that names the predicted class. Above, a column a token and a row a class (of more than 12 the most
        probable): means over the layers. Below, the predicted class: a column a token and a row a layer of the
        transformer, the lowest at the bottom. The tokens have the colour of the predicted class.

    Raises:
        ValueError: arguments that do not fit each other.

    Example:
        >>> shares = np.random.dirichlet(np.ones(3), (4, 7))
        >>> figure = sentence_attribution("a fine film .".split(), shares, ["bad", "fair", "good"], [0.1, 0.2, 0.7])
        >>> figure.get_suptitle()
        'good, with probability 70.0%'
    """
    shares, probabilities = np.asarray(shares), np.asarray(probabilities)
    wanted = (len(tokens), *shares.shape[1:2], len(class_names))
    if shares.ndim != 3 or not shares.size or shares.shape != wanted or probabilities.shape != wanted[2:]:
        raise ValueError(
            "One sentence has shares (tokens, layers, classes) and probabilities (classes,). Received shapes "
            f"{shares.shape} and {probabilities.shape}, {len(tokens)} tokens and {len(class_names)} class names."
        )
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import TwoSlopeNorm
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    count, depth, classes = shares.shape
    best, even, means = int(probabilities.argmax()), 1 / classes, shares.mean(1)
    shown = np.sort(probabilities.argsort()[::-1][:_MOST_CLASSES])
    # Differences below half a percent are rather noise than colours.
    spread = max(float(np.abs(shares - even).max()), 0.005)
    colors = ScalarMappable(TwoSlopeNorm(even, max(0.0, even - spread), min(1.0, even + spread)), colormaps["PuOr_r"])

    labels = [_printable(token) for token in tokens]
    column = 0.2 + 0.085 * max(map(len, labels))  # inches
    lying = column * count <= 12
    column = max(column, 0.6) if lying else 0.25
    beside = 2.0 + 0.08 * max(len(str(class_names[number])) for number in shown)
    above = 0.3 if lying else 0.15 + 0.085 * max(map(len, labels))
    width = max(column * count + beside, 7.0)
    row = 0.24 * np.clip(width / 12, 1, 1.6)
    heights = row * len(shown), depth * np.clip(3 / depth, 0.12, 1.2 * row)
    figure = new_figure(width, sum(heights) + above + 1.4)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=heights)
    options = dict(cmap=colors.cmap, norm=colors.norm, aspect="auto", interpolation="nearest")
    top.imshow(means[:, shown].T, **options)
    bottom.imshow(shares[..., best].T, origin="lower", **options)

    for axes in (top, bottom):
        axes.spines[:].set_visible(False)
        axes.tick_params(which="both", length=0)
        axes.set_xticks(np.arange(1, count) - 0.5, minor=True)
        axes.grid(which="minor", axis="x", color="white", linewidth=0.8)
    top.tick_params(axis="x", labeltop=True, labelbottom=False)
    bottom.tick_params(axis="x", labelbottom=False)
    top.set_xticks(np.arange(count), labels, rotation=0 if lying else 90, fontsize=10, parse_math=False)
    patches = colors.to_rgba(means[:, best])
    for label, patch in zip(top.get_xticklabels(), patches, strict=True):
        bright = patch[:3] @ (0.299, 0.587, 0.114) > 0.5
        label.set(color="black" if bright else "white")
        label.set_bbox({"facecolor": patch, "edgecolor": "none", "boxstyle": "round,pad=0.25"})
    top.set_yticks(np.arange(len(shown)), [str(class_names[number]) for number in shown], parse_math=False)
    top.get_yticklabels()[shown.tolist().index(best)].set_fontweight("bold")
    bottom.yaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
    bottom.set_ylabel("layer")
    bar = figure.colorbar(colors, ax=[top, bottom], label="share that goes to a class", aspect=25, pad=0.02)
    bar.ax.yaxis.set_major_formatter(PercentFormatter(1))
    bar.outline.set_visible(False)
    figure.suptitle(
        f"{class_names[best]}, with probability {probabilities[best]:.1%}", fontweight="bold", parse_math=False
    )
    return add_caption(
        figure,
        "Above: what goes to each class, the mean over the layers of the transformer. Below, and as the colour of the "
        f"tokens: what goes to the predicted class. White: an even share, {even:.1%}.",
    )


def _printable(token):
    """A token as a picture can show it: on one line, white space made visible where it is all there is."""
    text = token.strip() or token.replace(" ", "\u2423")
    text = "".join(character if character.isprintable() else "\ufffd" for character in text)
    return text if len(text) <= _LONGEST_TOKEN else text[: _LONGEST_TOKEN - 1] + "\u2026"
