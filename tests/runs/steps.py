"""Training steps that are not traced."""

import contextlib

import keras
import pytest


@contextlib.contextmanager
def untraced_steps():
    """Of models that are compiled in it, on TensorFlow: for runs of so few steps that tracing one takes longer."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        if keras.backend.backend() == "tensorflow":
            compile_model = keras.Model.compile

            def compile_eagerly(self, *args, **options):
                compile_model(self, *args, **{**options, "run_eagerly": True})

            monkeypatch.setattr(keras.Model, "compile", compile_eagerly)
        yield
