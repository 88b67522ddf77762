"""Adversarial images: the fast gradient sign and the basic iterative method, and how well networks resist them.

Epsilon is the most by which any value of an image is changed, in the units of the network's input: shares of the pixel
range where a recipe feeds images in [0, 1], standard deviations of an image, or of each of its channels, where it
standardizes them.

First what is measured, as NumPy arrays and rows; then the figures, each a `matplotlib.figure.Figure`.
"""

import math
import numbers

import keras
import numpy as np
from keras import ops

from tf_capsules.analysis.drawing import COLORS, MARKERS, add_caption, image_grid, new_figure, shortened
from tf_capsules.analysis.measures import check_labels, in_batches, to_numpy
from tf_capsules.datasets import augment
from tf_capsules.layers.arguments import one_of, positive_int
from tf_capsules.models import class_scores
from tf_capsules.routing.precision import at_least_float32

EPSILONS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4)
ATTACKS = {"fgsm": "fast gradient sign method", "bim": "basic iterative method"}
GOALS = {"untargeted": "accuracy", "targeted": "success"}
LOSSES = ("crossentropy", "trained")

# Of the rows of `measure_attacks`.
COLUMNS: tuple[str, ...] = ("model", "made_on", "attack", "goal", "epsilon", "steps", "images", "metric", "value")
COLUMNS += ("zero_gradient_share", "gradient_norm")

_TINY = 1e-37  # its inverse is a finite float32, too
_HALF_STEP = 2.0**-24  # from 1 down to the next float32


class InputGradient:
    """The gradient of a network's loss with respect to its input images, compiled once.

    Source: Goodfellow et al. 2015, section 4 (the loss of the right class); Hinton et al. 2018, section 5.2.

    "crossentropy" is that of the softmax, for networks of all kinds. For a plain classifier it is `-log p_t` of its
    class probabilities p. Capsule activations a are no distribution: each is a probability of its own, that its class
    is present. So their log odds, `log(a / (1 - a))`, are what corresponds to a CNN's logits, in which the softmax is
    taken; they rank the classes as the network does, and their slope does not vanish where squashing or the logistic
    function is flat. No loss is the strongest everywhere: try a claim that a network is robust with a second
    one. Dividing the activations by their sum instead wastes the step on raising all other capsules alike: a network so
    attacked looks robust and is not.

    "trained" is the loss the model was compiled with, without reconstruction. It is not the default because the margin
    and the spread loss are exactly 0, and so is their gradient, for each image that is classified well enough: nothing
    is attacked there.

    Args:
        model: a `CapsuleClassifier`, or a Keras model from images to class probabilities.
        loss: "crossentropy" or "trained"; or a Keras loss of class numbers and class scores, for instance for a plain
            model that gives logits.
        batch_size: images at a time; the last batch is filled up, so that one program serves all.

    Call arguments:
        images: (batch, height, width, channels), any number of them.
        labels: (batch,), the classes whose loss is taken.

    Returns:
        (batch, height, width, channels), float32, the gradient of each image's own loss, in inference mode.

    Raises:
        ValueError: an unknown loss, images of another shape, labels that are no classes, or a gradient that is not
            finite, as that of negative scores.

    Example:
        >>> model = keras.Sequential([keras.Input((2, 3, 1)), keras.layers.Flatten(), keras.layers.Dense(4, "softmax")])
        >>> InputGradient(model)(np.ones((5, 2, 3, 1)), np.array([0, 1, 2, 3, 0])).shape
        (5, 2, 3, 1)
    """

    def __init__(self, model, loss="crossentropy", batch_size=100):
        self.model = model
        self.batch_size = positive_int("batch_size", batch_size)
        outputs = model.outputs[0] if isinstance(model, keras.Sequential) else getattr(model, "encoder", model).output
        self.classes = class_scores(outputs).shape[-1]
        self._scores, self._gradient = _compiled(model, _loss_function(model, loss))

    def __call__(self, images, labels):
        gradients = self._in_batches(self._gradient, images, self._checked_labels(images, labels))
        if not np.isfinite(gradients).all():
            raise ValueError(
                f"The gradient of {self.model.name!r} is not finite. Where its scores are logits, give it a loss of "
                "logits, such as SparseCategoricalCrossentropy(from_logits=True)."
            )
        return gradients

    def classify(self, images):
        """The classes (batch,) with the highest scores."""
        return self._in_batches(self._scores, images).argmax(-1)

    def _in_batches(self, function, images, *columns):
        size = min(self.batch_size, len(images))
        parts = []
        for number, batch in enumerate(in_batches(self.model, images, size)):
            rows = [batch, *(column[number * size : (number + 1) * size] for column in columns)]
            filled = [np.concatenate([x, np.repeat(x[-1:], size - len(x), axis=0)]) for x in rows]
            parts.append(to_numpy(function(*filled))[: len(batch)])
        return np.concatenate(parts)

    def _checked_labels(self, images, labels):
        labels = np.asarray(labels)
        if labels.shape != (len(images),) or not len(labels):
            raise ValueError(f"Each image needs one label. Received shapes {np.shape(images)} and {labels.shape}.")
        check_labels(labels, self.classes)
        return labels.astype("int32")


