"""A recipe's network, made and compiled."""

import contextlib

import keras

from tf_capsules.losses import SoftmaxCrossentropy, SpreadMargin
from tf_capsules.metrics import ExactMatch, TopKAccuracy
from tf_capsules.models import CapsuleClassifier
from tf_capsules.models.weights.keras_file import fill
from tf_capsules.optimizers import FlooredExponentialDecay, RAdam, one_cycle
from tf_capsules.runs.errors import TrainingError

_WARMUP_FROM = 1e-5  # the learning rate of the first step


def build_model(recipe, spec, dtype="float32", initial_weights=True):
    """The recipe's network for the inputs and classes of a `DataSpec`, in a dtype policy, not compiled.

    Without `initial_weights` those that the recipe names are not read: the caller loads others.
    """
    options = dict(recipe.model_options)
    if not initial_weights and "weights" in options:
        options["weights"] = None
    with temporarily(dtype, keras.config.dtype_policy, keras.config.set_dtype_policy):
        return recipe.model(**spec.model_arguments, **options)


@contextlib.contextmanager
def temporarily(value, read, write):
    """Inside, a global setting of Keras has this value; `read` and `write` are its functions."""
    before = read()
    write(value)
    try:
        yield
    finally:
        write(before)


def for_model(model, batches):
    """The batches as the model takes them: if there are several targets, a plain classifier gets the labels alone."""
    return batches if isinstance(model, CapsuleClassifier) else batches.map(_labels_alone)


def _labels_alone(inputs, targets, *weights):
    return inputs, targets["label"] if isinstance(targets, dict) else targets, *weights


def compile_model(model, recipe, spec, jit="auto"):
    """Compiles a model as a recipe says and builds its optimizer; a ValueError if the two do not go together."""
    if recipe.mixup is not None and getattr(model, "decoder", None) is not None:
        kind = f"{model.name!r} with a decoder (an argument of the network, see --network)"
        raise ValueError(f"mixup {recipe.mixup} needs a network without a decoder. Received: {kind}")
    rate, options = recipe.learning_rate, {}
    steps = recipe.epochs * -(-spec.train_size // recipe.batch_size)
    if recipe.warmup is not None:
        if rate <= _WARMUP_FROM:
            raise ValueError(f"With a warm-up --learning-rate must be above {_WARMUP_FROM}. Received: {rate}")
        rate = one_cycle(_WARMUP_FROM, rate, steps, recipe.warmup)
        if recipe.momentum_cycle:
            options["beta_1"] = one_cycle(0.81, 0.9, steps, recipe.warmup, inverted=True)
    elif recipe.drops:
        values = [rate * 0.1**count for count in range(len(recipe.drops) + 1)]
        # Keras keeps the old rate at a boundary, and counts steps from 0.
        boundaries = [round(drop * steps) - 1 for drop in recipe.drops]
        rate = keras.optimizers.schedules.PiecewiseConstantDecay(boundaries, values)
    elif recipe.decays is not None or recipe.decay_steps is not None:
        floor = min(recipe.lowest_rate, rate)  # a lower rate that was asked for stays as it is
        rate = FlooredExponentialDecay(rate, recipe.decay_steps or steps / recipe.decays, floor=floor)
    optimizer = recipe.optimizer(rate, **options)
    if recipe.momentum_cycle and not isinstance(optimizer, RAdam):
        raise ValueError(f"momentum_cycle needs the optimizer RAdam. Received: {type(optimizer).__name__}")
    margin = () if recipe.margin_schedule is None else (SpreadMargin.over(steps, recipe.margin_schedule),)
    loss = recipe.loss(*margin, **recipe.loss_options)
    if recipe.mixup is not None and not isinstance(model, CapsuleClassifier):
        loss = _loss_of_mixed(loss, recipe.mixup)
    jit_compile = {"auto": "auto", "on": True, "off": False}[jit]
    model.compile(optimizer, loss=loss, weighted_metrics=[make_metric(recipe)], jit_compile=jit_compile)
    model.optimizer.build(model.trainable_variables)


def _loss_of_mixed(loss, mixup):
    """The loss of a plain classifier, in a form that takes the rows of mixed examples and class numbers alike."""
    if not type(loss).__module__.startswith("keras."):
        return loss
    options = loss.get_config()
    if not isinstance(loss, keras.losses.SparseCategoricalCrossentropy) or options["ignore_class"] is not None:
        needed = "SparseCategoricalCrossentropy without ignore_class, or a loss that takes class numbers and rows"
        raise ValueError(f"mixup {mixup} needs {needed}. Received: {type(loss).__name__} {options}")
    return SoftmaxCrossentropy(from_logits=options["from_logits"])


def make_metric(recipe):
    """The Keras metric that a recipe names."""
    # Given a name only, Keras would choose a metric by the shape of the labels, which are rows for mixed examples. It
    # would also make the metric while it traces the first step, which would be traced a second time.
    if recipe.metric == "exact_match":
        return ExactMatch(recipe.threshold)
    return TopKAccuracy(5 if recipe.metric == "top_5" else 1, recipe.metric)


def compile_learner(model, recipe, spec, jit="auto"):
    """Compiles and returns what is trained: the model, or the model with feedback units if the recipe has them."""
    compile_model(model, recipe, spec, jit)
    if recipe.feedback is None:
        return model
    with temporarily(model.dtype_policy, keras.config.dtype_policy, keras.config.set_dtype_policy):
        learner = recipe.feedback(model, **recipe.feedback_options)
    compile_model(learner, recipe, spec, jit)
    return learner


def load_checkpoint(model, path, otherwise=""):
    """Loads a run's weights; a TrainingError for a file that is damaged or of another network, plus `otherwise`."""
    try:
        fill(model, path)
    except ValueError as error:
        raise TrainingError(f"{error}{otherwise}") from error
