"""The coupling coefficients of a network's routing layers, and two numbers that sum them up."""

import numpy as np

from tf_capsules.analysis.inference import graph_of, inputs_at, to_numpy
from tf_capsules.analysis.routing_layers import gives_couplings, present_children, stopped_layers
from tf_capsules.models.feedback import without_feedback

DEAD = 0.1  # a capsule that gets less than this part of an even share counts as dead


def measure_couplings(model, inputs):
    """The coupling coefficients of each routing layer after each of its iterations.

    Args:
        model: a `CapsuleClassifier`, a functional model, or a Sequential that knows its input, with a routing layer
            that is not part of a model within; else a ValueError. With feedback units, it is measured without them.
        inputs: a batch of the model's inputs.

    Returns:
        Dict from layer name to a list of arrays (batch, ..., children, parents), one for each iteration; 0 for children
        that take no part, such as the padding of texts. A `ConcurrentRouting` gives an entry for each layer of its
        chain. Layers of your own are found by `return_couplings`; one without `iterations` is measured once. Where a
        model calls a layer several times, the first call is measured.

    Example:
        >>> {name: len(each) for name, each in measure_couplings(model, images).items()}
        {'class_capsules': 3}
    """
    model = without_feedback(model)
    found = {}
    for layer in filter(gives_couplings, graph_of(model).layers):
        children = inputs_at(layer, model)(inputs)
        if hasattr(layer, "chain"):
            results = layer(*children, return_iterations=True)
            for number, one in enumerate(layer.chain):
                each = (couplings_at(layer, children, results, number, at) for at in range(layer.iterations))
                found[one.name] = [couplings for _, couplings in each]
        else:
            couplings = [to_numpy(one(*children, return_couplings=True)[-1]) for one in stopped_layers(layer)]
            present = present_children(layer, children, couplings[0].shape[:-1])
            found[layer.name] = [np.where(present, each, 0) for each in couplings]
    if not found:
        inner = "layers of models within it do not count"
        raise ValueError(f"The model {model.name!r} has no layer whose call takes `return_couplings`; {inner}.")
    return found


def couplings_at(routing, lowest, found, number, at):
    """The children (a tuple) and the couplings of layer `number` of a `ConcurrentRouting` in iteration `at`.

    Both numbers count from 0. `lowest`: the inputs of the lowest layer. `found`: the result of `return_iterations`.
    """
    children, given = lowest[:2], dict(zip(["mask"], lowest[2:], strict=False))  # of a `ConcurrentRouting`'s call
    if number > 0:
        given = {}
        # Concurrent: iteration 0 reads the layer below in the same iteration, a later one in the iteration before.
        children = found[number - 1][-1 if routing.schedule == "sequential" else max(at - 1, 0)]
    children = tuple(children) if isinstance(children, (tuple, list)) else (children,)
    parents = found[number][at - 1] if at > 0 else None
    return children, to_numpy(routing.chain[number](*children, parents=parents, return_couplings=True, **given)[-1])


def last_couplings(routing, lowest):
    """The couplings that made a layer's result: (layer, its children as a tuple, couplings).

    Of a `ConcurrentRouting` those that made the last layer's result, for each layer of its chain, the lowest first.
    With a concurrent schedule, each is one iteration earlier than the layer above. Arguments: see `couplings_at`.
    """
    if not hasattr(routing, "chain"):
        return [(routing, lowest, to_numpy(routing(*lowest, return_couplings=True)[-1]))]
    found = routing(*lowest, return_iterations=True)
    at, results = routing.iterations - 1, []
    for number in reversed(range(len(routing.chain))):
        results.insert(0, (routing.chain[number], *couplings_at(routing, lowest, found, number, at)))
        if routing.schedule == "concurrent":
            at = max(at - 1, 0)
    return results


def coupling_entropy(couplings):
    """Mean entropy of a child's couplings, divided by that of even couplings: 1 is even, 0 is all to one parent.

    `couplings` is (..., children, parents). A child with couplings of 0 is left out. NaN if any is negative or NaN.

    >>> round(coupling_entropy(np.array([[0.5, 0.5], [1.0, 0.0]])), 3)
    0.5
    """
    parents = couplings.shape[-1]
    mass = couplings.sum(-1)
    shares = couplings[mass > 0] / mass[mass > 0][:, None]
    if not (couplings >= 0).all():
        return float("nan")
    if parents == 1 or not len(shares):
        return 0.0
    entropies = -(shares * np.log(np.maximum(shares, 1e-30))).sum(-1)
    return float(np.clip(entropies.mean() / np.log(parents), 0, 1))


def dead_capsules(couplings):
    """Share of parents that get less than a tenth of an even share in every example. Couplings: (batch, ..., parents).

    NaN if any coupling is negative or NaN.

    >>> dead_capsules(np.array([[[0.5, 0.49, 0.01]], [[0.01, 0.98, 0.01]]])) * 3
    1.0
    """
    masses = couplings.reshape(len(couplings), -1, couplings.shape[-1]).sum(1)
    relative = masses / np.maximum(masses.mean(-1, keepdims=True), 1e-30)
    return float((relative.max(0) < DEAD).mean()) if (couplings >= 0).all() else float("nan")