def _loss_function(model, loss):
    """A function of class numbers and the model's outputs that returns the loss of each sample."""
    if isinstance(loss, str):
        one_of("loss", loss, LOSSES)
    if loss == "crossentropy":
        return lambda labels, outputs: _crossentropy(model, labels, outputs)
    if loss == "trained":
        loss = getattr(model, "loss", None)
        if loss is None:
            raise ValueError(f'The loss "trained" needs a compiled model. Received: {model.name!r}, not compiled')
    loss = keras.losses.get(loss)
    of_samples = loss.call if isinstance(loss, keras.losses.Loss) else loss
    return lambda labels, outputs: of_samples(labels, at_least_float32(class_scores(outputs)))


def _crossentropy(model, labels, outputs):
    scores = at_least_float32(class_scores(outputs))
    if getattr(model, "logits", False):
        logits = scores
    elif not isinstance(outputs, dict):
        logits = ops.log(scores + _TINY)
    elif "logits" in outputs:
        # Where their logistic function is exactly 0 or 1 its gradient is lost.
        logits = at_least_float32(outputs["logits"])
    else:
        logits = ops.log(scores + _TINY) - ops.log(ops.maximum(1 - scores, _HALF_STEP))
    return -ops.sum(ops.one_hot(labels, logits.shape[-1], dtype=logits.dtype) * ops.log_softmax(logits), axis=-1)


def _compiled(model, loss):
    """The class scores as a function of images, and the gradient with respect to them as one of images and labels, on
    whichever backend Keras runs."""

    def scores(images):
        return class_scores(model(images, training=False))

    def total(images, labels):
        return ops.sum(loss(labels, model(images, training=False)))

    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        def gradient(images, labels):
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(images)
                value = total(images, labels)
            return tape.gradient(value, images, unconnected_gradients="zero")

        shape = getattr(model, "image_shape", None) or model.input_shape[1:]
        specs = tf.TensorSpec((None, *shape), tf.float32), tf.TensorSpec((None,), tf.int32)
        traced = (
            tf.function(function, autograph=False).get_concrete_function(*specs[:count])
            for count, function in enumerate((scores, gradient), start=1)
        )
        return [lambda *arrays, function=function: function(*map(tf.constant, arrays)) for function in traced]
    if keras.backend.backend() == "jax":
        import jax

        variables = *model.trainable_variables, *model.non_trainable_variables

        # The weights are arguments: as constants they would become a part of the program.
        def of_values(function):
            def scoped(images, values, *labels):
                with keras.StatelessScope(state_mapping=zip(variables, values, strict=True)):
                    return function(images, *labels)

            return scoped

        def called(function):
            return lambda images, *labels: function(images, [variable.value for variable in variables], *labels)

        return called(jax.jit(of_values(scores))), called(jax.jit(jax.grad(of_values(total))))
    import torch

    def gradient(images, labels):
        images = ops.convert_to_tensor(images).requires_grad_()
        return torch.autograd.grad(total(images, ops.convert_to_tensor(labels)), images, materialize_grads=True)[0]

    return torch.no_grad()(scores), gradient


