"""What a network will cost, before it is trained: parameters, activations, votes, multiply-adds, memory."""

import contextlib
import dataclasses
import functools
import inspect
import math
import re

import keras

from tf_capsules.layers import ConcurrentRouting
from tf_capsules.layers.arguments import positive_int
from tf_capsules.layers.base import RoutingLayer

OTHER = "(loss, optimizer, other)"

# What the first step adds to a process beside its tensors: each operation of the graph, in Python and in TensorFlow, as
# `benchmarks/cost_estimate.py runtime` finds in chains of layers of one unit; and the kernels that are loaded and
# compiled, as measured with a convolutional network at batch 1.
RUNTIME, EACH_OPERATION = 50 * 2**20, 16 * 2**10


@dataclasses.dataclass
class LayerCost:
    """What a layer takes. Bytes are those of a batch; a layer that is called several times counts each time.

    Attributes:
        name, kind: of the layer, and its class's.
        parameters: numbers, trained or not.
        activations: bytes of what the layer returns.
        stored_votes: bytes that the votes would take; None for a routing that this package doesn't know.
        held_votes: bytes that the layer holds of its votes, or in their stead for each pair of a child and a parent;
            None as above.
        multiply_adds: products of two numbers in the forward pass, each with the addition that mostly follows.
        kept: bytes made in the layer's forward pass that are there when memory is at its peak.
        unknown: kinds of operations whose multiply-adds are not counted; "" for none.
    """

    name: str
    kind: str
    parameters: int = 0
    activations: int = 0
    stored_votes: int | None = 0
    held_votes: int | None = 0
    multiply_adds: int = 0
    kept: int = 0
    unknown: str = ""


@dataclasses.dataclass
class Cost:
    """What a network takes, in a training step or an inference; `str()` gives a table.

    Attributes:
        layers: a `LayerCost` for each layer, and a last one, `OTHER`, for what belongs to none.
        batch_size: examples.
        training: whether it is a training step.
        multiply_adds: of the whole step, in training with those of the gradient and of the optimizer.
        memory: bytes by what they are for: "weights", "optimizer" (its slots), "inputs", "activations" (kept from the
            forward pass when memory is at its peak), "working" (gradients and all else that is there at that time),
            "allocator" (what its gaps and its books take) and "runtime" (TensorFlow's first step, and the graph).
    """

    layers: list
    batch_size: int
    training: bool
    multiply_adds: int
    memory: dict

    @property
    def peak(self):
        """Bytes, beyond those of a process that has imported its libraries."""
        return sum(self.memory.values())

    def total(self, name):
        """The sum of a number over the layers, those left out that have none."""
        return sum(getattr(layer, name) or 0 for layer in self.layers)

    def __str__(self):
        columns = ("layer", "kind", "parameters", "activations", "stored votes", "held votes", "multiply-adds", "kept")
        rows = [
            (
                layer.name,
                layer.kind,
                f"{layer.parameters:,}",
                *(_mib(getattr(layer, name)) for name in ("activations", "stored_votes", "held_votes")),
                f"{layer.multiply_adds:,}" + (" + ?" if layer.unknown else ""),
                _mib(layer.kept),
            )
            for layer in self.layers
        ]
        names = ("activations", "stored_votes", "held_votes")
        rows.append(
            (
                "in all",
                "",
                f"{self.total('parameters'):,}",
                *(_mib(self.total(name)) for name in names),
                f"{self.total('multiply_adds'):,}",
                _mib(self.total("kept")),
            )
        )
        widths = [max(len(row[i]) for row in (columns, *rows)) for i in range(len(columns))]
        lines = [
            "  ".join(text.ljust(width) if i < 2 else text.rjust(width) for i, (text, width) in enumerate(pairs))
            for pairs in (zip(row, widths, strict=True) for row in (columns, *rows))
        ]
        lines.insert(1, "-" * len(lines[0]))
        lines.insert(-1, lines[1])
        lines += [f"{layer.name}: not counted are the multiply-adds of {layer.unknown}" for layer in self._uncounted]
        what = "a training step" if self.training else "an inference"
        parts = ", ".join(f"{name} {_mib(size)}" for name, size in self.memory.items())
        return "\n".join(
            [
                *lines,
                f"Bytes in MiB, of a batch of {self.batch_size}. Multiply-adds of layers: of the forward pass; "
                f"{what} has {self.multiply_adds:,}.",
                f"Peak memory of {what}: {_mib(self.peak)} MiB ({parts}).",
            ]
        )

    @property
    def _uncounted(self):
        return [layer for layer in self.layers if layer.unknown]


