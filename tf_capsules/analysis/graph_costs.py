"""Counts the multiply-adds of a TensorFlow graph, and the bytes of the tensors that exist at a time. Runs nothing."""

import collections
import math
import re

import keras

from tf_capsules.lazy import tf

# Bytes that a first step adds to a process besides its tensors: once for the kernels, and for each operation of the
# graph. `benchmarks/cost_estimate.py runtime` measures both.
RUNTIME, EACH_OPERATION = 50 * 2**20, 16 * 2**10

# Operations whose result is their input under another name or shape.
_RENAME = set(
    "Bitcast CheckNumerics ExpandDims Identity IdentityN PreventGradient Reshape Squeeze StopGradient".split()
)
# Operations whose results are counted elsewhere: constants, inputs and weights.
_ELSEWHERE = set("Const Placeholder PlaceholderWithDefault ReadVariableOp VarHandleOp".split())
# Operations that multiply once for each entry of their result.
_ENTRYWISE = set("FusedBatchNormV3 FusedBatchNormGradV3 Mul Square SquaredDifference".split())
_LOOPS = ("While", "StatelessWhile")
# The attributes of operations that name graphs inside.
_INNER = {"PartitionedCall": ["f"], "StatefulPartitionedCall": ["f"], **{name: ["body"] for name in _LOOPS}}
_INNER |= {name: ["then_branch", "else_branch"] for name in ("If", "StatelessIf")}


def scope(number):
    """A name scope: the names of the operations in it say which row of the table they belong to."""
    return tf.name_scope(f"cost_{number}_")


def trace(model, inputs, labels=None):
    """The graph of a training step on inputs and labels (`keras.KerasTensor`s); without labels, of an inference."""
    given = [inputs] if labels is None else [inputs, labels]
    specs = keras.tree.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), given)
    step = (lambda x: model(x, training=False)) if labels is None else (lambda x, y: model.train_step((x, y)))
    return tf.function(step, autograph=False).get_concrete_function(*specs).graph


def measure(graph, rows):
    """What a step takes, see `costs.py`. `rows` is the number of rows; the last one is for what belongs to no layer."""
    counts, tensors = multiply_adds(graph), peak_tensors(graph)
    layers = [[0, 0] for _ in range(rows)]
    for part, amounts in enumerate((counts.items(), ((op, size) for size, op in tensors))):
        for op, amount in amounts:
            row = re.search(r"(?:^|/)cost_(\d+)_(?:_\d+)?/", op.name)
            if row is not None and "gradient_tape" not in op.name:  # of a layer's forward pass
                layers[int(row.group(1))][part] += amount
    kept = sum(kept for _, kept in layers)
    working = sum(size for size, _ in tensors) - kept
    runtime = RUNTIME + EACH_OPERATION * len(graph.get_operations())
    return sum(counts.values()), {"activations": kept, "working": working, "runtime": runtime}, layers


def multiply_adds(graph):
    """Products of two numbers, by operation. A loop counts all its rounds; a condition counts its larger branch."""
    counts = {}
    for op in needed(graph):
        inner = [sum(multiply_adds(one).values()) for one in _graphs_of(op)]
        count = max(inner) * (_rounds(op) if op.type in _LOOPS else 1) if inner else _products(op)
        if count:
            counts[op] = count
    return counts


def peak_tensors(graph):
    """The tensors of a `FuncGraph` that exist when they take the most bytes, as a list of (bytes, operation).

    Operations count as run one after the other, in the order of tracing. A tensor exists from the operation that makes
    it to the last one that reads it. Inputs, constants and variables are left out.
    """
    operations = needed(graph)
    readers = collections.Counter(t.ref() for op in operations for t in op.inputs)
    readers.update(t.ref() for t in graph.outputs)
    owners, unread, live, total, most, peak = {}, collections.Counter(), {}, 0, 0, []
    for op in operations:
        for index, tensor in enumerate(op.outputs):
            ref = tensor.ref()
            owner = owners[ref] = owners[op.inputs[index].ref()] if op.type in _RENAME else ref
            if owner == ref and op.type not in _ELSEWHERE:
                live[ref] = size_of(tensor), op
                total += size_of(tensor)
            unread[owner] += readers[ref]
        scratch = max((sum(size for size, _ in peak_tensors(one)) for one in _graphs_of(op)), default=0)
        if total + scratch > most:
            most, peak = total + scratch, [*live.values(), (scratch, op)]
        for owner in {owners[t.ref()] for t in (*op.inputs, *op.outputs)}:
            unread[owner] -= sum(owners[t.ref()] == owner for t in op.inputs)
            if not unread[owner] and owner in live:
                total -= live.pop(owner)[0]
    return peak


