"""Pictures of adversarial images and of how well networks resist them."""

import numpy as np

from tf_capsules.analysis.attacks import ATTACKS
from tf_capsules.analysis.plots import drawing
from tf_capsules.analysis.robustness import GOALS


def draw_robustness(rows, units="units of the input"):
    """Accuracy under untargeted attacks, and success of targeted ones, against epsilon.

    Source: Hinton et al. 2018, figure 3.

    Args:
        rows: of `measure_attacks`; a ValueError if there are none.
        units: the unit of epsilon, for the axis.

    Returns:
        A figure with a row of panels for each goal and a column for each attack. A line's colour says which model
        classifies. Solid lines are white-box attacks. A dashed line's marker says which model was attacked.
    """
    rows = list(rows)
    if not rows:
        raise ValueError("There are no rows to show.")
    curves = {}
    for row in rows:
        curves.setdefault((row["goal"], row["attack"], row["model"], row["made_on"]), []).append(row)
    goals, attacks, models = ([*dict.fromkeys(row[key] for row in rows)] for key in ("goal", "attack", "model"))
    short = {model: drawing.shortened(model) for model in models}
    names = short if len(set(short.values())) == len(models) else {model: str(model) for model in models}
    figure = drawing.new_figure(4.6 * len(attacks) + 0.6, 3.5 * len(goals) + 1.1)
    grid = figure.subplots(len(goals), len(attacks), sharex=True, sharey="row", squeeze=False)
    for (goal, attack, model, made_on), points in curves.items():
        axes = grid[goals.index(goal), attacks.index(attack)]
        x, y = ([point[key] for point in points] for key in ("epsilon", "value"))
        style, name = "-", names[model]
        if made_on != model:
            style, name = "--", f"{name}, made on {names[made_on]}"
        drawing.add_line(axes, models.index(model), x, 100 * np.array(y), name, style, models.index(made_on))
    for above, below, attack in zip(grid[0], grid[-1], attacks, strict=True):
        above.set_title(ATTACKS[attack], fontsize=11)
        below.set_xlabel(f"epsilon ({units})")
    for line, goal in zip(grid, goals, strict=True):
        line[0].set(ylabel=f"{GOALS[goal]} (%), {goal}", ylim=(-3, 103))
    for axes in grid.flat:
        drawing.bare(axes)
    drawing.add_legend(figure, "outside upper center", ncols=min(len(attacks), len(models)))
    images = drawing.counted(rows[0]["images"], "image").capitalize()
    text = f"{images}. Solid: attacks along the gradients of the model that is judged."
    if len(models) > 1:
        text += " Dashed: along those of another model; the marker says which."
    return drawing.add_caption(figure, text)


def draw_attacked_images(measured, class_names=None):
    """Some images under a growing untargeted attack, and the classes that the attacked model predicts.

    Args:
        measured: `AttackedImages` of `measure_attacked_images`.
        class_names: a name for each class; None for numbers. A ValueError for another number of names.

    Returns:
        A figure with a row for the unchanged images and one for each epsilon.
    """
    names = drawing.names_of(measured.classes, class_names)
    pictures, labels = measured.images, measured.labels
    # Standardized values have no bounds: they are shown in the range of all pictures of an image.
    limits = (limit(pictures, (0, 2, 3, 4), keepdims=True) for limit in (np.min, np.max))
    low, high = limits if measured.bounds is None else measured.bounds
    figure = drawing.image_grid(
        (pictures - low) / np.maximum(high - low, 1e-37),
        ["clean", *(f"{epsilon:g}" for epsilon in measured.epsilons[1:])],
        [names[label] for label in labels],
        [False] * len(labels),
        [[names[found] for found in row] for row in measured.predictions],
    )
    for axes, wrong in zip(figure.axes, (measured.predictions != labels).flat, strict=True):
        axes.xaxis.label.set_color(drawing.COLORS[5] if wrong else "black")
    text = "epsilon on the left. Above: the label. Below: the prediction, orange if wrong."
    return drawing.add_caption(figure, f"{ATTACKS[measured.attack].capitalize()}, {text}")