def fgsm(gradient, images, labels, epsilon, targeted=False, bounds=None):
    """Adversarial images of the fast gradient sign method: one step of epsilon in each value.

    Source: Goodfellow et al. 2015, section 4; Hinton et al. 2018, section 5.2.

    Args:
        gradient: the `InputGradient` of a model; whether it or another model judges the images is left open.
        images: (batch, height, width, channels).
        labels: (batch,), the right classes, whose loss is raised; with `targeted` the wanted ones, whose loss is
            lowered.
        epsilon: the most by which a value may change, 0 or more, in the units of the images (see this module).
        targeted: whether labels are targets.
        bounds: None, or the (lowest, highest) value that a pixel may take, for instance (0, 1).

    Returns:
        (batch, height, width, channels), float32.

    Raises:
        ValueError: an epsilon or bounds that make no sense, images outside the bounds; see also `InputGradient`.

    Example:
        >>> model = keras.Sequential([keras.Input((2, 3, 1)), keras.layers.Flatten(), keras.layers.Dense(4, "softmax")])
        >>> images = np.full((5, 2, 3, 1), 0.5, "float32")
        >>> attacked = fgsm(InputGradient(model), images, np.array([0, 1, 2, 3, 0]), 0.25)
        >>> np.unique(np.abs(attacked - images))
        array([0.25], dtype=float32)
    """
    images = _checked_images(images, bounds)
    return _moved(images, _direction(gradient, images, labels, targeted), _checked_epsilon(epsilon), bounds)


def basic_iterative(gradient, images, labels, epsilon, steps=10, step_size=None, targeted=False, bounds=None):
    """Adversarial images of the basic iterative method: several small steps, never further than epsilon in all.

    Source: Kurakin et al. 2017, section 2.2; Hinton et al. 2018, section 5.2. One step is `fgsm`.

    Args:
        steps: how many, each with a gradient of its own.
        step_size: by which each value changes in a step; None for epsilon / steps.
        gradient, images, labels, epsilon, targeted, bounds: as in `fgsm`.

    Returns:
        (batch, height, width, channels), float32.

    Raises:
        ValueError: steps below 1, or a step size that is not above 0; see also `fgsm`.

    Example:
        >>> model = keras.Sequential([keras.Input((2, 3, 1)), keras.layers.Flatten(), keras.layers.Dense(4, "softmax")])
        >>> images = np.full((5, 2, 3, 1), 0.5, "float32")
        >>> attacked = basic_iterative(InputGradient(model), images, np.array([0, 1, 2, 3, 0]), 0.25, steps=4)
        >>> float(np.abs(attacked - images).max())
        0.25
    """
    images = _checked_images(images, bounds)
    epsilon, steps = _checked_epsilon(epsilon), positive_int("steps", steps)
    if step_size is None:
        step_size = epsilon / steps
    elif not _is_number(step_size) or step_size <= 0:
        raise ValueError(f"`step_size` must be a number above 0. Received: {step_size!r}")
    attacked = images
    for _ in range(steps):
        attacked = _moved(attacked, _direction(gradient, attacked, labels, targeted), step_size, bounds)
        attacked = np.clip(attacked, images - epsilon, images + epsilon)
    return attacked


