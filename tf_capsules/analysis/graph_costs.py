"""What a TensorFlow graph takes to run: its multiply-adds, and its memory by when each tensor is made and last read.

Nothing is run: shapes, batch included, are those of the graph. The order is that of TensorFlow's executor, which runs
what is ready first come, first served. A tensor's buffer lives from the operation that makes it to the last one that
reads it; operations that only rename a tensor share its buffer, and those that work entry by entry take over that of
an input nobody else waits for, as TensorFlow's kernels do.
"""

import collections
import dataclasses
import math

from tf_capsules.analysis.best_fit import BestFit

# Operations that give another name or shape to a buffer.
_RENAME = set(
    "Bitcast CheckNumerics ExpandDims Identity IdentityN PreventGradient Reshape Squeeze StopGradient".split()
)
# Operations that work entry by entry, in the buffer of an input where they can.
_IN_PLACE = set(
    "Abs Add AddN AddV2 BiasAdd Cast ClipByValue Cos Div DivNoNan Elu EluGrad Erf Exp Expm1 FloorDiv Inv InvGrad "
    "LeakyRelu LeakyReluGrad Log Log1p LogSoftmax Maximum Minimum Mul Neg OnesLike Pow RealDiv Reciprocal "
    "ReciprocalGrad Relu Relu6 Relu6Grad ReluGrad Rsqrt RsqrtGrad Select SelectV2 Selu SeluGrad Sigmoid SigmoidGrad "
    "Sign Sin Softmax Softplus SoftplusGrad Sqrt SqrtGrad Square SquaredDifference Sub Tanh TanhGrad ZerosLike".split()
)
# Operations that hold no buffer of their own: constants, inputs and weights, which are counted elsewhere.
_ELSEWHERE = set("Const Placeholder PlaceholderWithDefault ReadVariableOp VarHandleOp".split())
_UPDATES = ("Assign", "ResourceApply", "ResourceScatter", "ResourceSparse")
# Operations that multiply entry by entry, once for each entry of their result.
_PRODUCTS = set("FusedBatchNormV3 FusedBatchNormGradV3 Mul Square SquaredDifference".split())
# Operations without products of two arrays: data moved, compared, summed, divided, put through a function.
_NO_PRODUCTS = _RENAME | _IN_PLACE | _ELSEWHERE
_NO_PRODUCTS |= set(
    "All Any ArgMax ArgMin Assert AssignAddVariableOp AssignSubVariableOp AssignVariableOp AvgPool AvgPool3D "
    "AvgPool3DGrad AvgPoolGrad BatchToSpaceND BiasAddGrad BitwiseAnd BroadcastGradientArgs BroadcastTo Bucketize "
    "Ceil Concat ConcatOffset ConcatV2 Cumsum DepthToSpace Diag EmptyTensorList Equal Fill Floor FloorMod Gather "
    "GatherNd GatherV2 Greater GreaterEqual InvertPermutation IsFinite IsInf IsNan L2Loss LeftShift Less LessEqual "
    "LinSpace LogicalAnd LogicalNot LogicalOr MatrixBandPart MatrixDiagPartV3 MatrixDiagV3 MatrixSetDiagV3 Max "
    "MaxPool MaxPool3D MaxPool3DGrad MaxPoolGrad MaxPoolV2 Mean Merge Min MirrorPad MirrorPadGrad Mod Multinomial "
    "NoOp NotEqual OneHot Pack Pad PadV2 Prod RandomStandardNormal RandomUniform RandomUniformInt Range Rank "
    "ResizeNearestNeighbor ResizeNearestNeighborGrad ResourceGather ReverseV2 RightShift Rint Roll Round ScatterNd "
    "SelfAdjoint Shape ShapeN Size Slice SpaceToBatchND SpaceToDepth SparseSoftmaxCrossEntropyWithLogits Split "
    "SplitV StatelessRandomGetAlg StatelessRandomGetKeyCounter StatelessRandomNormalV2 "
    "StatelessRandomUniformFullIntV2 StatelessRandomUniformIntV2 StatelessRandomUniformV2 "
    "StatelessTruncatedNormalV2 StridedSlice StridedSliceGrad Sum Switch TensorListElementShape "
    "TensorListFromTensor TensorListGetItem TensorListLength TensorListPopBack TensorListPushBack "
    "TensorListReserve TensorListSetItem TensorListStack TensorScatterUpdate Tile TopKV2 Transpose TruncatedNormal "
    "Unique Unpack UnsortedSegmentSum Where Xlogy".split()
)
_BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_LOOPS = ("While", "StatelessWhile")
_WRITES = {"TensorListSetItem": 2, "TensorListPushBack": 1}  # to lists of tensors: which input is the item


