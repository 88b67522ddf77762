"""What the analysis asks of routing layers."""

import inspect

import numpy as np
from keras import ops

from tf_capsules.analysis.inference import graph_of, to_numpy
from tf_capsules.layers.base import RoutingLayer


def find_layer(model, name, chain=False):
    """The fully connected routing layer of this name in a network, or with `chain` the `ConcurrentRouting`."""
    layer = graph_of(model).get_layer(name)
    if chain:
        fits, wanted = hasattr(layer, "chain"), "a chain of capsule layers"
    else:
        wanted = "a fully connected routing layer with a fixed number of capsules"
        fits = isinstance(layer, RoutingLayer) and layer.windows is None and layer.capsules is not None
    if not fits:
        raise ValueError(f"The layer {name!r} is a {type(layer).__name__}, not {wanted}.")
    return layer


def gives_couplings(layer):
    """Whether the layer, or the layers of its chain, can return coupling coefficients."""
    return hasattr(layer, "chain") or "return_couplings" in inspect.signature(layer.call).parameters


def check_shares(layer):
    """Raises a ValueError unless the couplings of a layer say how a child's votes are divided, and nothing else."""
    if not getattr(layer, "couplings_are_shares", True):
        raise ValueError(f"The couplings of the layer {layer.name!r} are no shares: they contain a learned prior.")


def stopped_layers(routing, iterations=None):
    """Copies of a layer that share its weights and stop after 1, 2, ... iterations; None: as many as the layer has.

    A layer without a number of iterations is returned alone.
    """
    count = iterations or getattr(routing, "iterations", None)
    return [routing] if count is None else [_stopped(routing, number) for number in range(1, count + 1)]


def _stopped(routing, iterations):
    # All else is shared. A configuration would not do: it need not hold functions of the user's own.
    layer, changes = object.__new__(type(routing)), {"iterations": iterations}
    if isinstance(temperatures := getattr(routing, "inverse_temperature", None), (tuple, list)):
        changes["inverse_temperature"] = temperatures[:iterations]
    vars(layer).update(vars(routing))
    for name, value in changes.items():
        object.__setattr__(layer, name, value)  # an error for what can't be set, such as a property
    return layer


def activations_of(routing, children):
    """The activations (batch, ...) among a layer's inputs (a tuple); None without any, or if couplings contain them."""
    contained = getattr(routing, "couplings_contain_activations", False)  # a layer of your own need not say
    if contained or len(children) < 2 or children[1] is None:
        return None
    logits = "logits" in inspect.signature(routing.call).parameters
    return to_numpy(ops.sigmoid(children[1]) if logits else children[1])


def present_children(routing, children, shape):
    """Whether each child takes part, (*shape, 1), by the activations and the mask among a layer's inputs (a tuple).

    `shape`: that of its couplings, without the parents. A layer of your own counts all children.
    """
    present = np.ones((*shape, 1), bool)
    if isinstance(routing, RoutingLayer):
        keras_mask = getattr(children[0], "_keras_mask", None)  # such as of `Masking`, where there are two arrays
        given = dict(zip(inspect.signature(routing.call).parameters, children, strict=False))
        for one in (activations_of(routing, children), given.get("mask", keras_mask)):
            if one is not None:
                one = one if routing.windows is None else to_numpy(routing.windows.gather(ops.convert_to_tensor(one)))
                present &= np.reshape(one, present.shape) > 0
    return present


def bytes_of_votes(layer, calls):
    """Bytes of a layer's votes as one tensor, and bytes that it holds; Nones for a layer of your own that routes."""
    if not isinstance(layer, RoutingLayer):
        return (None, None) if any(map(gives_couplings, layer._flatten_layers())) else (0, 0)
    found, signature = [], inspect.signature(layer.call)
    for args, options, _ in calls:
        given = signature.bind(*args, **options).arguments
        asked = given.get("parents") is not None, given.get("capsules"), given.get("return_couplings", False)
        found.append(layer.votes_cost(tuple(given["poses"].shape), *asked))
    # Further iterations have the same votes.
    return max((one.tensor for one in found), default=0), max((one.held for one in found), default=0)
