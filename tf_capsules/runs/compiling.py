"""A recipe's network, made and compiled."""

import keras

from tf_capsules.datasets.arrays import MappedBatches
from tf_capsules.layers.arguments import class_targets
from tf_capsules.losses import SpreadMargin
from tf_capsules.metrics import ExactMatch
from tf_capsules.models import CapsuleClassifier
from tf_capsules.models.weights import fill
from tf_capsules.optimizers import FlooredExponentialDecay, RAdam, one_cycle
from tf_capsules.runs.errors import TrainingError


def build_model(recipe, spec, dtype="float32"):
    """The recipe's network for the inputs and classes of a `DataSpec`, in a dtype policy, not compiled."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(dtype)
    try:
        return recipe.model(**spec.model_arguments, **recipe.model_options)
    finally:
        keras.config.set_dtype_policy(before)


def for_model(model, recipe, batches):
    """The batches as the model takes them. A plain classifier gets labels alone, as rows if examples are mixed."""
    several = hasattr(batches, "element_spec") and isinstance(batches.element_spec[1], dict)
    if isinstance(model, CapsuleClassifier) or not (several or recipe.mixup):
        return batches

    def labels_alone(inputs, targets, *weights):
        labels = targets["label"] if isinstance(targets, dict) else targets
        return inputs, class_targets(labels, model.outputs[0]) if recipe.mixup else labels, *weights

    arrays = isinstance(batches, keras.utils.PyDataset)
    return MappedBatches(batches, labels_alone) if arrays else batches.map(labels_alone)


def compile_model(model, recipe, spec, jit="auto"):
    """Compiles a model as a recipe says and builds its optimizer; a ValueError if the two do not go together."""
    plain = not isinstance(model, CapsuleClassifier)
    if recipe.mixup and not plain and model.decoder is not None:
        raise ValueError(f"mixup {recipe.mixup} needs a network without a decoder, see --network.")
    if recipe.mixup and plain and recipe.loss is not keras.losses.SparseCategoricalCrossentropy:
        needed = "a network without class capsules needs the loss SparseCategoricalCrossentropy"
        raise ValueError(f"mixup {recipe.mixup}: {needed}. Received: {recipe.loss.__name__}")
    rate, options = recipe.learning_rate, {}
    steps = recipe.epochs * -(-spec.train_size // recipe.batch_size)
    if recipe.warmup is not None:
        rate = one_cycle(1e-5, rate, steps, recipe.warmup)
        options = {"beta_1": one_cycle(0.81, 0.9, steps, recipe.warmup, inverted=True)} if recipe.momentum_cycle else {}
    elif recipe.drops:
        values = [rate * 0.1**count for count in range(len(recipe.drops) + 1)]
        # Keras keeps the old rate at a boundary, and counts steps from 0.
        boundaries = [round(drop * steps) - 1 for drop in recipe.drops]
        rate = keras.optimizers.schedules.PiecewiseConstantDecay(boundaries, values)
    elif recipe.decays is not None or recipe.decay_steps is not None:
        rate = FlooredExponentialDecay(rate, recipe.decay_steps or steps / recipe.decays, floor=recipe.lowest_rate)
    optimizer = recipe.optimizer(rate, **options)
    if recipe.momentum_cycle and not isinstance(optimizer, RAdam):
        raise ValueError(f"momentum_cycle needs the optimizer RAdam. Received: {type(optimizer).__name__}")
    margin = () if recipe.margin_schedule is None else (SpreadMargin.over(steps, recipe.margin_schedule),)
    rows = bool(recipe.mixup and plain)
    loss = keras.losses.CategoricalCrossentropy if rows else recipe.loss
    model.compile(
        optimizer,
        loss=loss(*margin, **recipe.loss_options),
        weighted_metrics=[make_metric(recipe, rows)],
        jit_compile={"auto": "auto", "on": True, "off": False}[jit],
    )
    model.optimizer.build(model.trainable_variables)


def make_metric(recipe, rows=False):
    """The Keras metric that a recipe names; `rows`: for labels that are rows."""
    # Given a name only, Keras would choose a metric by the shape of the labels, which are rows for mixed examples. It
    # would also make the metric while it traces the first step, which would be traced a second time.
    if recipe.metric == "exact_match":
        return ExactMatch(recipe.threshold)
    if recipe.metric == "top_5":
        top_5 = keras.metrics.TopKCategoricalAccuracy if rows else keras.metrics.SparseTopKCategoricalAccuracy
        return top_5(5, recipe.metric)
    accuracy = keras.metrics.CategoricalAccuracy if rows else keras.metrics.SparseCategoricalAccuracy
    return accuracy(recipe.metric)


def compile_learner(model, recipe, spec, jit="auto"):
    """Compiles and returns what is trained: the model, or the model with feedback units if the recipe has them."""
    compile_model(model, recipe, spec, jit)
    if recipe.feedback is None:
        return model
    learner = recipe.feedback(model, **recipe.feedback_options)
    compile_model(learner, recipe, spec, jit)
    return learner


def load_checkpoint(model, path):
    """Loads a run's weights. A TrainingError for a damaged or another network's file says if the best are there."""
    try:
        fill(model, path)
    except ValueError as error:
        other = path.with_name("best.weights.h5")
        hint = f". {other.name} is there, too: --weights best." if other.exists() and path != other else ""
        raise TrainingError(f"{error}{hint}") from error