def estimate_cost(model, batch_size, training=True, size=None, targets=None):
    """What a network will take, from the graph of its step: nothing is computed, and no activation is made.

    Memory is that of TensorFlow's executor on a CPU, without XLA: `tf_capsules.analysis.graph_costs` says how it is
    counted.

    Args:
        model: a Keras model with known inputs, functional or a `CapsuleClassifier`, of any layers; for a training step
            compiled, by `compile`.
        batch_size: examples.
        training: whether a training step or an inference is meant.
        size: of each further axis of the inputs whose size is unknown, such as a text's tokens.
        targets: what the labels look like, a `keras.KerasTensor` without the batch's axis or a structure of these; None
            for class numbers.

    Returns:
        A `Cost`.

    Raises:
        ValueError: another backend than TensorFlow, a batch size below 1, a model without inputs or, for training, not
            compiled; inputs of unknown size.

    Example:
        >>> from tf_capsules.models.tsai2020 import AttentionCapsNet
        >>> cost = estimate_cost(AttentionCapsNet((32, 32, 3), classes=10), batch_size=128, training=False)
        >>> cost.total("parameters"), round(cost.memory["weights"] / 2**20, 1)
        (561297, 2.1)
    """
    if keras.backend.backend() != "tensorflow":
        raise ValueError(f"Costs are read off TensorFlow's graphs. Received the backend: {keras.backend.backend()}")
    batch_size = positive_int("batch_size", batch_size)
    if training and not getattr(model, "compiled", False):
        raise ValueError(f"A training step needs a compiled model: its loss and optimizer. Received: {model!r}")
    import tensorflow as tf

    from tf_capsules.analysis import graph_costs

    inputs = _specs(model, batch_size, size)
    layers = list(_layers(model))
    calls = {layer: [] for layer in layers}
    with _watched(calls):
        if training:
            model.optimizer.build(model.trainable_variables)
            labels = _target_specs(targets, batch_size)
            graph = tf.function(lambda x, y: model.train_step((x, y))).get_concrete_function(inputs, labels).graph
        else:
            graph = tf.function(lambda x: model(x, training=False)).get_concrete_function(inputs).graph

    rows = [_layer_cost(layer, calls[layer], graph_costs.size_of) for layer in layers] + [LayerCost(OTHER, "")]
    of_layers = {id(weight) for layer in layers for weight in layer.weights}
    rows[-1].parameters = sum(math.prod(weight.shape) for weight in model.weights if id(weight) not in of_layers)
    counts, unknown = graph_costs.multiply_adds(graph)
    for op, count in counts.items():
        number, forward = _place(op)
        rows[number].multiply_adds += count if forward else 0
    for op, kinds in unknown.items():
        row = rows[_place(op)[0]]
        row.unknown = ", ".join(sorted({*filter(None, row.unknown.split(", ")), *kinds.split(", ")}))
    weights, slots = _bytes(model.variables), _bytes(model.optimizer.variables if training else ())
    peak = graph_costs.peak_memory(graph, weights + slots)
    for size, op in peak.holders:
        number, forward = _place(op)
        rows[number].kept += size if forward else 0
    kept = sum(row.kept for row in rows)
    return Cost(
        rows,
        batch_size,
        training,
        sum(counts.values()),
        {
            "weights": sum(weights),
            "optimizer": sum(slots),
            "inputs": sum(graph_costs.size_of(spec) for spec in tf.nest.flatten(inputs)),
            "activations": kept,
            "working": peak.total - kept,
            "allocator": peak.resident - peak.total,
            "runtime": RUNTIME + EACH_OPERATION * len(graph.get_operations()),
        },
    )