def _direction(gradient, images, labels, targeted):
    """The sign of the change, int8: it is kept while all epsilons are tried."""
    return np.sign(gradient(images, labels)).astype("int8") * (-1 if targeted else 1)


def _moved(images, direction, size, bounds):
    moved = images + direction * np.float32(size)
    return moved if bounds is None else np.clip(moved, *map(np.float32, bounds))


def _crafted(gradient, attack, images, labels, epsilons, steps, targeted, bounds):
    """Yields the attacked images for each epsilon."""
    if attack == "fgsm":
        direction = _direction(gradient, images, labels, targeted)  # the same for all
        for epsilon in epsilons:
            yield _moved(images, direction, epsilon, bounds)
    else:
        for epsilon in epsilons:
            yield basic_iterative(gradient, images, labels, epsilon, steps, None, targeted, bounds)


def measure_gradients(gradient, images, labels):
    """The two simplest checks against gradient masking: how many entries of a gradient are 0, and how large it is.

    Source: Hinton et al. 2018, section 5.2. A network whose gradient vanishes, in its arithmetic or by saturation,
    resists attacks along it without being robust. Pixels that no unit of the network sees are counted as zeros, too.

    Args:
        gradient: the `InputGradient` of a model.
        images: (batch, height, width, channels).
        labels: (batch,), the right classes.

    Returns:
        A pair of means over the images: the share of entries that are exactly 0, and the Euclidean norm.

    Example:
        >>> model = keras.Sequential([keras.Input((2, 3, 1)), keras.layers.Flatten(), keras.layers.Dense(4, "softmax")])
        >>> share, norm = measure_gradients(InputGradient(model), np.ones((5, 2, 3, 1)), np.array([0, 1, 2, 3, 0]))
        >>> share
        0.0
    """
    gradients = gradient(images, labels).astype("float64")
    return float((gradients == 0).mean()), float(np.linalg.norm(gradients.reshape(len(gradients), -1), axis=1).mean())


def measure_attacks(
    gradients,
    images,
    labels,
    epsilons=EPSILONS,
    attacks=tuple(ATTACKS),
    goals=tuple(GOALS),
    steps=10,
    bounds=None,
    only_right=False,
):
    """How several models stand attacks on the same images, made on each of them and shown to all.

    Source: Hinton et al. 2018, section 5.2 and figure 3. Untargeted attacks are measured by the accuracy that is left;
    targeted ones by their success, the share of images given the wanted class: each image is attacked towards each
    class that is not its own, and the share is the mean over the target classes.

    Args:
        gradients: dict from a model's name to its `InputGradient`.
        images: (batch, height, width, channels).
        labels: (batch,), the right classes.
        epsilons: see `fgsm`; 0, the images as they are, is measured in any case.
        attacks: of "fgsm" and "bim".
        goals: of "untargeted" and "targeted".
        steps: of the basic iterative method.
        bounds: see `fgsm`.
        only_right: attack those images only that all models classify rightly, so that all begin at the same accuracy:
            otherwise a network that errs more on clean images looks less robust, too.

    Returns:
        An iterator of rows, made while it goes, for each attack and epsilon one of every model: dicts of "model", which
        judged; "made_on", whose gradient the attack followed; "attack", "goal", "epsilon", "steps", "images"; "metric",
        "accuracy" or "success", and its "value"; and "zero_gradient_share" and "gradient_norm" of the model it was made
        on (see `measure_gradients`).

    Raises:
        ValueError: names, epsilons, images or labels that make no sense, models of different classes, or no image that
            all models classify rightly.

    Example:
        >>> model = keras.Sequential([keras.Input((2, 3, 1)), keras.layers.Flatten(), keras.layers.Dense(4, "softmax")])
        >>> images, labels = np.random.default_rng(0).random((5, 2, 3, 1)), np.array([0, 1, 2, 3, 0])
        >>> rows = list(measure_attacks({"dense": InputGradient(model)}, images, labels, epsilons=(0.1, 0.2)))
        >>> len(rows), rows[-1]["attack"], rows[-1]["metric"]
        (12, 'bim', 'success')
    """
    gradients = dict(gradients)
    counts = {name: gradient.classes for name, gradient in gradients.items()}
    if len(set(counts.values())) != 1 or min(counts.values()) < 2:
        raise ValueError(f"One or more models of the same classes, two at least, are attacked. Received: {counts}")
    for name, values, known in (("attacks", attacks, ATTACKS), ("goals", goals, GOALS)):
        if not values:
            raise ValueError(f"There are no {name} to be measured.")
        for value in values:
            one_of(name, value, known)
    positive_int("steps", steps)
    epsilons = sorted({_checked_epsilon(epsilon) for epsilon in epsilons} - {0.0})
    if not epsilons:
        raise ValueError("There is no epsilon above 0 to be measured.")
    images = _checked_images(images, bounds)
    clean = {name: gradient.classify(images) for name, gradient in gradients.items()}
    labels = next(iter(gradients.values()))._checked_labels(images, labels)
    if only_right:
        right = np.all([classes == labels for classes in clean.values()], axis=0)
        if not right.any():
            raise ValueError(f"None of the {len(images)} images is classified rightly by all models.")
        images, labels = images[right], labels[right]
        clean = {name: classes[right] for name, classes in clean.items()}
    return _rows(gradients, images, labels, clean, epsilons, attacks, goals, steps, bounds)


