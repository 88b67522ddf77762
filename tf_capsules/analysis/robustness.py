"""How well networks resist adversarial images, and signs that gradients are masked."""

import itertools
import math

import numpy as np

from tf_capsules.analysis.attacks import ATTACKS, EPSILONS, checked_epsilons, checked_images, craft
from tf_capsules.analysis.inference import labels_of
from tf_capsules.layers.arguments import one_of, positive_int

GOALS = {"untargeted": "accuracy", "targeted": "success"}

# The columns of the rows of `measure_attacks`.
COLUMNS: tuple[str, ...] = ("model", "made_on", "attack", "goal", "epsilon", "steps", "images", "metric", "value")
COLUMNS += ("zero_gradient_share", "gradient_norm")


def measure_gradients(gradient, images, labels):
    """Two checks for gradient masking: the share of gradients that are exactly 0, and their mean norm.

    Source: Hinton et al. 2018, section 5.2. A network whose gradient vanishes, by rounding or by saturation, resists
    attacks along its gradient without being robust. Pixels that no unit sees count as zeros. Arguments: see `fgsm`.
    """
    gradients = gradient(images, labels).astype("float64")
    return float((gradients == 0).mean()), float(np.linalg.norm(gradients.reshape(len(gradients), -1), axis=1).mean())


def measure_attacks(
    gradients, images, labels, epsilons=EPSILONS, attacks=ATTACKS, goals=GOALS, steps=10, bounds=None, only_right=False
):
    """How several models resist attacks on the same images. Each model is attacked; all models classify the results.

    Source: Hinton et al. 2018, section 5.2 and figure 3. The measure of an untargeted attack is the accuracy that is
    left. The measure of a targeted attack is its success: each image is attacked towards each other class, and success
    is the share of images that get the wanted class, a mean over these classes.

    Args:
        gradients: dict from a model's name to its `InputGradient`.
        images, labels, bounds: see `fgsm`; the labels are the right classes.
        epsilons: see `fgsm`; 0, the unchanged images, is always measured.
        attacks, goals: one or both of "fgsm" and "bim"; one or both of "untargeted" and "targeted".
        steps: number of steps of the basic iterative method.
        only_right: attack only the images that all models classify correctly, so that all begin at the same accuracy.
            Otherwise a network with more errors on clean images looks less robust.

    Returns:
        An iterator of rows, dicts with the keys `COLUMNS`: one for each attacked model, attack, goal, epsilon and
        classifying model. "model" classified images that were made on "made_on", whose "zero_gradient_share" and
        "gradient_norm" are those of `measure_gradients`. "value" is that of "metric", "accuracy" or "success".

    Raises:
        ValueError: unknown names, epsilons, images or labels out of range, models of other classes, or no image left.

    Example:
        >>> from tf_capsules.analysis.input_gradient import InputGradient
        >>> model = keras.Sequential([keras.Input((2, 3, 1)), keras.layers.Flatten(), keras.layers.Dense(4, "softmax")])
        >>> images, labels = np.random.default_rng(0).random((5, 2, 3, 1)), np.array([0, 1, 2, 3, 0])
        >>> rows = list(measure_attacks({"dense": InputGradient(model)}, images, labels, epsilons=(0.1, 0.2)))
        >>> len(rows), rows[-1]["attack"], rows[-1]["metric"]
        (12, 'bim', 'success')
    """
    gradients = dict(gradients)
    counts = {name: gradient.classes for name, gradient in gradients.items()}
    if len(set(counts.values())) != 1 or min(counts.values()) < 2:
        raise ValueError(f"Give one or more models with the same number of classes, at least 2. Received: {counts}")
    for name, values, known in (("attacks", attacks, ATTACKS), ("goals", goals, GOALS)):
        if not values or isinstance(values, str):
            raise ValueError(f"`{name}` must have at least one of {', '.join(known)}. Received: {values!r}")
        for value in values:
            one_of(name, value, known)
    attacks, goals = dict.fromkeys(attacks), dict.fromkeys(goals)
    positive_int("steps", steps)
    given, epsilons = epsilons, sorted({*checked_epsilons(epsilons)} - {0.0})
    if not epsilons:
        raise ValueError(f"There is no epsilon above 0 to be measured. Received: {given!r}")
    images = checked_images(images, bounds)
    labels = labels_of(images, labels, min(counts.values()))
    clean = {name: gradient.classify(images) for name, gradient in gradients.items()}
    if only_right:
        right = np.all([classes == labels for classes in clean.values()], axis=0)
        if not right.any():
            raise ValueError(f"None of the {len(images)} images is classified correctly by all models.")
        images, labels = images[right], labels[right]
        clean = {name: classes[right] for name, classes in clean.items()}
    return _rows(gradients, images, labels, clean, epsilons, attacks, goals, steps, bounds)


