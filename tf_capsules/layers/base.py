"""The base of all routing layers: the number of parents, the kernel, and the votes."""

from keras import ops

from tf_capsules.argument_types import Tensor
from tf_capsules.layers.answers import AnsweringLayer
from tf_capsules.layers.arguments import one_of, positive_int
from tf_capsules.layers.connections import children_of, count_groups, flatten_grid, input_spec
from tf_capsules.routing.precision import precise
from tf_capsules.routing.votes import DistinctVotes, SharedVotes, TransformedVotes


class RoutingLayer(AnsweringLayer):
    """Base of all routing layers. The call makes votes of the poses, routes them, and returns the parents.

    If a call receives a second array, Keras passes the mask of the poses as `poses_mask`.

    Args:
        capsules: number of parents; None for a layer that gets it with each call, which only a class with
            `capsules_by_call` can do.
        dim: columns of a parent's pose; for vectors the number of entries.
        votes_memory: "auto", "store" or "recompute", see the layers.
        sharing: which children share transformations: "none"; "positions": all children of a type; or "all".
        kwargs: of `keras.layers.Layer`.
    """

    older_names = {"votes": "votes_memory"}
    older_values = {"votes_memory": {"stored": "store", "free": "recompute"}}
    kernel: Tensor
    vote_bias: Tensor | None = None  # in each vote, (*groups, capsules, [rows,] dim), once built
    children_per_chunk: int | None = None
    capsules_by_call = False

    def __init__(self, capsules: int | None, dim: int, votes_memory: str = "auto", sharing: str = "none", /, **kwargs):
        super().__init__(**kwargs)
        self.capsules = None if capsules is None and self.capsules_by_call else positive_int("capsules", capsules)
        self.dim = positive_int("dim", dim)
        self.votes_memory = one_of("votes_memory", votes_memory, ("auto", "store", "recompute"))
        self.sharing = one_of("sharing", sharing, ("none", "positions", "all"))
        self.supports_masking = True

    @property
    def routing_dtype(self):
        """The dtype of weights and routing: at least float32 under every dtype policy."""
        return precise(self.variable_dtype)

    def _group_children(self, poses_shape, per_child=False):
        """Sets `input_spec`; returns the number of groups of children. `per_child`: whether weights are per child."""
        groups = count_groups(self, poses_shape, self.sharing)
        self.input_spec = input_spec(poses_shape, "none" if per_child else self.sharing)
        return groups

    def _add(self, *args, **kwargs):
        return super()._add(*args, dtype=self.routing_dtype, autocast=False, **kwargs)

    def _add_kernel(self, groups, poses_shape, initializer=None):
        """Adds the kernel (*groups, capsules, columns, dim)."""
        self.kernel = self._add("kernel", (*groups, self.capsules or 1, poses_shape[-1], self.dim), initializer)

    def votes(self, poses):
        """The votes of poses, biases and coordinates included, (batch [* positions], children, parents, *pose)."""
        if not self.built:
            raise ValueError(f"The layer {self.name!r} has no weights yet: build or call it first.")
        return self.make_votes(ops.cast(poses, self.routing_dtype)).store().tensor()

    def make_votes(self, poses, activations=None, stored=None):
        """The votes of poses, `tf_capsules.routing.votes.Votes`; `stored`: whether as a tensor, None: as planned."""
        return self._hold(stored, poses, self.kernel, self.vote_bias, activations)

    def _hold(self, stored, poses, kernel, bias, activations):
        """The votes of poses with these weights."""
        stored = self.plan.stores(children_of(poses.shape)) if stored is None else stored
        given = flatten_grid(poses), kernel, bias, activations
        if self.sharing == "none":
            return TransformedVotes(*given).store() if stored else DistinctVotes(*given)
        votes = SharedVotes(*given, self.children_per_chunk)
        return votes.store() if stored else votes

    def _route(self, route, poses):
        """`route(stored)`: with votes that are held as a tensor or not, as planned for the number of these children."""
        stored = self.plan.stores(ops.shape(flatten_grid(poses))[1])
        return ops.cond(stored, lambda: route(True), lambda: route(False)) if ops.is_tensor(stored) else route(stored)