AT_ONCE = 2  # operations that run at the same time, neither of which can take over a buffer the other reads


@dataclasses.dataclass
class Peak:
    """The most bytes that a graph holds at a time.

    Attributes:
        total: bytes of buffers, the scratch of operations included.
        holders: what they are, (bytes, the operation that made them).
        resident: bytes that a process has taken in the end, by `BestFit`.
    """

    total: int = 0
    holders: list = dataclasses.field(default_factory=list)
    resident: int = 0


@dataclasses.dataclass
class _Buffer:
    size: int
    maker: object
    readers: int = 0
    pieces: list = dataclasses.field(default_factory=list)  # keys of the allocator


def peak_memory(graph, before=()):
    """The `Peak` of a `FuncGraph`, without the buffers of its inputs, its constants and of variables.

    Args:
        graph: whose needed operations are gone through once.
        before: bytes of each buffer that is there before, which the allocator has placed then; they are not counted.
    """
    operations = _needed(graph)
    buffers, live, total, peak, allocator = {}, {}, 0, Peak(), BestFit()
    for number, size in enumerate(before):
        allocator.take(("before", number), size)
    placed = allocator.resident
    readers = collections.Counter(t.ref() for op in operations for t in op.inputs)
    readers.update(t.ref() for t in graph.outputs)  # which are held to the end

    def hold(buffer, size):
        nonlocal total
        total += size
        buffer.pieces.append((buffer.maker, id(buffer), len(buffer.pieces)))
        allocator.take(buffer.pieces[-1], size)

    for together in _in_order(operations):
        touched, scratch = [], []
        for op in together:
            for number, tensor in enumerate(op.outputs):
                buffer, new = _buffer_of(op, number, tensor, buffers)
                buffers[tensor.ref()] = buffer
                if buffer is not None:
                    buffer.readers += readers[tensor.ref()]
                    if new:
                        live[id(buffer)] = buffer
                        hold(buffer, buffer.size)
                    touched.append(buffer)
            for buffer, size in _grown_lists(op, buffers):
                buffer.size += size
                hold(buffer, size)
            scratch.append(_scratch(op))
            allocator.take((op, "scratch"), scratch[-1])
        if total + sum(scratch) > peak.total:
            peak = Peak(total + sum(scratch), [(b.size, b.maker) for b in live.values()])
        for buffer in (buffers[tensor.ref()] for op in together for tensor in op.inputs):
            if buffer is not None:
                buffer.readers -= 1
                touched.append(buffer)
        for op in together:
            allocator.give_back((op, "scratch"))
        for buffer in touched:
            if not buffer.readers and id(buffer) in live:
                total -= live.pop(id(buffer)).size
                for piece in buffer.pieces:
                    allocator.give_back(piece)
    peak.resident = max(peak.total, allocator.resident - placed)
    return peak


def multiply_adds(graph):
    """Counts of products of two numbers, summed up mostly, by operation of a `FuncGraph`.

    Returns:
        A dict from each operation of the graph that has any to their number; and a dict from operations of kinds that
        are not known to the kinds. A loop's number is that of all its rounds.
    """
    counts, unknown = {}, {}
    for op in _needed(graph):
        inner = _graphs_of(op)
        if inner:
            found = [multiply_adds(g) for g in inner]
            each = [sum(own.values()) for own, _ in found]
            count = max(each) if op.type in _BRANCHES else sum(each) * (_rounds(op) or 1)
            kinds = [kind for _, own in found for kind in own.values()]
            if op.type in _LOOPS and _rounds(op) is None:
                kinds.append("a loop whose rounds are unknown")
        else:
            count, kinds = _products(op)
        if count:
            counts[op] = count
        if kinds:
            unknown[op] = ", ".join(sorted(set(kinds)))
    return counts, unknown


def size_of(tensor):
    """Bytes of a tensor; 0 for what is no array, or of unknown shape, as some indices that TensorFlow works out are."""
    if not tensor.dtype.size or tensor.dtype.name in ("resource", "variant") or not tensor.shape.is_fully_defined():
        return 0
    return tensor.shape.num_elements() * tensor.dtype.size