def _rows(gradients, images, labels, clean, epsilons, attacks, goals, steps, bounds):
    for made_on, gradient in gradients.items():
        masking = measure_gradients(gradient, images, labels)
        for attack, goal in itertools.product(attacks, goals):
            targeted, index, wanted = goal == "targeted", np.arange(len(labels)), labels
            if targeted:
                index, wanted = np.nonzero(labels[:, None] != np.arange(gradient.classes))
            crafted = craft(gradient, attack, images[index], wanted, epsilons, steps, targeted, bounds)
            for epsilon in (0.0, *epsilons):
                attacked = next(crafted) if epsilon else None
                for name, judge in gradients.items():
                    hits = (judge.classify(attacked) if epsilon else clean[name][index]) == wanted
                    shares = [hits[wanted == target].mean() for target in np.unique(wanted)] if targeted else hits
                    made = name, made_on, attack, goal, epsilon, 1 if attack == "fgsm" else steps
                    row = *made, len(labels), GOALS[goal], float(np.mean(shares)), *masking
                    yield dict(zip(COLUMNS, row, strict=True))


def table(rows):
    """The rows of `measure_attacks` as lines of text: a block for each attack and goal, in percent, and the gradients.

    Each line is for the model that classified and the one that was attacked.

    >>> row = {"model": "a", "made_on": "a", "attack": "fgsm", "goal": "untargeted", "metric": "accuracy"}
    >>> row |= {"zero_gradient_share": 0.25, "gradient_norm": 1.5}
    >>> print(table([row | {"epsilon": x, "value": 1 - x} for x in (0.0, 0.1, 0.2)]))
    fgsm, untargeted: accuracy (%)
    epsilon       0    0.1    0.2
    a         100.0   90.0   80.0
    <BLANKLINE>
    gradients of a: 25.00% of the entries are 0, mean norm 1.5
    """
    rows, blocks = list(rows), {}
    if not rows:
        raise ValueError("There are no rows to show.")
    for row in rows:
        title = f"{row['attack']}, {row['goal']}: {row['metric']} (%)"
        name = row["model"] if row["made_on"] == row["model"] else f"{row['model']}, made on {row['made_on']}"
        blocks.setdefault(title, {}).setdefault(name, {})[row["epsilon"]] = row["value"]
    width = max(len(name) for lines in blocks.values() for name in (*lines, "epsilon"))
    texts = []
    for title, lines in blocks.items():
        epsilons = next(iter(lines.values()))
        texts += [title, f"{'epsilon':{width}}" + "".join(f" {epsilon:6g}" for epsilon in epsilons)]
        for name, values in lines.items():
            texts.append(f"{name:{width}}" + "".join(f" {100 * value:6.1f}" for value in values.values()))
        texts.append("")
    for row in {row["made_on"]: row for row in rows}.values():
        share, norm = row["zero_gradient_share"], row["gradient_norm"]
        texts.append(f"gradients of {row['made_on']}: {share:.2%} of the entries are 0, mean norm {norm:.3g}")
    return "\n".join(texts)


def masking_signs(rows):
    """Signs of masked gradients in the rows of `measure_attacks`, as sentences. No sign is no proof.

    Source: Hinton et al. 2018, section 5.2 (images made on another network should not fool a model better than those
    made on itself); Athalye et al. 2018, section 3.1 (one step should not do better than several). A difference counts
    if it exceeds two standard errors; a share of zeros counts from one half on.

    >>> row = {"model": "a", "made_on": "a", "attack": "fgsm", "goal": "untargeted", "epsilon": 0.1, "images": 50}
    >>> masking_signs([row | {"metric": "accuracy", "value": 0.9, "zero_gradient_share": 0.75}])
    ['a: 75.0% of the entries of its gradients are 0']
    """
    rows = list(rows)
    zeros = {row["made_on"]: row["zero_gradient_share"] for row in rows}
    said = "of the entries of its gradients are 0"
    signs = [f"{name}: {share:.1%} {said}" for name, share in zeros.items() if share >= 0.5]
    own = {_key(row): row for row in rows if row["made_on"] == row["model"]}
    for row in rows:
        model, made_on, attack, goal, epsilon = key = _key(row)
        where = f"{model}: {goal}, epsilon {epsilon:g}:"
        white = own.get((model, model, *key[2:]))
        if made_on != model and white is not None and _is_stronger(row, white):
            signs.append(f"{where} {attack} made on {made_on} {_against(row, white)} made on itself")
        several = own.get((model, model, "bim", goal, epsilon))
        if made_on == model and attack == "fgsm" and several is not None and _is_stronger(row, several):
            signs.append(f"{where} one step {_against(row, several)} by {several['steps']} steps")
    return signs


def _key(row):
    return row["model"], row["made_on"], row["attack"], row["goal"], row["epsilon"]


def _is_stronger(row, other):
    gain = other["value"] - row["value"] if row["metric"] == "accuracy" else row["value"] - other["value"]
    return gain > 2 * math.sqrt(sum(x["value"] * (1 - x["value"]) / x["images"] for x in (row, other)))


def _against(row, other):
    return f"leaves {row['metric']} at {row['value']:.1%}, against {other['value']:.1%}"