def _rows(gradients, images, labels, clean, epsilons, attacks, goals, steps, bounds):
    for made_on, gradient in gradients.items():
        zeros, norm = measure_gradients(gradient, images, labels)
        for attack in attacks:
            for goal in goals:
                targeted = goal == "targeted"
                index, wanted = np.arange(len(labels)), labels
                if targeted:
                    index, wanted = np.nonzero(labels[:, None] != np.arange(gradient.classes))
                crafted = _crafted(gradient, attack, images[index], wanted, epsilons, steps, targeted, bounds)
                for epsilon in (0.0, *epsilons):
                    attacked = next(crafted) if epsilon else None
                    for name, judge in gradients.items():
                        classes = judge.classify(attacked) if epsilon else clean[name][index]
                        hits = classes == wanted
                        shares = [hits[wanted == target].mean() for target in np.unique(wanted)] if targeted else hits
                        value = float(np.mean(shares))
                        count = 1 if attack == "fgsm" else steps
                        row = name, made_on, attack, goal, epsilon, count, len(labels), GOALS[goal], value, zeros, norm
                        yield dict(zip(COLUMNS, row, strict=True))


def table(rows):
    """The rows of `measure_attacks` as a text: a line for each model that judges and each that attacks were made on.

    Args:
        rows: of `measure_attacks`.

    Returns:
        A str of several lines: a block for each attack and goal, in percent, and the measures of the gradients.

    Example:
        >>> row = {"model": "a", "made_on": "a", "attack": "fgsm", "goal": "untargeted", "metric": "accuracy"}
        >>> row |= {"zero_gradient_share": 0.25, "gradient_norm": 1.5}
        >>> print(table([row | {"epsilon": x, "value": 1 - x} for x in (0.0, 0.1, 0.2)]))
        fgsm, untargeted: accuracy (%)
        epsilon       0    0.1    0.2
        a         100.0   90.0   80.0
        <BLANKLINE>
        gradients of a: 25.00% of the entries are 0, mean norm 1.5
    """
    blocks = {}
    for row in rows:
        title = f"{row['attack']}, {row['goal']}: {row['metric']} (%)"
        blocks.setdefault(title, {}).setdefault(_line_name(row), {})[row["epsilon"]] = row["value"]
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


def _line_name(row):
    return row["model"] if row["made_on"] == row["model"] else f"{row['model']}, made on {row['made_on']}"


