"""Gradients and compilation on whichever backend Keras runs."""

import contextlib

import keras
import pytest
from keras import ops, tree

BACKEND = keras.backend.backend()
# `jit_compile` where XLA is not under test: on TensorFlow a few small steps take less time than compiling one.
JIT = "auto" if BACKEND == "jax" else False
# `run_eagerly` for a few steps: tracing one takes longer than running all. JAX would compile each operation separately.
EAGER = BACKEND == "tensorflow"
slow_on_jax = pytest.mark.skipif(BACKEND == "jax", reason="JAX compiles each of these shapes anew: minutes")


def way(value):
    """The id of a parameter `jit` in the name of a test; other values have their own."""
    return ("plain", "xla")[value] if isinstance(value, bool) else None


def array(x):
    return ops.convert_to_numpy(x)


def as_one_program(function):
    """The function, which JAX compiles as a whole at each call, since its eager mode compiles each operation."""
    if BACKEND != "jax":
        return function
    return lambda *arguments, **options: compiled(lambda: function(*arguments, **options))()


def run(function, *arguments):
    """The result in NumPy, of a function that JAX compiles as a whole."""
    return array((compiled(function) if BACKEND == "jax" else function)(*map(ops.convert_to_tensor, arguments)))


def compiled(function):
    """The function, compiled by XLA."""
    if BACKEND == "tensorflow":
        import tensorflow as tf

        return tf.function(function, jit_compile=True, autograph=False)
    if BACKEND == "jax":
        import jax

        return jax.jit(function)
    pytest.skip(f"no XLA on the {BACKEND} backend")


def any_batch(model, inputs):
    """The model; on TensorFlow, its graph for any batch size, as serving and `predict` need it."""
    if BACKEND != "tensorflow":
        return model
    import tensorflow as tf

    specs = keras.tree.map_structure(lambda x: tf.TensorSpec((None, *x.shape[1:]), x.dtype), inputs)
    return tf.function(model, autograph=False).get_concrete_function(specs)


def gradients_of(function, jit=False):
    """Turns a scalar function into one that returns its value and its gradients in NumPy."""

    def value(*xs):
        result = function(*xs)
        return result, result

    return _with_gradients(value, jit)


def results_and_gradients(function, directions, jit=False):
    """Turns a function of one or several results into one that returns the results and gradients in NumPy.

    The gradients are those of the sum of the results weighted with `directions`: one pass gives both.
    """

    def weighted(*xs):
        results = function(*xs)
        weights = [
            x.astype(keras.backend.standardize_dtype(r.dtype))
            for x, r in zip(directions, tree.flatten(results), strict=True)
        ]
        return sum(ops.sum(ops.multiply(x, r)) for x, r in zip(weights, tree.flatten(results), strict=True)), results

    return _with_gradients(weighted, jit)


def _with_gradients(function, jit):
    """Turns a function that returns (scalar, results) into one that returns the results and the scalar's gradients."""
    if BACKEND == "tensorflow":
        import tensorflow as tf

        def run(*xs):
            with tf.GradientTape() as tape:
                tape.watch(xs)
                value, results = function(*xs)
            return results, tape.gradient(value, xs)
    elif BACKEND == "jax":
        import jax

        def run(*xs):
            (_, results), gradients = jax.value_and_grad(function, tuple(range(len(xs))), has_aux=True)(*xs)
            return results, gradients
    else:
        import torch

        def run(*xs):
            xs = [x.detach().requires_grad_() for x in xs]
            value, results = function(*xs)
            return results, torch.autograd.grad(value, xs)

    run = compiled(run) if jit or BACKEND == "jax" else run

    def results_and_their_gradients(*arguments):
        results, gradients = run(*(ops.convert_to_tensor(x) for x in arguments))
        assert all(gradient is not None for gradient in gradients), "an argument has no gradient"
        return tree.map_structure(array, results), [array(gradient) for gradient in gradients]

    return results_and_their_gradients


@contextlib.contextmanager
def untraced_steps():
    """Makes `compile` choose eager steps on TensorFlow, for runs that take less time than tracing a step."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        if EAGER:
            compile_model = keras.Model.compile

            def compile_eagerly(self, *args, **options):
                compile_model(self, *args, **{**options, "run_eagerly": True})

            monkeypatch.setattr(keras.Model, "compile", compile_eagerly)
        yield


def float64():
    """A context in which float64 is available."""
    if BACKEND == "jax":
        import jax

        return jax.enable_x64(True)
    return contextlib.nullcontext()
