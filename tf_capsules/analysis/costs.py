"""Estimates what a network takes, before it is trained: parameters, activations, votes, multiply-adds, memory."""

import contextlib
import dataclasses
import functools
import math

import keras

from tf_capsules.analysis import graph_costs, xla_costs
from tf_capsules.analysis.inference import network_of
from tf_capsules.analysis.routing_layers import bytes_of_votes
from tf_capsules.layers.arguments import positive_int, positive_int_or_none

OTHER = "(loss, optimizer, other)"

# The module that traces a step, by backend. Each has `scope`, `size_of`, `trace` and `measure`. `measure` returns the
# multiply-adds; a dict of the other bytes at the peak (without weights, slots and inputs); and for the forward pass of
# each row its multiply-adds and bytes at the peak, None if the backend does not tell.
_TRACERS = {"tensorflow": graph_costs, "jax": xla_costs}

_NUMBERS = ("parameters", "activations", "stored_votes", "held_votes", "multiply_adds", "kept")


@dataclasses.dataclass
class LayerCost:
    """What a layer takes for one batch. Several calls of a layer add up, except for parameters and votes.

    Attributes:
        name, kind: the name of the layer, and that of its class.
        parameters: how many numbers its weights have, trained or not, without those of a layer above in the table.
        activations: bytes of what the layer returns.
        stored_votes: bytes of its votes as one tensor; None for a routing layer of your own or within a layer of yours.
        held_votes: bytes that it holds: its votes, or what replaces them for each (child, parent) pair; None as above.
        multiply_adds: of the forward pass, in products of matrices, convolutions and products of entries; None on JAX.
        kept: bytes of its forward pass that exist when memory is at its peak; None on JAX.
    """

    name: str
    kind: str
    parameters: int
    activations: int
    stored_votes: int | None
    held_votes: int | None
    multiply_adds: int | None
    kept: int | None


@dataclasses.dataclass
class Cost:
    """What a network takes in a training step or an inference. `str()` gives a table.

    Attributes:
        layers: a `LayerCost` for each layer, and a last one, `OTHER`, for what belongs to no layer.
        batch_size: examples.
        training: whether it is a training step.
        multiply_adds: of the whole step, in training with those of the gradient and the optimizer.
        memory: bytes at the peak: of "weights", "optimizer" (its slots), "inputs" and "working" (gradients and all
            else); with TensorFlow also of "activations" (kept from the forward pass) and "runtime" (TensorFlow itself).
    """

    layers: list
    batch_size: int
    training: bool
    multiply_adds: int
    memory: dict

    @property
    def peak(self):
        """Bytes at the peak, beyond those of a process that has only imported its libraries."""
        return sum(self.memory.values())

    def total(self, name):
        """The sum of a number over the layers that have it; None if no layer has it."""
        numbers = [getattr(layer, name) for layer in self.layers]
        return None if set(numbers) == {None} else sum(number or 0 for number in numbers)

    def __str__(self):
        rows = [("layer", "kind", *(name.replace("_", " ").replace("multiply ", "multiply-") for name in _NUMBERS))]
        rows += [(one.name, one.kind, *(_text(n, getattr(one, n)) for n in _NUMBERS)) for one in self.layers]
        rows.append(("in all", "", *(_text(name, self.total(name)) for name in _NUMBERS)))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        aligned = [str.ljust] * 2 + [str.rjust] * len(_NUMBERS)
        lines = ["  ".join(align(*cell) for align, *cell in zip(aligned, row, widths, strict=True)) for row in rows]
        lines.insert(1, "-" * len(lines[0]))
        lines.insert(-1, lines[1])
        what = "a training step" if self.training else "an inference"
        counted = f"Multiply-adds of layers: of the forward pass; {what}"
        counted = what.capitalize() if self.total("multiply_adds") is None else counted
        beyond = " A process took up to 1.6 times as much." if "runtime" in self.memory else ""
        parts = ", ".join(f"{name} {_mib(size)}" for name, size in self.memory.items())
        lines += [
            f"Bytes in MiB, of a batch of {self.batch_size}. {counted} has {self.multiply_adds:,} multiply-adds.",
            f"Peak memory of {what}: {_mib(self.peak)} MiB ({parts}).{beyond}",
        ]
        return "\n".join(lines)


