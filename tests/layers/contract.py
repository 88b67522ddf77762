"""The checks that every layer and every model must pass."""

import contextlib
import json

import keras
import numpy as np
import pytest
from backend import BACKEND, any_batch, array, as_one_program, compiled, results_and_gradients
from keras import ops, tree
from sweep import BATCH

from tf_capsules.models import CapsuleClassifier


def split(layer, arguments):
    """Splits off the first argument; a model takes all its inputs as one argument."""
    first, *rest = arguments
    if isinstance(layer, keras.Model) and rest:
        return dict(arguments), {}
    return arguments[first], {name: arguments[name] for name in rest}


def call(layer, arguments):
    first, others = split(layer, arguments)
    return layer(first, **others)


def outputs_of(layer, arguments):
    """Calls the layer, which is built before JAX compiles the call."""
    if BACKEND == "jax" and not layer.built:
        call(layer, symbolic(arguments, None))
    return as_one_program(call)(layer, arguments)


def numbers(outputs):
    return tree.map_structure(lambda x: array(ops.cast(x, "float32")), outputs)


def assert_close(actual, expected, atol=1e-5):
    for a, b in zip(tree.flatten(actual), tree.flatten(expected), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=atol * min(1, np.abs(b).max()))


def symbolic(arguments, batch):
    return {name: keras.Input(x.shape[1:], batch, dtype=str(x.dtype), name=name) for name, x in arguments.items()}


def build(layer, reference, arguments):
    """Gives a layer its weights as `load_model` does, which traces nothing."""
    if layer.built:
        return
    config = reference.get_build_config()
    if config is None:
        call(layer, symbolic(arguments, None))
    else:
        layer.build_from_config(config)


def run_layer_contract(case, tmp_path):
    arguments = case.arrays()
    batch = len(next(iter(arguments.values())))
    layer = case.make()
    # Symbolic shapes and dtypes equal the real ones, with and without a batch size. A model takes long to trace, so
    # only the case without a batch size is checked.
    is_model = isinstance(layer, keras.Model)
    if BACKEND == "jax" and is_model and not isinstance(layer, CapsuleClassifier):
        pytest.skip("a network of Keras's own layers; JAX compiles it for seconds")
    inputs = symbolic(arguments, None)
    specs = call(layer, inputs)
    vary(layer)
    outputs = outputs_with_checked_gradients(case, layer, arguments, specs)
    check_specs(specs, outputs, None)
    if not is_model:
        check_specs(call(layer, symbolic(arguments, batch)), outputs, batch)
    expected = numbers(outputs)
    assert all(np.isfinite(x).all() for x in tree.flatten(expected))

    if BACKEND != "jax":  # Keras does this alike on every backend, but JAX compiles it for seconds
        model, given = (layer, split(layer, arguments)[0]) if is_model else (keras.Model(inputs, specs), arguments)
        if not is_model:  # a model is made of layers, which are checked
            check_frozen(layer, arguments)
        check_saving(model, given, expected, tmp_path)
        graph = any_batch(model, given)
        if BACKEND == "tensorflow":
            check_specs(graph.structured_outputs, outputs, None)
        check_batches(graph, given, expected)
        if not is_model:
            check_compiled(graph, given, expected)

    # Half precision of both kinds for layers. Models are made of them: one kind, on one backend.
    if BACKEND == "jax":
        kinds = () if is_model else ("bfloat16",)
    else:
        kinds = ("float16",) if is_model else ("float16", "bfloat16")
    for kind in kinds:
        with dtype_policy(f"mixed_{kind}"):
            check_policy(case, f"mixed_{kind}", layer, arguments, expected)


def vary(layer):
    """Adds random numbers to weights that begin constant: a beta of zero would hide what it is multiplied by."""
    random = np.random.default_rng(3)
    for weight in layer.weights:
        values = array(weight)
        if np.ptp(values) == 0:
            weight.assign(values + random.uniform(0, 0.5, values.shape))


