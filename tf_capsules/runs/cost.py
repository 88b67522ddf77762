"""What a recipe will take, estimated before its data are there."""

import keras

from tf_capsules.runs.compiling import build_model, compile_learner
from tf_capsules.runs.data_spec import expected_spec


def estimate_recipe_cost(recipe, image_shape=None, size=None, training=True):
    """Estimates multiply-adds, votes and memory of a recipe's network, as a `tf_capsules.analysis.costs.Cost`.

    Args:
        recipe: a `Recipe`, settings applied.
        image_shape: see `expected_spec`, also for the errors.
        size: of axes of unknown size: for texts the number of tokens.
        training: of a training step, with feedback units where the recipe has them; False: of an inference.
    """
    from tf_capsules.analysis import estimate_cost

    spec = expected_spec(recipe, image_shape)
    model = build_model(recipe, spec)
    learner = compile_learner(model, recipe, spec, jit="off")
    classes = len(spec.class_names)
    rows = keras.KerasTensor((classes,), "float32")
    targets = rows if recipe.metric == "exact_match" else None
    if recipe.metric == "exact_match" and getattr(model, "decoder", None) is not None:
        parts = keras.KerasTensor((2, *spec.image_shape), "float32")
        targets = {"label": rows, "parts": parts, "part_labels": keras.KerasTensor((2,), "int64")}
    elif recipe.mixup is not None:
        targets = {"label": rows, "unmixed": keras.KerasTensor((), "int64")}
    return estimate_cost(learner if training else model, recipe.batch_size, training, size, targets)
