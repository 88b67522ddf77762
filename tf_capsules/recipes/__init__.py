"""Recipes: one file a published experiment, made of a header and plain values.

A recipe named `sabour2017-mnist` is the module `sabour2017_mnist.py`, whose `RECIPE` says what `tf-capsules train
sabour2017-mnist` does. The first line of its docstring is its title.
"""

import dataclasses
import difflib
import importlib
import pkgutil
from collections.abc import Callable

import keras

from tf_capsules.losses import MarginLoss, SpreadLoss

DEFAULT = "sabour2017-digits"


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What to train, on what, and how.

    Raises a ValueError where two of the values exclude each other.

    Attributes:
        model: function of what the data set gives, image_shape and classes or for texts layers, width and classes, and
            of `model_options`, that returns a Keras model.
        model_options: its arguments beside those that the data set gives.
        dataset: name of a data set (`tf_capsules.datasets.names()`).
        dataset_options: arguments of its loader.
        transformer: for texts, the frozen transformer (`tf_capsules.text.load`) whose hidden states the model gets;
            None for images.
        preprocess: steps applied to each image, random in training (`tf_capsules.datasets.augment`).
        loss: function without arguments that returns a Keras loss on the activations; or with `margin_schedule` of the
            margin.
        margin_schedule: "sigmoid", "linear" or "ramp", with `SpreadLoss`: the schedule through which the margin goes in
            the steps of the whole run (`tf_capsules.losses.SpreadMargin.over`); None for a loss without one.
        metric: what the last line reports: "accuracy"; "top_5", whether the class is among the five most probable; or
            "exact_match" where several classes are present.
        threshold: with "exact_match", above which an activation says that its class is present; None: as many classes
            are predicted as there are present.
        epochs: passes over the training split.
        batch_size: examples a step, over all devices.
        optimizer: function of the learning rate (a number or a schedule) that returns a Keras optimizer.
        learning_rate: at the start, or with `warmup` at its highest.
        decay_steps: steps after which the rate has fallen to 0.96 of itself; None for a constant rate.
        drops: in place of `decay_steps`, the shares of all steps after which the rate falls to a tenth of itself.
        warmup: in place of `decay_steps`, the share of all steps in which the rate rises, to fall as a half cosine
            after them (`tf_capsules.optimizers.WarmupCosine`); None for none.
        momentum_cycle: with `warmup`, the optimizer is called with a `tf_capsules.optimizers.MomentumCycle` as beta_1.
        mixup: alpha of Beta(alpha, alpha), from which the shares are drawn in which pairs of training images and their
            labels are mixed; None for unmixed ones.
        feedback: function of the model and of `feedback_options` that returns what is trained in its place, a
            `tf_capsules.models.FeedbackModel`; None for the model itself.
        feedback_options: its arguments beside the model.
        figures: names of the pictures drawn after training (`tf_capsules.analysis.runs`).
        name: set by `get`.
        title: set by `get`.
    """

    model: Callable
    dataset: str
    model_options: dict = dataclasses.field(default_factory=dict)
    dataset_options: dict = dataclasses.field(default_factory=dict)
    transformer: str | None = None
    preprocess: tuple = ()
    loss: Callable = MarginLoss
    margin_schedule: str | None = None
    metric: str = "accuracy"
    threshold: float | None = None
    epochs: int = 50
    batch_size: int = 128
    optimizer: Callable = keras.optimizers.Adam
    learning_rate: float = 0.001
    decay_steps: int | None = 2000
    drops: tuple = ()
    warmup: float | None = None
    momentum_cycle: bool = False
    mixup: float | None = None
    feedback: Callable | None = None
    feedback_options: dict = dataclasses.field(default_factory=dict)
    figures: tuple = ("training_curves",)
    name: str = ""
    title: str = ""

    def __post_init__(self):
        given = {"decay_steps": self.decay_steps, "drops": self.drops or None, "warmup": self.warmup}
        given = [f"{name} {value}" for name, value in given.items() if value is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} exclude each other.")
        if not all(0 < drop < 1 for drop in self.drops) or list(self.drops) != sorted(self.drops):
            raise ValueError(f"drops are shares of all steps, between 0 and 1 and in order, not {self.drops}.")
        if self.metric not in ("accuracy", "top_5", "exact_match"):
            raise ValueError(f"metric must be accuracy, top_5 or exact_match. Received: {self.metric!r}")
        if self.momentum_cycle and self.warmup is None:
            raise ValueError("momentum_cycle follows the warm-up of the learning rate: it needs warmup.")
        if self.margin_schedule is not None and self.loss is not SpreadLoss:
            raise ValueError(f"margin_schedule {self.margin_schedule!r} is for SpreadLoss, not {self.loss.__name__}.")
        if self.threshold is not None and self.metric != "exact_match":
            raise ValueError(f"threshold {self.threshold} is for the metric exact_match, not {self.metric}.")
        if self.mixup is not None and self.metric == "exact_match":
            raise ValueError(f"mixup {self.mixup} is for one class an image, exact_match for several.")

    def but(self, **changes):
        """A copy with other values; options are merged."""
        for field in ("model_options", "dataset_options", "feedback_options"):
            if field in changes:
                changes[field] = {**getattr(self, field), **changes[field]}
        return dataclasses.replace(self, **changes)


def names():
    """Names of all recipes."""
    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__))


def get(name):
    """The recipe of that name.

    Raises:
        ValueError: no recipe has that name.
    """
    if name not in names():
        base, at, iterations = str(name).partition("@")
        if at and base in names():
            raise ValueError(f"{name} is a row of a table; elsewhere give {base} --iterations {iterations}.")
        near = difflib.get_close_matches(str(name), names(), n=3, cutoff=0.5)
        hint = f"Did you mean {' or '.join(near)}?" if near else f"`tf-capsules list` has all {len(names())}."
        raise ValueError(f"There is no recipe {name!r}. {hint}")
    module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    return dataclasses.replace(module.RECIPE, name=name, title=module.__doc__.splitlines()[0])
