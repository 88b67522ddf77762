"""Gradients and compilation on whichever backend Keras runs."""

import contextlib

import keras
import pytest
from keras import ops

BACKEND = keras.backend.backend()
# Of `compile` where XLA is not what is tested: on TensorFlow a few small steps take less time than compiling one.
JIT = "auto" if BACKEND == "jax" else False
slow_on_jax = pytest.mark.skipif(BACKEND == "jax", reason="JAX compiles each of these shapes anew: minutes")


def array(x):
    return ops.convert_to_numpy(x)


def run(function, *arguments):
    """The result in numpy; compiled as a whole on JAX, whose eager mode compiles each operation by itself."""
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
    """The model, on TensorFlow as a graph for any number of such inputs, as serving and `predict` need it."""
    if BACKEND != "tensorflow":
        return model
    import tensorflow as tf

    specs = keras.tree.map_structure(lambda x: tf.TensorSpec((None, *x.shape[1:]), x.dtype), inputs)
    return tf.function(model, autograph=False).get_concrete_function(specs)


def gradients_of(function, jit=False):
    """From a scalar function, the function of the same arguments that gives its value and its gradients in numpy."""
    if BACKEND == "tensorflow":
        import tensorflow as tf

        def run(*xs):
            with tf.GradientTape() as tape:
                tape.watch(xs)
                value = function(*xs)
            return value, tape.gradient(value, xs)
    elif BACKEND == "jax":
        import jax

        def run(*xs):
            return jax.value_and_grad(function, argnums=tuple(range(len(xs))))(*xs)
    else:
        import torch

        def run(*xs):
            xs = [x.detach().requires_grad_() for x in xs]
            value = function(*xs)
            return value, torch.autograd.grad(value, xs)

    run = compiled(run) if jit or BACKEND == "jax" else run

    def value_and_gradients(*arguments):
        value, gradients = run(*(ops.convert_to_tensor(x) for x in arguments))
        assert all(gradient is not None for gradient in gradients), "an argument has no gradient"
        return array(value), [array(gradient) for gradient in gradients]

    return value_and_gradients


def float64():
    """A context in which float64 is to be had."""
    if BACKEND == "jax":
        import jax

        return jax.enable_x64(True)
    return contextlib.nullcontext()