def check_specs(specs, outputs, size):
    for spec, output in zip(tree.flatten(specs), tree.flatten(outputs), strict=True):
        assert tuple(spec.shape) == (size, *output.shape[1:])
        assert keras.backend.standardize_dtype(spec.dtype) == keras.backend.standardize_dtype(output.dtype)


def check_frozen(layer, arguments):
    """A frozen layer is frozen when it is made from its config."""
    layer.trainable = False
    frozen = type(layer).from_config(layer.get_config())
    build(frozen, layer, arguments)
    assert not frozen.trainable_variables and len(frozen.weights) == len(layer.weights)
    layer.trainable = True


def check_saving(model, inputs, expected, tmp_path):
    """A saved and loaded model has the same config and computes the same."""
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert_close(numbers(loaded(inputs)), expected, atol=1e-6)
    assert type(loaded) is type(model) and config_of(loaded) == config_of(model)


def config_of(layer):
    return json.dumps(keras.saving.serialize_keras_object(layer)["config"])


def check_batches(graph, inputs, expected):
    """Batches of 2 and a last batch of 1 give the same as one batch, in a graph of unknown batch size."""
    parts = [numbers(graph(tree.map_structure(lambda x: x[i : i + 2], inputs))) for i in range(0, BATCH, 2)]  # noqa: B023
    assert_close(tree.map_structure(lambda *outputs: np.concatenate(outputs), *parts), expected)


def check_compiled(graph, inputs, expected):
    """The graph compiled by XLA for this batch size computes the same."""
    run = compiled(lambda *values: graph(dict(zip(inputs, values, strict=True))))
    assert_close(numbers(run(*map(ops.convert_to_tensor, inputs.values()))), expected)


def outputs_with_checked_gradients(case, layer, arguments, specs):
    """The outputs. Every weight that the call uses has a finite gradient that is not zero everywhere."""
    used = [i for i, w in enumerate(layer.trainable_variables) if case.unused is None or case.unused not in w.path]
    if not used:
        return outputs_of(layer, arguments)
    weights, fixed = ([array(x) for x in xs] for xs in (layer.trainable_variables, layer.non_trainable_variables))
    first, others = split(layer, arguments)

    def outputs_for(*values):
        return layer.stateless_call(_replaced(weights, used, values), fixed, first, **others)[0]

    batch = len(next(iter(arguments.values())))
    directions = [np.random.default_rng(2).normal(size=(batch, *spec.shape[1:])) for spec in tree.flatten(specs)]
    outputs, gradients = results_and_gradients(outputs_for, directions)(*(weights[i] for i in used))
    for index, gradient in zip(used, gradients, strict=True):
        path = layer.trainable_variables[index].path
        assert np.isfinite(gradient).all(), f"the gradient of {path} is not finite"
        assert np.abs(gradient).max() > 0, f"the gradient of {path} is zero"
    return outputs


def _replaced(values, indices, new):
    values = list(values)
    for index, value in zip(indices, new, strict=True):
        values[index] = value
    return values


@contextlib.contextmanager
def dtype_policy(policy):
    """Sets the global dtype policy in a context and restores the previous one, also after an error."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def check_policy(case, policy, reference, arguments, expected):
    """The outputs have the promised dtype, are finite, and are near those of float32."""
    layer = case.make()
    build(layer, reference, arguments)
    layer.set_weights(reference.get_weights())
    outputs = outputs_of(layer, arguments)
    compute_dtype = case.output_dtype or keras.DTypePolicy(policy).compute_dtype
    unit = {"float16": 2**-10, "bfloat16": 2**-7}.get(compute_dtype, 0.0)  # the distance of 1 to the next number
    for output in tree.flatten(outputs):
        assert keras.backend.standardize_dtype(output.dtype) == compute_dtype, policy
    assert all(keras.backend.standardize_dtype(weight.dtype) == "float32" for weight in layer.weights)
    # Each output is compared by the range of its own values: a constant fails.
    for actual, wanted in zip(tree.flatten(numbers(outputs)), tree.flatten(expected), strict=True):
        np.testing.assert_allclose(actual, wanted, 0, 0.04 * np.ptp(wanted) + unit * np.abs(wanted).max())