def masking_signs(rows):
    """What in the rows of `measure_attacks` speaks for masked gradients, as sentences.

    Source: Hinton et al. 2018, section 5.2 (images made on another network should not fool a model better than its
    own); Athalye et al. 2018, section 3.1 (nor should one step do better than several). Differences count from two
    standard errors on, shares of zeros from a half on.

    Args:
        rows: of `measure_attacks`.

    Returns:
        A list of str, empty where there is no such sign, which is no proof that nothing is masked.

    Example:
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


def robustness_curves(rows, units="units of the input"):
    """Accuracy under untargeted attacks, and success of targeted ones, against epsilon.

    Source: Hinton et al. 2018, figure 3.

    Args:
        rows: of `measure_attacks`.
        units: those of epsilon, for the axis.

    Returns:
        A figure with a row of panels for each goal and a column for each attack. A colour is the model that judges;
        solid lines are white-box attacks, dashed ones were made on the model that has this marker.

    Raises:
        ValueError: no rows.

    Example:
        >>> row = {"model": "a", "made_on": "a", "attack": "fgsm", "goal": "untargeted", "images": 50}
        >>> figure = robustness_curves([row | {"epsilon": x, "value": 1 - x} for x in (0.0, 0.1, 0.2)])
        >>> len(figure.axes)
        1
    """
    rows = list(rows)
    if not rows:
        raise ValueError("There are no rows to show.")
    curves = {}
    for row in rows:
        curves.setdefault((row["goal"], row["attack"], row["model"], row["made_on"]), []).append(row)
    goals, attacks, models = ([*dict.fromkeys(row[key] for row in rows)] for key in ("goal", "attack", "model"))
    figure = new_figure(4.6 * len(attacks) + 0.6, 3.5 * len(goals) + 1.1)
    grid = figure.subplots(len(goals), len(attacks), sharex=True, sharey="row", squeeze=False)
    for (goal, attack, model, made_on), points in curves.items():
        axes = grid[goals.index(goal), attacks.index(attack)]
        own, judge, source = made_on == model, models.index(model), models.index(made_on)
        color = COLORS[judge % len(COLORS)]
        axes.plot(
            [point["epsilon"] for point in points],
            [100 * point["value"] for point in points],
            "-" if own else "--",
            color=color,
            marker=MARKERS[source % len(MARKERS)],
            markersize=5,
            markerfacecolor=color if own else "white",
            label=shortened(model) if own else f"{shortened(model)}, made on {shortened(made_on)}",
        )
    for axes, attack in zip(grid[0], attacks, strict=True):
        axes.set_title(ATTACKS[attack], fontsize=11)
    for line, goal in zip(grid, goals, strict=True):
        line[0].set_ylabel({"untargeted": "accuracy (%), untargeted", "targeted": "success (%), targeted"}[goal])
        line[0].set_ylim(-3, 103)
    for axes in grid.flat:
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in grid[-1]:
        axes.set_xlabel(f"epsilon ({units})")
    handles, texts = grid[0, 0].get_legend_handles_labels()
    legend = figure.legend(
        handles, texts, loc="outside upper center", ncols=min(len(attacks), len(models)), fontsize=9, frameon=False
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
    count = rows[0]["images"]
    text = f"{count:,} image{'s' * (count > 1)}. Solid: attacks along the gradients of the model that is judged."
    if len(models) > 1:
        text += " Dashed: along those of another one, whose marker they have."
    return add_caption(figure, text)


def attacked_images(gradient, images, labels, epsilons=EPSILONS, attack="bim", steps=10, bounds=None, class_names=None):
    """Some images under a growing untargeted attack, and what the attacked model takes them for.

    Args:
        gradient: the `InputGradient` of the model.
        images: (batch, height, width, channels), a column each.
        labels: (batch,), the right classes.
        epsilons, steps, bounds: as in `measure_attacks`.
        attack: "fgsm" or "bim".
        class_names: a name for each class; None for numbers.

    Returns:
        A figure with a row for the images as they are and one for each epsilon.

    Raises:
        ValueError: see `measure_attacks`; or another number of names than of classes.

    Example:
        >>> model = keras.Sequential([keras.Input((2, 3, 1)), keras.layers.Flatten(), keras.layers.Dense(4, "softmax")])
        >>> images, labels = np.random.default_rng(0).random((5, 2, 3, 1)), np.array([0, 1, 2, 3, 0])
        >>> len(attacked_images(InputGradient(model), images, labels, (0.1, 0.2)).axes)
        15
    """
    one_of("attack", attack, ATTACKS)
    epsilons = [_checked_epsilon(epsilon) for epsilon in epsilons]
    images = _checked_images(images, bounds)
    names = range(gradient.classes) if class_names is None else class_names
    if len(names) != gradient.classes:
        raise ValueError(f"The model has {gradient.classes} classes. Received {len(names)} names: {names!r}")
    names = [shortened(name) for name in names]
    rows = [images, *_crafted(gradient, attack, images, labels, epsilons, steps, False, bounds)]
    classes = [gradient.classify(row) for row in rows]
    # Values without bounds, as standardized ones, are shown in the range of all pictures of an image.
    pictures = np.stack(rows)
    low, high = bounds or (pictures.min((0, 2, 3, 4)), pictures.max((0, 2, 3, 4)))
    low, high = (np.reshape(limit, (-1, 1, 1, 1)) for limit in (low, high))
    figure = image_grid(
        (pictures - low) / np.maximum(high - low, _TINY),
        ["clean", *(f"{epsilon:g}" for epsilon in epsilons)],
        [names[label] for label in labels],
        [False] * len(labels),
        [[names[found] for found in row] for row in classes],
    )
    for line, row in zip(np.reshape(figure.axes, (len(rows), -1)), classes, strict=True):
        for axes, found, label in zip(line, row, labels, strict=True):
            axes.xaxis.label.set_color("black" if found == label else COLORS[5])
    text = "epsilon on the left. Above: the label. Below: the prediction, orange if wrong."
    return add_caption(figure, f"{ATTACKS[attack].capitalize()}, {text}")


def input_units(preprocess):
    """The units of epsilon for images that a recipe has preprocessed, and the bounds of their values.

    Args:
        preprocess: the recipe's steps (`tf_capsules.datasets.augment`).

    Returns:
        A pair: a text, and (0, 1) or, where images are standardized or normalized and have no common bounds, None.

    Example:
        >>> input_units((("crop", 24), ("standardize",)))
        ('standard deviations of an image', None)
    """
    names = {name for name, *_ in augment.check(preprocess)}
    if "standardize_each" in names:
        return "standard deviations of a channel", None
    if "standardize" in names:
        return "standard deviations of an image", None
    if "normalize" in names:
        return "standard deviations of the data set's channels", None
    return "shares of the pixel range", (0.0, 1.0)


def _checked_images(images, bounds):
    images = np.asarray(images, "float32")
    if not images.size or not np.isfinite(images).all():
        raise ValueError(f"Images must be finite numbers. Received an array of shape {images.shape}.")
    if bounds is None:
        return images
    if len(bounds) != 2 or not all(map(_is_number, bounds)) or not bounds[0] < bounds[1]:
        raise ValueError(f"`bounds` must be None or two numbers, the lower one first. Received: {bounds!r}")
    if images.min() < bounds[0] or images.max() > bounds[1]:
        raise ValueError(f"The images go from {images.min():g} to {images.max():g}, beyond the bounds {tuple(bounds)}.")
    return images


def _checked_epsilon(epsilon):
    if not _is_number(epsilon) or epsilon < 0:
        raise ValueError(f"Epsilon must be a number, 0 or more. Received: {epsilon!r}")
    return float(epsilon)


def _is_number(value):
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
