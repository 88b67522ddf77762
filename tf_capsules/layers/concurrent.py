"""Chains of capsule layers that are routed together."""

import inspect
from collections.abc import Sequence

import keras

from tf_capsules.layers.arguments import one_of, positive_int
from tf_capsules.layers.base import one_or_all
from tf_capsules.layers.inner_states import KeepsInnerStates


@keras.saving.register_keras_serializable("tf_capsules")
class ConcurrentRouting(KeepsInnerStates):
    """A chain of capsule layers that are routed together, several times.

    In the first iteration the layers run one after the other, each on the results of the layer below. Later, all layers
    are updated at once, with the same weights. Each layer reads two previous results: those of the layer below, and its
    own. Updates that can't reach the last layer any more are skipped. The attribute `chain` holds the layers.

    Source: Tsai et al. 2020, section 4.1 (inference); "sequential": ablation B.

    Args:
        layers: capsule layers, the lowest first: `InvertedAttentionRouting`, `ConvInvertedAttentionRouting`, or your
            own. The call of a layer takes the results of the layer below as its first arguments, and its own results of
            the previous iteration as `parents`. A layer of your own needs a `compute_output_shape` that takes the
            shapes of these first arguments. If the lowest layer gets a mask, its call must take `mask`.
        iterations: at least 1; 1 is the chain of layers without routing iterations.
        schedule: "concurrent"; or "sequential": each layer goes through all iterations before the next one starts.

    Call arguments:
        poses, activations: arguments of the lowest layer; None: no activations.
        mask: true for the children of the lowest layer that take part, or None.
        return_iterations: return the results of all layers in all iterations.

    Returns:
        The last layer's last result; with `return_iterations` a list for each layer, of its results in all iterations.

    Raises:
        ValueError: no layers, one without `parents`, iterations below 1, an unknown schedule, a mask that isn't taken.

    Example:
        >>> from tf_capsules.layers import ConvInvertedAttentionRouting, InvertedAttentionRouting
        >>> chain = [ConvInvertedAttentionRouting(8, 4, strides=2), InvertedAttentionRouting(10, 4)]
        >>> ConcurrentRouting(chain, iterations=2)(np.ones((2, 9, 9, 5, 4, 4))).shape
        TensorShape([2, 10, 4, 4])
    """

    def __init__(self, layers: Sequence[keras.Layer], iterations: int = 2, schedule: str = "concurrent", **kwargs):
        super().__init__(**kwargs)
        if not isinstance(layers, (list, tuple)) or not layers:
            raise ValueError(f"`layers` must be a list of one or more capsule layers. Received: {layers!r}")
        self.chain = list(layers)
        for layer in self.chain:
            if not isinstance(layer, keras.Layer) or not _takes(layer, "parents"):
                raise ValueError(f"`layers` must be layers whose call takes `parents`. Received: {layer!r}")
        self.iterations = positive_int("iterations", iterations)
        self.schedule = one_of("schedule", schedule, ("concurrent", "sequential"))

    def build(self, poses_shape, activations_shape=None):
        shapes = _several(poses_shape, activations_shape)
        for layer in self.chain:
            if not layer.built and type(layer).build is not keras.Layer.build:
                layer.build(*shapes)
            if not self.trainable:  # as Keras does where a layer is frozen that has been built
                layer.trainable = False
            shapes = _spread(layer.compute_output_shape(*shapes), tuple)
        super().build(poses_shape)

    def call(self, poses, activations=None, mask=None, training=None, return_iterations=False, poses_mask=None):
        mask = poses_mask if mask is None else mask
        lowest = _several(poses, activations)
        self._check_mask(mask)

        def routed(number, children, parents=None):
            layer = self.chain[number]
            given = dict(mask=None if number else mask, training=training)
            given = {name: value for name, value in given.items() if _takes(layer, name)}
            return layer(*_spread(children), parents=parents, **given)

        found = []
        for number in range(len(self.chain)):
            children = found[-1][-1] if number else lowest
            own = [routed(number, children)]
            while self.schedule == "sequential" and len(own) < self.iterations:
                own.append(routed(number, children, own[-1]))
            found.append(own)
        if self.schedule == "concurrent":
            for left in reversed(range(self.iterations - 1)):
                children = [lowest, *(own[-1] for own in found[:-1])]
                parents = [own[-1] for own in found]
                for number, own in enumerate(found):
                    # An update reaches the next higher layer one iteration later.
                    if return_iterations or len(found) - 1 - number <= left:
                        own.append(routed(number, children[number], parents[number]))
        return found if return_iterations else found[-1][-1]

    def _check_mask(self, mask):
        if mask is not None and not _takes(self.chain[0], "mask"):
            raise ValueError(f"The lowest layer takes no `mask`. Received one for {self.chain[0]!r}.")

    def compute_mask(self, *args, **kwargs):
        return None

    def compute_output_spec(self, *args, **kwargs):
        return self.call(*args, **kwargs)  # symbolic arguments give symbolic results

    def compute_output_shape(self, poses_shape, activations_shape=None):
        shapes = _several(poses_shape, activations_shape)
        for layer in self.chain:
            shapes = _spread(layer.compute_output_shape(*shapes), tuple)
        return one_or_all(shapes)

    def get_config(self):
        layers = [keras.saving.serialize_keras_object(layer) for layer in self.chain]
        for layer in layers:
            layer.pop("build_config", None)  # `from_config` gives layers for any input
        return {**super().get_config(), "layers": layers, "iterations": self.iterations, "schedule": self.schedule}

    @classmethod
    def from_config(cls, config):
        layers = [keras.saving.deserialize_keras_object(layer) for layer in config["layers"]]
        return cls(**{**config, "layers": layers})


def _takes(layer, argument):
    return argument in inspect.signature(layer.call).parameters


def _several(poses, activations):
    return (poses,) if activations is None else (poses, activations)


def _spread(results, kind=object):
    """Results as a tuple. With `kind=tuple` the results are shapes: one shape, itself a tuple, or several."""
    if isinstance(results, (tuple, list)) and isinstance(results[0], kind):
        return tuple(results)
    return (results,)