def _specs(model, batch_size, size):
    """What the model takes, as TensorFlow's specs of known shape."""
    import tensorflow as tf

    network = getattr(model, "encoder", model)
    if isinstance(network, keras.Sequential) and network.built:
        inputs = network.inputs[0]
    else:
        inputs = getattr(network, "input", None)
    if inputs is None:
        raise ValueError(f"Costs need a model that knows its inputs, a functional one. Received: {model!r}")

    def spec(tensor):
        shape = [batch_size, *(size if known is None else known for known in tensor.shape[1:])]
        if None in shape:
            raise ValueError(
                f"The input {tensor.name!r} of shape {tuple(tensor.shape)} has axes of unknown size: say with `size` "
                "how large each is to be, --size on the command line."
            )
        return tf.TensorSpec(shape, tensor.dtype)

    return keras.tree.map_structure(spec, inputs)


def _target_specs(targets, batch_size):
    import tensorflow as tf

    targets = keras.KerasTensor((), "int64") if targets is None else targets
    return keras.tree.map_structure(lambda t: tf.TensorSpec((batch_size, *t.shape), t.dtype), targets)


def _layers(model):
    """The layers that a table has rows for: those of models and of chains inside, each once, in order."""
    found = {}
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            found |= dict.fromkeys(_layers(layer))
        elif isinstance(layer, ConcurrentRouting):
            found |= dict.fromkeys(layer.chain)
        elif not isinstance(layer, keras.layers.InputLayer):
            found[layer] = None
    return list(found)


@contextlib.contextmanager
def _watched(calls):
    """Within it each layer notes what it is called with and returns, and its operations stand in a scope of its own."""
    import tensorflow as tf

    def watch(number, layer):
        call = layer.call

        @functools.wraps(call)
        def watched(*args, **options):
            with tf.name_scope(f"cost_{number}_"):
                results = call(*args, **options)
            calls[layer].append((args, options, results))
            return results

        return watched

    for number, layer in enumerate(calls):
        layer.call = watch(number, layer)
    try:
        yield
    finally:
        for layer in calls:
            del layer.call


def _place(op):
    """The number of the layer's row that an operation belongs to, -1 for none, and whether it is of a forward pass."""
    found = re.search(r"(?:^|/)cost_(\d+)_(?:_\d+)?/", op.name)
    return (-1 if found is None else int(found.group(1))), found is not None and "gradient_tape" not in op.name


def _layer_cost(layer, calls, size_of):
    tensors = [t for *_, results in calls for t in keras.tree.flatten(results) if hasattr(t, "shape")]
    parameters = sum(math.prod(weight.shape) for weight in layer.weights)
    cost = LayerCost(layer.name, type(layer).__name__, parameters, sum(map(size_of, tensors)))
    if isinstance(layer, RoutingLayer):
        for args, options, _ in calls:
            later = options.get("parents") is not None
            votes = layer.votes_cost(tuple(args[0].shape), later, options.get("capsules"))
            # The votes of further iterations are the same ones.
            cost.stored_votes = max(cost.stored_votes, votes.tensor)
            cost.held_votes = max(cost.held_votes, votes.held)
    elif "return_couplings" in inspect.signature(layer.call).parameters:
        cost.stored_votes = cost.held_votes = None
    return cost


def _bytes(variables):
    import tensorflow as tf

    return [math.prod(v.shape) * tf.as_dtype(v.dtype).size for v in variables]


def _mib(size):
    return "?" if size is None else f"{size / 2**20:,.1f}"
