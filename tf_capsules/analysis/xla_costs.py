"""What a step on JAX takes, as XLA's compiler reports it. Runs nothing."""

import contextlib
import math

import keras

from tf_capsules.lazy import jax

scope = contextlib.nullcontext  # XLA reports the whole step only


def size_of(array):
    """Bytes of an array, or of anything with a shape and a dtype."""
    return math.prod(array.shape) * jax.numpy.dtype(array.dtype).itemsize


def trace(model, inputs, labels=None):
    """The compiled training step on inputs and labels (`keras.KerasTensor`s); without labels, the inference."""
    trainable, fixed, inputs = map(_alike, (model.trainable_variables, model.non_trainable_variables, inputs))
    if labels is None:
        inference = jax.jit(lambda weights, state, x: model.stateless_call(weights, state, x, training=False)[0])
        return inference.lower(trainable, fixed, inputs).compile()
    metrics = [variable.value for variable in model.metrics_variables]

    def training(trainable, fixed, slots, inputs, labels):
        gradient = jax.value_and_grad(model.compute_loss_and_updates, has_aux=True)
        given = trainable, fixed, metrics, inputs, labels, None
        (_, (_, _, updated, _)), gradients = gradient(*given, training=True, optimizer_variables=slots)
        return model.optimizer.stateless_apply(slots, gradients, trainable), updated

    # As in Keras's step, new weights and slots take the place of the old ones.
    step = jax.jit(training, donate_argnums=(0, 1, 2))
    return step.lower(trainable, fixed, _alike(model.optimizer.variables), inputs, _alike(labels)).compile()


def measure(compiled, rows):
    """What a compiled step takes, see `costs.py`; XLA tells nothing by layer."""
    memory = compiled.memory_analysis()
    added = memory.output_size_in_bytes - memory.alias_size_in_bytes
    multiply_adds = int(compiled.cost_analysis()["flops"]) // 2
    return multiply_adds, {"working": memory.temp_size_in_bytes + added}, [(None, None)] * rows


def _alike(arrays):
    return keras.tree.map_structure(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), arrays)
