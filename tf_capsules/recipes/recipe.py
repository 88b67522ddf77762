"""What a recipe says: the experiment of a paper as plain values."""

import dataclasses
from collections.abc import Callable

import keras

from tf_capsules.losses import MarginLoss, SpreadLoss


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What to train, on what, and how; and what the paper published.

    Attributes:
        name: begins with the paper's key, for instance "sabour2017-mnist".
        title: one line for lists.
        model: function that returns a Keras model. Its arguments are what the data set gives (`image_shape` and
            `classes`; for texts `layers`, `width` and `classes`), then `model_options`.
        dataset: name of a data set (`tf_capsules.datasets.names()`), whose loader takes `dataset_options`.
        transformer: for texts, the frozen transformer (`tf_capsules.text.load`) whose hidden states are the input.
        preprocess: steps applied to each image, random in training (`tf_capsules.datasets.augment`).
        loss: function that returns a Keras loss. Its arguments: with `margin_schedule` the margin, then `loss_options`.
        margin_schedule: "sigmoid", "linear" or "ramp": how the margin of `SpreadLoss` grows over the steps of the whole
            run (`tf_capsules.losses.SpreadMargin.over`); None for a fixed margin, or another loss.
        metric: "accuracy"; "top_5", the class is among the five most probable; or "exact_match", for several classes.
        threshold: with "exact_match", the activation above which a class is predicted; None: the true number.
        epochs: passes over the training split.
        batch_size: examples a step, over all devices.
        optimizer: function of the learning rate (a number or a schedule) that returns a Keras optimizer.
        learning_rate: at the start, or with `warmup` at its highest. It stays, or one of `decays`, `decay_steps`,
            `drops` and `warmup` changes it.
        decays: how many times the rate falls to 0.96 of itself over the whole run, continuously.
        decay_steps: steps after which the rate has fallen to 0.96 of itself, however long the run is.
        lowest_rate: below which `decays` and `decay_steps` don't let it fall.
        drops: shares of all steps after which the rate falls to a tenth of itself.
        warmup: share of all steps in which the rate rises; it then falls as a half cosine.
        momentum_cycle: with `warmup`, beta_1 is low where the learning rate is high (`RAdam`).
        mixup: training examples are mixed in pairs, in shares drawn from Beta(mixup, mixup); None: they are not. It
            is for networks without a decoder. The accuracy shown in training compares with the label before mixing; in
            networks without class capsules, with the label of the larger share.
        feedback: `feedback(model, **feedback_options)` returns the `tf_capsules.models.FeedbackModel` to train; None:
            the model itself is trained.
        figures: names of the pictures drawn after training (`tf_capsules.runs.figures`).
        source: where the paper has the experiment.
        published: the paper's figure, a test accuracy unless it says "error" or "top-5 error"; None without one. For a
            short regime it is the figure of the same network in the paper's regime.
        device: what it was made for.
        note: what one has to know to compare: choices that the paper leaves open, departures from it.

    Raises:
        ValueError: two values exclude each other.
    """

    name: str
    title: str
    model: Callable
    dataset: str
    model_options: dict = dataclasses.field(default_factory=dict)
    dataset_options: dict = dataclasses.field(default_factory=dict)
    transformer: str | None = None
    preprocess: tuple = ()
    loss: Callable = MarginLoss
    loss_options: dict = dataclasses.field(default_factory=dict)
    margin_schedule: str | None = None
    metric: str = "accuracy"
    threshold: float | None = None
    epochs: int = 50
    batch_size: int = 128
    optimizer: Callable = keras.optimizers.Adam
    learning_rate: float = 0.001
    decays: float | None = None
    decay_steps: int | None = None
    lowest_rate: float = 1e-6
    drops: tuple = ()
    warmup: float | None = None
    momentum_cycle: bool = False
    mixup: float | None = None
    feedback: Callable | None = None
    feedback_options: dict = dataclasses.field(default_factory=dict)
    figures: tuple = ("training_curves",)
    source: str = ""
    published: str | None = None
    device: str = "one GPU, or two CPU cores for a few epochs"
    note: str = ""

    def __post_init__(self):
        for name in ("model", "loss", "optimizer", "feedback"):
            value = getattr(self, name)
            if not hasattr(value, "__name__") and (value is not None or name != "feedback"):
                raise ValueError(f"{name} must be a function or class with a name. Received: {value!r}")
        schedules = {name: getattr(self, name) for name in ("decays", "decay_steps", "drops", "warmup")}
        given = [f"{name} {value}" for name, value in schedules.items() if value not in (None, (), [])]
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
        if self.mixup is not None and self.loss is SpreadLoss:
            raise ValueError(f"mixup {self.mixup} does not go with SpreadLoss, which is for one class a sample.")

    def replace(self, **changes):
        """A copy with other values. Options are merged, but those of another model, data set, loss or feedback go."""
        for name in ("model", "dataset", "loss", "feedback"):
            options = f"{name}_options"
            same = changes.get(name, getattr(self, name)) == getattr(self, name)
            changes[options] = {**(getattr(self, options) if same else {}), **changes.get(options, {})}
        return dataclasses.replace(self, **changes)

    def row(self, name, title, published=None, source=None, note="", **changes):
        """Another row of the paper's tables: a copy without this note, and without the pictures of another model.

        A title that begins with a comma is added to this recipe's. `changes` are values of the recipe, and options of
        its network by their own names.
        """
        known = {field.name for field in dataclasses.fields(self)}
        options = {key: changes.pop(key) for key in [*changes] if key not in known}
        changes["model_options"] = changes.get("model_options", {}) | options
        if changes.get("model", self.model) != self.model:
            changes.setdefault("figures", Recipe.figures)
        title = self.title + title if title.startswith(",") else title
        words = dict(name=name, title=title, published=published, source=source or self.source, note=note)
        return self.replace(**words, **changes)

    def short(self, name, epochs, **changes):
        """The regime for two CPU cores: few epochs in one cycle of the learning rate, up and down as a half cosine."""
        title = changes.pop("title", self.title.partition(": ")[0]) + ", a short regime for two cores"
        source, device = "no row of the paper: a short regime", "two CPU cores; with AMX: --dtype mixed_bfloat16"
        regime = dict(device=device, warmup=self.warmup or 0.2, decays=None, decay_steps=None, drops=()) | changes
        row = self.row(name, title, self.published, source, epochs=epochs, **regime)
        same = row.model_options == self.model_options  # the figure is of this network
        return row if same else dataclasses.replace(row, published=None)

    @property
    def schedule(self):
        """What the learning rate does over the run, for a row of results."""
        if self.warmup is not None:
            return f"one cycle, rising for {self.warmup:g} of all steps"
        if self.drops:
            return f"falls to a tenth after {' and '.join(f'{drop:g}' for drop in self.drops)} of all steps"
        if self.decays is not None:
            return f"falls by 4% {self.decays:g} times"
        return "constant" if self.decay_steps is None else f"falls by 4% in {self.decay_steps} steps"

    @property
    def measure(self):
        """What the paper's figure and ours measure: "error", "top-5 error", or "accuracy"."""
        return (self.published or "").partition("% ")[2] or "accuracy"

    @property
    def paper(self):
        """The paper's key."""
        return self.name.partition("-")[0]
