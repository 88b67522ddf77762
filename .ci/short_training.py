"""IPython runs this when it starts: a notebook then does less of what takes long.

It trains two epochs, of two steps for images, predicts a few images, follows poses for a few iterations and draws a
quarter of the toys. Its kept outputs are of all of it.
"""

import keras
import numpy as np

from tf_capsules import analysis, datasets

SHORT = 2  # epochs, and steps of each for images
SOME = 64  # images for validation and prediction


def on_images(model):
    """Whether the network takes images. Networks on texts are fast, and have to know some classes."""
    return not isinstance(getattr(getattr(model, "encoder", model), "input", None), dict)


def shortened(fit):
    """`fit` is held here, since a notebook shares the names of this file and can have a `fit` of its own."""

    def short_fit(model, *arguments, epochs=1, initial_epoch=0, **options):
        few = min(epochs, SHORT) if initial_epoch == 0 else epochs  # a resumed training must end where it says
        if on_images(model):
            model.run_eagerly = True  # to trace a step takes longer than a few of them
            options["steps_per_epoch"] = min(SHORT, options.get("steps_per_epoch") or SHORT)
            validation = options.get("validation_data")
            if isinstance(validation, tuple):  # of arrays, of which Keras takes all, whatever `validation_steps` says
                options["validation_data"] = keras.tree.map_structure(lambda array: array[:SOME], validation)
            elif validation is not None:
                options["validation_steps"] = SHORT
        history = fit(model, *arguments, epochs=few, initial_epoch=initial_epoch, **options)
        for values in history.history.values():
            values += values[-1:] * (epochs - few)  # in place of the epochs that are left out
        return history

    return short_fit


def of_some(predict):
    def predict_some(model, x, *arguments, **options):
        model.jit_compile = False  # to compile takes longer than a few batches
        if not isinstance(x, np.ndarray) or x.ndim != 4:
            return predict(model, x, *arguments, **options)
        model.run_eagerly = True
        found = predict(model, x[:SOME], *arguments, **options)
        return keras.tree.map_structure(lambda array: np.resize(array, (len(x), *array.shape[1:])), found)

    return predict_some


def with_fewer_toys(load):
    def load_fewer(name, *arguments, **options):
        if name.startswith("rendered_toys"):
            options = {"train_pairs": 2000, **options}  # test pairs are left out only where all are to be shown
            options |= {pairs: options[pairs] // 4 for pairs in ("train_pairs", "test_pairs") if options.get(pairs)}
        return load(name, *arguments, **options)

    return load_fewer


def of_few_iterations(measure):
    def measure_few(model, images, iterations, **options):
        return measure(model, images, min(iterations, 2 * SHORT), **options)

    return measure_few


keras.Model.fit = shortened(keras.Model.fit)
keras.Model.predict = of_some(keras.Model.predict)
datasets.load = with_fewer_toys(datasets.load)
analysis.measure_pose_changes = of_few_iterations(analysis.measure_pose_changes)
