"""The base of all routing layers."""

from typing import Any

import keras
from keras import ops

from tf_capsules.argument_types import Tensor
from tf_capsules.layers.arguments import one_of, positive_int
from tf_capsules.layers.connections import SHARING, count_groups, flatten_grid, input_spec
from tf_capsules.layers.routed import Routed
from tf_capsules.layers.shapes import ShapeInference, one_or_all
from tf_capsules.routing.votes import DistinctVotes, SharedVotes, TransformedVotes

MEMORY = ("auto", "store", "recompute")


class RoutingLayer(ShapeInference):
    """Base of all routing layers: the number of parents, the kernel, the votes, and the form of the results.

    A call returns poses only, or a tuple in the order of `answers`; with `return_couplings=True` the coupling
    coefficients come last. `routed` returns the same by name, for callers that don't know which layer it is; `votes`
    and `votes_cost` tell the votes and their memory. If a call receives a second array, Keras passes the mask of the
    poses as `poses_mask`.

    Args:
        capsules: number of parents; None for a layer that gets it with each call, which only a class with
            `capsules_by_call` can do.
        dim: columns of a parent's pose; for vectors the number of entries.
        votes_memory: "auto", "store" or "recompute", see the layers.
        sharing: which children share transformations: "none"; "positions": all children of a type; or "all".
        kwargs: of `keras.layers.Layer`.

    Attributes:
        answers: names of a call's results, as in `Routed`, without the couplings.
        plan: how votes are held (`tf_capsules.routing.votes.plan.Plan`), once built.
        windows: of a convolutional layer, once built; None for a fully connected one.
        vote_bias: in each vote, (*groups, capsules, [rows,] dim), once built; or None.
    """

    answers: tuple[str, ...] = ("poses",)
    older_names = {"votes": "votes_memory"}
    older_values = {"votes_memory": {"stored": "store", "free": "recompute"}}
    windows: Any = None
    kernel: Tensor
    vote_bias: Tensor | None = None
    children_per_chunk: int | None = None
    capsules_by_call = False

    def __init__(self, capsules: int | None, dim: int, votes_memory: str = "auto", sharing: str = "none", /, **kwargs):
        super().__init__(**kwargs)
        self.capsules = None if capsules is None and self.capsules_by_call else positive_int("capsules", capsules)
        self.dim = positive_int("dim", dim)
        self.votes_memory = one_of("votes_memory", votes_memory, MEMORY)
        self.sharing = one_of("sharing", sharing, SHARING)
        self.supports_masking = True

    @property
    def routing_dtype(self):
        """The dtype of weights and routing: at least float32 under every dtype policy."""
        return keras.backend.result_type(self.variable_dtype, "float32")

    def routed(self, *args, **kwargs):
        """Calls the layer, and returns its answers by name, a `Routed`."""
        results = keras.tree.flatten(self(*args, **kwargs))
        names = (*self.answers, "couplings")[: len(results)]
        return Routed(**dict(zip(names, results, strict=True)))

    def votes(self, poses):
        """The votes of poses, biases and coordinates included, (batch [* positions], children, parents, *pose)."""
        return self.make_votes(poses).store().tensor()

    def make_votes(self, poses, activations=None):
        """The votes of poses, in the form that routing works with, `tf_capsules.routing.votes.Votes`."""
        return self._hold(self.stores_votes, poses, self.kernel, self.vote_bias, activations)

    def _hold(self, stored, poses, kernel, bias, activations):
        """The votes of poses with these weights; `stored`: whether as a tensor."""
        given = flatten_grid(poses), kernel, bias, activations
        if self.sharing == "none":
            return TransformedVotes(*given).store() if stored else DistinctVotes(*given)
        votes = SharedVotes(*given, self.children_per_chunk)
        return votes.store() if stored else votes

    @property
    def stores_votes(self):
        """Whether all votes are held as a tensor, once built."""
        return self.plan.stored

    def _group_children(self, poses_shape, per_child=False):
        """Sets `input_spec`; returns the number of groups of children. `per_child`: whether weights are per child."""
        groups = count_groups(self, poses_shape, self.sharing)
        self.input_spec = input_spec(poses_shape, "none" if per_child else self.sharing)
        return groups

    def _add(self, *args, **kwargs):
        return super()._add(*args, dtype=self.routing_dtype, autocast=False, **kwargs)

    def _add_kernel(self, groups, poses_shape, initializer=None):
        """Adds the kernel (*groups, capsules, columns, dim)."""
        shape = (*groups, self.capsules or 1, poses_shape[-1], self.dim)
        self.kernel = self._add("kernel", shape, initializer)

    def _returned(self, results, couplings=()):
        """The return value of a call: the results in the compute dtype, then the couplings, if any."""
        return one_or_all([*(ops.cast(x, self.compute_dtype) for x in results), *couplings])

    def compute_mask(self, *args, **kwargs):
        return None