def _needed(graph):
    """The operations that a graph's results and updates need, in the order in which they were made."""
    operations = graph.get_operations()
    pending = [t.op for t in graph.outputs] + list(graph.control_outputs)
    pending += [op for op in operations if op.type.startswith(_UPDATES)]
    found = set()
    while pending:
        op = pending.pop()
        if op not in found:
            found.add(op)
            pending += [t.op for t in op.inputs] + list(op.control_inputs)
    return [op for op in operations if op in found]


def _in_order(operations):
    """The operations, first come, first served, those in lists together that run at the same time."""
    after, waiting = collections.defaultdict(list), {}
    for op in operations:
        before = {t.op for t in op.inputs} | set(op.control_inputs)
        waiting[op] = len(before)
        for other in before:
            after[other].append(op)
    ready = collections.deque(op for op in operations if not waiting[op])
    while ready:
        together = [ready.popleft() for _ in range(min(AT_ONCE, len(ready)))]
        yield together
        for other in (other for op in together for other in after[op]):
            waiting[other] -= 1
            if not waiting[other]:
                ready.append(other)


def _buffer_of(op, number, tensor, buffers):
    """The buffer of a result, None where it is counted elsewhere, and whether it is a new one."""
    inputs = [buffers[t.ref()] for t in op.inputs]
    if op.type in _ELSEWHERE or tensor.dtype.name == "resource":
        return None, False
    if op.type in _RENAME or op.type in _WRITES:
        return inputs[min(number, len(inputs) - 1)], False
    if op.type in _LOOPS:
        body = _graphs_of(op)[0]
        if tensor.dtype.name == "variant" or _source(body.outputs[number]) is body.inputs[number]:
            return inputs[number], False
    if op.type == "TensorListFromTensor":
        return _Buffer(size_of(op.inputs[0]), op), True
    size = size_of(tensor)
    if op.type in _IN_PLACE:
        for given, buffer in zip(op.inputs, inputs, strict=True):
            own = sum(t is given for t in op.inputs)
            if buffer is not None and buffer.size == size and buffer.readers == own:
                return buffer, False
    return _Buffer(size, op), True


def _grown_lists(op, buffers):
    """The lists that an operation, or a loop in its rounds, writes to: pairs of their buffer and what it grows by."""
    writers = [(op, op.inputs[0], _length)] if op.type in _WRITES else []
    if op.type in _LOOPS:
        rounds = _rounds(op) or 1
        for number, result in enumerate(_graphs_of(op)[0].outputs):
            writer = _source(result).op
            if writer.type in _WRITES:
                pushes = writer.type == "TensorListPushBack"
                writers.append(
                    (writer, op.inputs[number], lambda given, n=rounds, p=pushes: n if p else _length(given))
                )
    for writer, given, count in writers:
        item = writer.inputs[_WRITES[writer.type]]
        buffer, size = buffers[given.ref()], size_of(item) * (count(given) or 1)
        if buffer is not None and size > buffer.size:
            yield buffer, size - buffer.size


def _scratch(op):
    """Bytes that an operation needs for itself while it runs."""
    inner = _graphs_of(op)
    if inner:
        return max(peak_memory(g).total for g in inner)
    if op.type == "Einsum":
        return _einsum_copies(op)
    if "Conv2D" in op.type or "Conv3D" in op.type:
        # oneDNN puts a kernel into an order of its own, before or, as its gradient, after the convolution.
        return size_of(op.outputs[0] if "BackpropFilter" in op.type else op.inputs[1])
    return 0


def _einsum_copies(op):
    """Copies of operands and result that are not in the order of a product of matrices: batch, one side, the other."""
    sides, result = _labels(op)
    if len(sides) < 2:
        return 0
    kinds = {}
    for label in {*sides[0], *sides[1]}:
        kept, both = label in result, label in sides[0] and label in sides[1]
        kinds[label] = "batch" if kept and both else "summed" if both else "left" if label in sides[0] else "right"

    def runs(labels):
        return [kind for n, kind in enumerate(map(kinds.get, labels)) if n == 0 or kind != kinds[labels[n - 1]]]

    copies = 0
    for tensor, labels in zip((*op.inputs, op.outputs[0]), (*sides, result), strict=True):
        order = runs(labels)
        good = len(set(order)) == len(order) and "batch" not in order[1:]
        if labels is result:
            good = good and order[-1:] != ["left"]
        copies += 0 if good else size_of(tensor)
    return copies


