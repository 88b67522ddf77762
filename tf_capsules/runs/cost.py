"""Estimates what a recipe will take, before its data are there."""

import keras

from tf_capsules.analysis import estimate_cost
from tf_capsules.models import CapsuleClassifier
from tf_capsules.runs.compiling import build_model, compile_learner
from tf_capsules.runs.data_spec import expected_spec


def estimate_recipe_cost(recipe, image_shape=None, size=None, training=True):
    """Estimates what a recipe takes, its settings applied, as a `Cost`. A training step includes feedback units.

    For `image_shape` and its errors see `expected_spec`. `size`: the number of tokens, for texts.
    """
    spec = expected_spec(recipe, image_shape)
    model = build_model(recipe, spec)
    learner = compile_learner(model, recipe, spec, jit="off")
    rows = keras.KerasTensor((len(spec.class_names),), "float32")
    targets = rows if recipe.metric == "exact_match" else None
    if recipe.metric == "exact_match" and getattr(model, "decoder", None) is not None:
        parts = keras.KerasTensor((2, *spec.image_shape), "float32")
        targets = {"label": rows, "parts": parts, "part_labels": keras.KerasTensor((2,), "int64")}
    elif recipe.mixup is not None:
        mixed = {"label": rows, "unmixed": keras.KerasTensor((), "int64")}
        targets = mixed if isinstance(model, CapsuleClassifier) else rows
    return estimate_cost(learner if training else model, recipe.batch_size, training, size, targets)