def estimate_cost(model, batch_size, training=True, size=None, targets=None):
    """Estimates what a network takes, from its step as the backend traces it. Computes nothing; returns a `Cost`.

    With TensorFlow, memory counts each tensor of the graph from the operation that makes it to its last reader, plus a
    part for TensorFlow itself. It leaves out gaps of the allocator and scratch memory: a process took up to 1.6 times
    as much in the training steps of six networks on two CPU cores (`benchmarks/cost_estimate.py`). With JAX, XLA
    compiles the step for the devices at hand and reports the memory and the floating-point operations of the whole
    step, nothing by layer. Multiply-adds are half of these operations.

    Args:
        model: a functional Keras model or a `CapsuleClassifier`, of any layers, with known inputs; compiled, to train.
        batch_size: examples.
        training: True for a training step, False for an inference.
        size: the size of each unknown input axis except the batch's, such as a text's number of tokens.
        targets: what labels look like: a `keras.KerasTensor` without the batch axis, or a structure of these. None:
            class numbers. A loss on values, such as "mse", needs it: `keras.KerasTensor(model.output_shape[1:])`.

    Raises:
        ValueError: another backend than TensorFlow or JAX; a batch size below 1; a model without inputs, or for
            training not compiled; inputs of unknown size without `size`, or `size` where all are known; no `targets`
            for a loss that takes no class numbers.

    Example:
        >>> from tf_capsules.models.tsai2020 import AttentionCapsNet
        >>> cost = estimate_cost(AttentionCapsNet((32, 32, 3), classes=10), batch_size=128, training=False)
        >>> cost.total("parameters"), round(cost.memory["weights"] / 2**20, 1)
        (561297, 2.1)
    """
    backend = keras.backend.backend()
    if backend not in _TRACERS:
        raise ValueError(f"Costs need the TensorFlow or the JAX backend. Received: {backend}")
    tracer = _TRACERS[backend]
    batch_size = positive_int("batch_size", batch_size)
    if training and not getattr(model, "compiled", False):
        raise ValueError(f"A training step needs a compiled model: its loss and optimizer. Received: {model!r}")
    inputs, labels = _specs(model, batch_size, size), None
    if training:
        model.optimizer.build(model.trainable_variables)
        like = keras.KerasTensor((), "int64") if targets is None else targets
        labels = keras.tree.map_structure(lambda t: keras.KerasTensor((batch_size, *t.shape), t.dtype), like)
    layers = list(_layers(model))
    calls = {layer: [] for layer in layers}
    with _watched(calls, tracer.scope):
        try:
            step = tracer.trace(model, inputs, labels)
        except (TypeError, ValueError) as error:
            if targets is not None or not training:
                raise
            fails = f"The training step of {model.name!r} fails with class numbers (batch,) as labels."
            hint = "`targets=keras.KerasTensor(shape)`, without the batch axis, or a list of these for several outputs"
            raise ValueError(f"{fails} For others give {hint}.") from error

    multiply_adds, beside, of_rows = tracer.measure(step, len(layers) + 1)
    rows, counted = [], set()
    for layer, numbers in zip(layers, of_rows[:-1], strict=True):
        results = keras.tree.flatten([results for *_, results in calls[layer]])
        activations = sum(tracer.size_of(tensor) for tensor in results if hasattr(tensor, "shape"))
        own = {id(weight): math.prod(weight.shape) for weight in layer.weights if id(weight) not in counted}
        counted |= set(own)
        votes = bytes_of_votes(layer, calls[layer])
        rows.append(LayerCost(layer.name, type(layer).__name__, sum(own.values()), activations, *votes, *numbers))
    others = sum(math.prod(weight.shape) for weight in model.weights if id(weight) not in counted)
    rows.append(LayerCost(OTHER, "", others, 0, 0, 0, *of_rows[-1]))
    memory = {
        "weights": sum(map(tracer.size_of, model.variables)),
        "optimizer": sum(map(tracer.size_of, model.optimizer.variables)) if training else 0,
        "inputs": sum(map(tracer.size_of, keras.tree.flatten(inputs))),
        **beside,
    }
    return Cost(rows, batch_size, training, multiply_adds, memory)


def _specs(model, batch_size, size):
    """What the model takes, as `keras.KerasTensor`s of known shape."""
    size = positive_int_or_none("size", size)
    inputs = getattr(network_of(model), "input", None)
    if inputs is None:
        raise ValueError(f"Costs need a model that knows its inputs, a functional one. Received: {model!r}")

    def spec(tensor):
        shape = [batch_size, *(size if known is None else known for known in tensor.shape[1:])]
        if None in shape:
            given = f"{tensor.name!r} of shape {tuple(tensor.shape)}"
            raise ValueError(f"The input {given} has axes of unknown size: give it as `size` (in a command: --size).")
        return keras.KerasTensor(shape, tensor.dtype)

    shapes = [tuple(tensor.shape[1:]) for tensor in keras.tree.flatten(inputs)]
    if size is not None and not any(None in shape for shape in shapes):
        raise ValueError(f"`size` is for input axes of unknown size. Received {size} for inputs {shapes}.")
    return keras.tree.map_structure(spec, inputs)


def _layers(model):
    """The layers that have a row in the table, in order, each once. Inner models and chains give their layers."""
    found = {}
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            found |= dict.fromkeys(_layers(layer))
        elif not isinstance(layer, keras.layers.InputLayer):
            found |= dict.fromkeys(getattr(layer, "chain", [layer]))
    return list(found)


@contextlib.contextmanager
def _watched(calls, scope):
    """Inside, `calls` records the arguments and results of each layer, and a layer runs in the `scope` of its row."""

    def watched(number, layer, call, /, *args, **options):
        with scope(number):
            results = call(*args, **options)
        calls[layer].append((args, options, results))
        return results

    for number, layer in enumerate(calls):
        call = functools.partial(watched, number, layer, layer.call)
        layer.call = functools.update_wrapper(call, layer.call)
    try:
        yield
    finally:
        for layer in calls:
            del layer.call


def _text(name, number):
    if number is None:
        return "?"
    return f"{number:,}" if name in ("parameters", "multiply_adds") else _mib(number)


def _mib(size):
    return f"{size / 2**20:,.1f}"
