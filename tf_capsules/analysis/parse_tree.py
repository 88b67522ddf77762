"""A parse tree of an image: which capsules each class took, and from which places of the image these came."""

import dataclasses

import keras
import numpy as np

from tf_capsules.analysis.couplings import last_couplings
from tf_capsules.analysis.inference import graph_of, in_batches, inputs_at
from tf_capsules.analysis.routing_layers import activations_of, check_shares, gives_couplings
from tf_capsules.analysis.routing_maps import follow_shares, normalized
from tf_capsules.layers.connections import children_of, on_grid

# Layers and operations of Keras after which capsules are in another order.
_REORDERING = ("Permute", "Transpose", "Swapaxes", "Moveaxis", "Flip", "Roll", "Rot90", "Take", "TakeAlongAxis")


@dataclasses.dataclass(frozen=True)
class Level:
    """The children of a routing layer.

    Attributes:
        layer: name of the routing layer.
        shares: the share of each class in what a child sends up, (rows, columns, types, classes) for children on a
            grid, else (children, classes). Shares sum to 1 over the classes; they are 0 where no window looks.
        weights: how much each child sends up, shaped like `shares` without the classes: its activation (if it has one
            that the couplings don't contain) times the sum of its couplings over all paths up. If several windows see a
            child, this sum can exceed 1.
        couplings: to the layer above, shaped like `shares` with parents in place of classes; None in windows.
    """

    layer: str
    shares: np.ndarray
    weights: np.ndarray
    couplings: np.ndarray | None

    def places(self, values):
        """The mean of values (rows, columns, types, ...) over the types of a place, weighted by `weights`."""
        return (values * normalized(self.weights)[..., None]).sum(2)

    @property
    def map(self):
        """The share of each class in what the capsules at a place send up, (rows, columns, classes)."""
        return self.places(self.shares)

    @property
    def taken(self):
        """The share of each child in what each class took, (children, classes), of children without a grid."""
        taken = self.weights[..., None] * self.shares
        return taken / np.maximum(taken.sum(0), 1e-30)


def measure_parse_tree(model, image):
    """What each class took of the capsules below, layer by layer.

    Shares are followed through all layers, as in `measure_routing_maps`. The couplings are those that made the class
    capsules. They say where votes went, not what the class gained by them.

    Args:
        model: a `CapsuleClassifier` on images whose routing layers form a chain from primary to class capsules.
        image: (height, width, channels), as the model takes it.

    Returns:
        A `Level` for each routing layer, the highest first.

    Raises:
        ValueError: a model without such layers, a `SelfAttentionRouting` with a prior, or an image of another shape.

    Example:
        >>> from tf_capsules.models.heinsen2019 import ImageCapsNet
        >>> levels = measure_parse_tree(ImageCapsNet(), np.zeros((96, 96, 2)))
        >>> [(level.layer, level.shares.shape) for level in levels]
        [('classes', (64, 5)), ('parts', (9, 9, 64, 5))]
    """
    if getattr(model, "encoder", None) is None:
        raise ValueError(f"A parse tree needs a CapsuleClassifier. Received: {model!r}")
    if isinstance(model.encoder.input, dict):
        raise ValueError(f"Parse trees are for images; for texts use `class_shares`. Received: {model!r}")
    (inputs,) = in_batches(model, np.asarray(image)[None], 1)
    routings, reordered = [], False
    for layer in graph_of(model).operations:
        reordered |= bool(routings) and type(layer).__name__ in _REORDERING
        if not isinstance(layer, keras.Layer) or not gives_couplings(layer):
            continue
        check_shares(layer)
        if reordered:
            raise ValueError(f"The capsules below the layer {layer.name!r} are put into another order.")
        routings += last_couplings(layer, inputs_at(layer, model)(inputs))
    if not routings:
        raise ValueError(f"The model {model.name!r} has no routing layer.")
    levels = []
    for layer, children, couplings, held in follow_shares(routings):
        shape = tuple(children[0].shape[1:4]) if on_grid(children[0].shape) else (children_of(children[0].shape),)
        activations = activations_of(layer, children)
        weights = np.ones(shape, "float32") if activations is None else activations[0].reshape(shape)
        own = couplings[0].reshape(*shape, -1) if couplings.ndim == 3 else None
        shares, total = normalized(held[0]).reshape(*shape, -1), held[0].sum(-1).reshape(shape)
        levels.append(Level(layer.name, shares, weights * total, own))
    return levels