def _labels(op):
    left, right = op.get_attr("equation").decode().replace("...", "").split("->")
    return left.split(","), right


def _products(op):
    """How many products of two numbers an operation has, and, in a list, its kind if that is not known."""
    kind = op.type
    if kind in _PRODUCTS:
        return op.outputs[0].shape.num_elements() or 0, []
    if kind in _NO_PRODUCTS:
        return 0, []
    if kind in ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"):
        turned = op.get_attr("transpose_a" if kind == "MatMul" else "adj_x")
        shape = op.inputs[0].shape
        return _elements(op.outputs[0]) * shape[-2 if turned else -1], []
    if kind == "Einsum":
        sizes = {}
        for tensor, labels in zip(op.inputs, _labels(op)[0], strict=True):
            sizes |= dict(zip(labels, tensor.shape[-len(labels) :] if labels else (), strict=True))
        return math.prod(sizes.values()) if len(op.inputs) > 1 else 0, []
    for name, skipped in (("DepthwiseConv2dNative", 2), ("Conv2D", 1), ("Conv3D", 1)):
        if kind.startswith(name):
            # For each entry of what comes out of it, in the gradients of what comes back, the kernel's entries that
            # lead there; TensorFlow has the kernel as (*window, channels, ...).
            filters = op.outputs[0] if "BackpropFilter" in kind else op.inputs[1]
            entries = op.inputs[2] if "Backprop" in kind else op.outputs[0]
            return _elements(entries) * math.prod(filters.shape[:-skipped]), []
    return 0, [kind]


def _elements(tensor):
    return tensor.shape.num_elements() or 0


def _graphs_of(op):
    """The graphs inside an operation: of a loop its body, of a branch all of them, of a call the one called."""
    if op.type in _LOOPS:
        names = [op.get_attr("body").name]
    elif op.type in ("If", "StatelessIf"):
        names = [op.get_attr(branch).name for branch in ("then_branch", "else_branch")]
    elif op.type in _BRANCHES:
        names = [branch.name for branch in op.get_attr("branches")]
    elif op.type in _CALLS:
        names = [op.get_attr("f").name]
    else:
        return []
    return [_graph(op.graph, name) for name in names]


def _graph(graph, name):
    # TensorFlow has no public way from a name to the graph it stands for.
    while graph is not None:
        function = graph._get_function(name)
        if function is not None:
            return function.graph
        graph = getattr(graph, "outer_graph", None)
    raise ValueError(f"The graph of {name!r} is not to be found.")


def _source(tensor):
    while tensor.op.type in _RENAME:
        tensor = tensor.op.inputs[0]
    return tensor


def _rounds(op):
    """How often a loop's body runs, None where that is not known before."""
    condition = _graph(op.graph, op.get_attr("cond").name)
    counts = []
    for test in condition.get_operations():
        if test.type == "Less":
            bound = _whole(test.inputs[1], dict(zip([t.ref() for t in condition.inputs], op.inputs, strict=False)))
            counts += [] if bound is None or bound < 0 else [bound]
    return min(counts, default=None)


def _whole(tensor, given=None):
    """A whole number that is known before the graph runs, or None."""
    import tensorflow as tf

    if given and tensor.ref() in given:
        return _whole(given[tensor.ref()])
    op = tensor.op
    if op.type in _LOOPS and tensor is op.outputs[0]:  # what counts the rounds of another loop
        return _rounds(op)
    if op.type == "StridedSlice" and not tensor.shape.rank:
        values, first = tf.get_static_value(op.inputs[0]), tf.get_static_value(op.inputs[1])
        return None if values is None or first is None else int(values[int(first[0])])
    value = tf.get_static_value(tensor) if not tensor.shape.rank else None
    return None if value is None else int(value)


def _length(tensor):
    """Number of elements of a list of tensors, None where it is not known."""
    op = tensor.op
    while op.type in _RENAME or op.type in _WRITES:
        op = op.inputs[0].op
    if op.type == "TensorListReserve":
        return _whole(op.inputs[1])
    if op.type == "TensorListFromTensor":
        return op.inputs[0].shape[0]
    return None
