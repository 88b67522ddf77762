"""From which places of an image each class capsule took its votes."""

import numpy as np
from keras import ops

from tf_capsules.analysis.couplings import last_couplings
from tf_capsules.analysis.inference import in_batches, to_numpy
from tf_capsules.analysis.routing_layers import route_again


def measure_routing_maps(model, images, layer="routing", batch_size=20):
    """From which places of an image each class capsule took its votes.

    Source: the routing of Tsai et al. 2020. The couplings divide a primary capsule's votes among the capsules of each
    layer above. They are those of the iterations that made the class capsules (`couplings.last_couplings`).

    Args:
        model: a `CapsuleClassifier`, or a functional model, with a `ConcurrentRouting` of capsules on a grid.
        images, layer, batch_size: see `measure_pose_changes`.

    Returns:
        (batch, rows, columns, classes): the share of each class in what the primary capsules at a place sent up. The
        shares sum to 1 over the classes; they are 0 where no window of a convolution looks.

    Raises:
        ValueError: a layer of another kind, capsules that are not on a grid, or images of another shape.
    """
    maps = []
    for batch in in_batches(model, images, batch_size):
        routing, lowest, found = route_again(model, batch, layer)
        shape = tuple(lowest[0].shape)
        if len(shape) < 5:
            raise ValueError(f"The capsules below {layer!r} are not on a grid. Received shape {shape}.")
        shares = None
        for own, _, couplings in reversed(last_couplings(routing, lowest, found)):
            shares = shares_below(own, couplings, shares)
        maps.append(shares.reshape(*shape[:4], -1).sum(axis=3))
    return normalized(np.concatenate(maps))


def normalized(shares):
    """Shares that sum to 1 over the last axis, or to 0 where all are 0."""
    total = shares.sum(axis=-1, keepdims=True)
    return np.divide(shares, total, out=np.zeros_like(shares), where=total > 0)


def shares_below(layer, couplings, shares=None):
    """Follows shares of the classes, (batch, parents, classes), down to a layer's children, (batch, children, classes).

    The couplings are (batch, children, parents) or, in windows, (batch, new height, new width, children of a window,
    parents). Without shares the parents are the classes.
    """
    if couplings.ndim == 3:
        return couplings if shares is None else couplings @ shares
    flat = couplings.reshape(-1, *couplings.shape[3:])  # a window each
    upward = flat if shares is None else flat @ shares.reshape(len(flat), couplings.shape[4], -1)
    each = [to_numpy(layer.windows.scatter(ops.convert_to_tensor(one))) for one in np.moveaxis(upward, -1, 0)]
    return np.stack(each, axis=-1).reshape(len(couplings), -1, len(each))
