"""IPython runs this when it starts: a notebook then trains two epochs, of two steps for images.

Its kept outputs are of whole trainings.
"""

import keras


def shorten():
    """Holds all names in here: a notebook shares those of this file, and can have a `fit` of its own."""
    fit, predict = keras.Model.fit, keras.Model.predict

    def run_eagerly(model):
        """True for networks on images: to trace a step takes longer than a few of them. Those on texts are fast."""
        given = getattr(getattr(model, "encoder", model), "input", None)
        model.run_eagerly = model.run_eagerly or not isinstance(given, dict)
        return model.run_eagerly

    def short_fit(model, *arguments, epochs=1, initial_epoch=0, **options):
        few = min(epochs, 2) if initial_epoch == 0 else epochs  # a resumed training must end where it says
        if run_eagerly(model):  # networks on texts have to know some classes, and train whole epochs
            options["steps_per_epoch"] = min(2, options.get("steps_per_epoch") or 2)
            if "validation_data" in options:
                options["validation_steps"] = 2
        history = fit(model, *arguments, epochs=few, initial_epoch=initial_epoch, **options)
        for values in history.history.values():
            values += values[-1:] * (epochs - few)  # in place of the epochs that are left out
        return history

    def eager_predict(model, *arguments, **options):
        run_eagerly(model)
        return predict(model, *arguments, **options)

    keras.Model.fit, keras.Model.predict = short_fit, eager_predict


shorten()