def size_of(tensor):
    """Bytes of a tensor or a variable; 0 if it is no array or its shape is unknown."""
    dtype, shape = tf.as_dtype(tensor.dtype), tf.TensorShape(tensor.shape)
    if not dtype.size or dtype.name in ("resource", "variant") or not shape.is_fully_defined():
        return 0
    return shape.num_elements() * dtype.size


def needed(graph):
    """The operations that a graph's results and updates need, in the order in which they were traced."""
    pending, found = [t.op for t in graph.outputs] + list(graph.control_outputs), set()
    while pending:
        op = pending.pop()
        if op not in found:
            found.add(op)
            pending += [t.op for t in op.inputs] + list(op.control_inputs)
    return [op for op in graph.get_operations() if op in found]


def _products(op):
    shapes = [t.shape for t in op.inputs]
    if op.type in _ENTRYWISE:
        return op.outputs[0].shape.num_elements() or 0
    if not all(shape.is_fully_defined() for shape in shapes):
        return 0  # a size is known only when the graph runs
    if op.type in ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"):
        turned = op.get_attr("transpose_a" if op.type == "MatMul" else "adj_x")
        return op.outputs[0].shape.num_elements() * shapes[0][-2 if turned else -1]
    if op.type == "Einsum" and len(shapes) > 1:
        sides, result = op.get_attr("equation").decode().split("->")
        sizes = {}
        for shape, labels in zip(shapes, sides.split(","), strict=True):
            before, _, after = labels.partition("...")
            sizes |= dict(zip(before, shape, strict=False))
            sizes |= dict(zip(after, shape[len(shape) - len(after) :], strict=True))
        summed = math.prod(size for label, size in sizes.items() if label not in result)
        return op.outputs[0].shape.num_elements() * summed
    for name, skipped in (("DepthwiseConv2dNative", 2), ("Conv2D", 1), ("Conv3D", 1)):
        if op.type.startswith(name):
            # Each entry of the result (in a gradient: of the incoming gradient) meets the kernel without its last axes.
            kernel = op.outputs[0].shape if "BackpropFilter" in op.type else shapes[1]
            entries = shapes[2] if "Backprop" in op.type else op.outputs[0].shape
            return entries.num_elements() * math.prod(kernel[:-skipped])
    return 0


def _graphs_of(op):
    return [_graph(op.graph, op.get_attr(name).name) for name in _INNER.get(op.type, ())]


def _graph(graph, name):
    # TensorFlow has no public way from a function's name to its graph.
    while graph is not None:
        function = graph._get_function(name)
        if function is not None:
            return function.graph
        graph = getattr(graph, "outer_graph", None)
    raise ValueError(f"The graph of {name!r} was not found.")


def _rounds(op):
    """How often the body of a loop runs: as a bound on a growing number in its condition says; 1 without one."""
    condition = _graph(op.graph, op.get_attr("cond").name)
    given = {t.ref(): value for t, value in zip(condition.inputs, op.inputs, strict=False)}
    rounds = []
    for test in condition.get_operations():
        if test.type in ("Less", "LessEqual"):
            start, bound = (_number(given.get(side.ref(), side)) for side in test.inputs)
            rounds += [] if bound is None else [bound - (start or 0) + (test.type == "LessEqual")]
    return min((count for count in rounds if count > 0), default=1)


def _number(tensor):
    """A whole number that is known before the graph runs, or None."""
    op = tensor.op
    if op.type in _LOOPS and tensor is op.outputs[0]:  # the counter of another loop, after its end
        return _rounds(op)
    if op.type == "StridedSlice" and not tensor.shape.rank:  # an entry of a known shape
        values, first = tf.get_static_value(op.inputs[0]), tf.get_static_value(op.inputs[1])
        return None if values is None or first is None else int(values[int(first[0])])
    value = tf.get_static_value(tensor) if not tensor.shape.rank else None
    return None if value is None else int(value)
