"""A picture of a sentence and of which class each token speaks for."""

import numpy as np

from tf_capsules.analysis.plots.drawing import MOST_CLASSES, add_caption, new_figure, shortened


def draw_sentence_attribution(tokens, shares, class_names, probabilities):
    """A sentence, and how much of each token goes to each class: in each layer, and as the mean over the layers.

    Source: see `class_shares`. White is an even share, 1 / classes. Colours span at least a tenth of it on both sides.

    Args:
        tokens: a sequence of str, as `FrozenTransformer.tokens` gives them.
        shares: (tokens, layers, classes), of this sentence and without padding.
        class_names: a name for each class. A ValueError if the arguments do not fit each other.
        probabilities: (classes,), those that the model gives the sentence.

    Returns:
        A figure that names the predicted class. Above: a column for each token and a row for each class (at most the 12
        most probable), means over the layers. Below: the predicted class, with a row for each layer of the transformer,
        the lowest at the bottom. The colour of a token shows its share for this class.

    Example:
        >>> shares = np.random.dirichlet(np.ones(3), (4, 7))
        >>> names, probabilities = ["bad", "fair", "good"], [0.1, 0.2, 0.7]
        >>> figure = draw_sentence_attribution("a fine film .".split(), shares, names, probabilities)
        >>> figure.get_suptitle()
        'good, with probability 70.0%'
    """
    shares, probabilities = np.asarray(shares), np.asarray(probabilities)
    wanted = (len(tokens), *shares.shape[1:2], len(class_names))
    if shares.ndim != 3 or not shares.size or shares.shape != wanted or probabilities.shape != wanted[2:]:
        received = f"{shares.shape} and {probabilities.shape}, {len(tokens)} tokens and {len(class_names)} class names"
        raise ValueError(f"Shares are (tokens, layers, classes), probabilities (classes,). Received shapes {received}.")
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import TwoSlopeNorm
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    count, depth, classes = shares.shape
    best, even, means = int(probabilities.argmax()), 1 / classes, shares.mean(1)
    shown = np.sort(np.argsort(-probabilities, kind="stable")[:MOST_CLASSES])
    spread = max(float(np.abs(shares - even).max()), 0.1 * even)
    highest = max(min(1.0, even + spread), 1.01 * even)  # above the middle, also for a single class
    colors = ScalarMappable(TwoSlopeNorm(even, max(0.0, even - spread), highest), "PuOr_r")

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
        axes.tick_params(which="both", length=0, labelbottom=False)
        axes.set_xticks(np.arange(1, count) - 0.5, minor=True)
        axes.grid(which="minor", axis="x", color="white", linewidth=0.8)
    top.tick_params(axis="x", labeltop=True)
    top.set_xticks(np.arange(count), labels, rotation=0 if lying else 90, fontsize=10, parse_math=False)
    for label, patch in zip(top.get_xticklabels(), colors.to_rgba(means[:, best]), strict=True):
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
    title = f"{class_names[best]}, with probability {probabilities[best]:.1%}"
    figure.suptitle(title, fontweight="bold", parse_math=False)
    above = "Above: what goes to each class, the mean over the layers of the transformer."
    below = "Below, and as the colour of the tokens: what goes to the predicted class."
    return add_caption(figure, f"{above} {below} White: an even share, {even:.1%}.")


def _printable(token):
    """A token as a picture can show it: on one line. A token of white space alone is made visible."""
    text = token.strip() or token.replace(" ", "\u2423")
    text = "".join(character if character.isprintable() else "\ufffd" for character in text)
    return shortened(text)
