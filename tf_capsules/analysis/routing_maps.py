"""From which places of an image each class capsule took its votes."""

import numpy as np
from keras import ops

from tf_capsules.analysis.couplings import last_couplings
from tf_capsules.analysis.inference import in_batches, inputs_at, to_numpy
from tf_capsules.analysis.routing_layers import find_layer
from tf_capsules.layers.connections import need_grid


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
    routing = find_layer(model, layer, chain=True)
    maps, inputs = [], inputs_at(routing, model)
    for batch in in_batches(model, images, batch_size):
        lowest = inputs(batch)
        need_grid("Routing maps need", lowest[0].shape)
        *_, (_, _, _, shares) = follow_shares(last_couplings(routing, lowest))
        maps.append(shares.reshape(*lowest[0].shape[:4], -1).sum(axis=3))
    return normalized(np.concatenate(maps))


def normalized(shares):
    """Shares that sum to 1 over the last axis, or to 0 where all are 0."""
    total = shares.sum(axis=-1, keepdims=True)
    return np.divide(shares, total, out=np.zeros_like(shares), where=total > 0)


def follow_shares(routings):
    """Follows the shares of the classes down through routing layers: (layer, children, couplings), the lowest first.

    The couplings are (batch, children, parents) or, in windows, (batch, new height, new width, children of a window,
    parents); the parents of the highest layer are the classes. Yields layer, children, couplings and shares (batch,
    children, classes), the highest layer first. A ValueError if the parents of a layer are not the children above.
    """
    shares = None
    for layer, children, couplings in reversed(routings):
        flat = couplings.reshape(-1, *couplings.shape[-2:])  # of an example or, in windows, of a window each
        if shares is not None:
            if shares.shape[1] * len(shares) != len(flat) * flat.shape[2]:
                raise ValueError(f"The capsules above the layer {layer.name!r} are not those that it routes to.")
            flat = flat @ shares.reshape(len(flat), flat.shape[2], -1)
        shares = flat
        if couplings.ndim > 3:
            each = [to_numpy(layer.windows.scatter(ops.convert_to_tensor(one))) for one in np.moveaxis(flat, -1, 0)]
            shares = np.stack(each, axis=-1).reshape(len(couplings), -1, len(each))
        yield layer, children, couplings, shares
