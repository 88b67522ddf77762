"""The base of all routing layers, and the named tuples that it returns."""

from typing import Any, NamedTuple

import keras
from keras import ops

from tf_capsules.argument_types import Tensor
from tf_capsules.layers.arguments import one_of, positive_int
from tf_capsules.layers.configured import Configured
from tf_capsules.layers.connections import SHARING, children_of, count_groups, flatten_grid, input_spec, rows_of
from tf_capsules.routing.votes import DistinctVotes, SharedVotes
from tf_capsules.routing.votes.plan import Plan

MEMORY = ("auto", "store", "recompute")


class Routed(NamedTuple):
    """The results of a routing layer, by name; None for what the layer does not compute or the call did not ask for.

    Attributes:
        poses: of the parents, (batch, capsules, *pose), on a grid (batch, rows, columns, capsules, *pose).
        activations: in [0, 1], shaped like the poses without their pose axes.
        logits: activation logits, shaped like the activations.
        variances: of a parent's votes, weighted by the children's activations times couplings, shaped like the poses.
        couplings: coupling coefficients, (batch, children, capsules), on a grid (batch, rows, columns, children of a
            window, capsules).
    """

    poses: Tensor
    activations: Tensor | None = None
    logits: Tensor | None = None
    variances: Tensor | None = None
    couplings: Tensor | None = None


class VotesCost(NamedTuple):
    """The memory for the votes of a call.

    Attributes:
        tensor: bytes of the votes, if they were held as a tensor.
        held: bytes that the layer holds: its votes, or what replaces them for each (child, parent) pair.
    """

    tensor: int
    held: int


class RoutingLayer(Configured):
    """Base of all routing layers: the number of parents, the kernel, the votes, and the form of the results.

    A call returns poses only, or a tuple in the order of `answers`; with `return_couplings=True` the coupling
    coefficients come last. `routed` returns the same by name, for callers that don't know which layer it is. If a call
    receives a second array, Keras passes the mask of the poses as `poses_mask`.

    Args:
        capsules: number of parents; None for a layer that gets it with each call.
        dim: columns of a parent's pose; for vectors the number of entries.
        votes_memory: "auto", "store" or "recompute", see the layers.
        sharing: which children share transformations: "none"; "positions": all children of a type; or "all".
        kwargs: of `keras.layers.Layer`.

    Attributes:
        answers: names of a call's results, as in `Routed`, without the couplings.
        plan: how votes are held (`tf_capsules.routing.votes.plan.Plan`), once built.
        windows: of a convolutional layer, once built; None for a fully connected one.
    """

    answers: tuple[str, ...] = ("poses",)
    older_names = {"votes": "votes_memory"}
    older_values = {"votes_memory": {"stored": "store", "free": "recompute"}}
    plan: Plan
    windows: Any = None
    kernel: Tensor

    def __init__(self, capsules: int | None, dim: int, votes_memory: str = "auto", sharing: str = "none", /, **kwargs):
        super().__init__(**kwargs)
        self.capsules = None if capsules is None else positive_int("capsules", capsules)
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
        results = self(*args, **kwargs)
        results = tuple(results) if isinstance(results, (tuple, list)) else (results,)
        names = (*self.answers, "couplings")[: len(results)]
        return Routed(**dict(zip(names, results, strict=True)))

    def votes(self, poses):
        """The votes of poses, biases and coordinates included, (batch [* positions], children, parents, *pose)."""
        return self.make_votes(poses).store().tensor()

    def make_votes(self, poses, activations=None):
        """The votes of poses, in the form that routing works with, `tf_capsules.routing.votes.Votes`."""
        kind = DistinctVotes if self.sharing == "none" else SharedVotes
        votes = kind(flatten_grid(poses), self.kernel, self._vote_bias, activations)
        return votes.store() if self.stores_votes else votes

    @property
    def _vote_bias(self):
        """The bias in each vote, (*groups, capsules, [rows,] dim), or None."""
        return None

    @property
    def stores_votes(self):
        """Whether all votes are held as a tensor, once built."""
        return self.plan.stored

    def _set_jit(self, possible):
        """Tells Keras whether TensorFlow's XLA can train the layer; it can't where some capsules are routed at a time.

        A network that is compiled before it is built asks before `build`, so the constructor has to say it.
        """
        self.supports_jit = possible or keras.backend.backend() != "tensorflow"

    def votes_cost(self, poses_shape, later=False, capsules=None):
        """The memory for the votes of a call, a `VotesCost`.

        Args:
            poses_shape: of the children, (batch, ...), all known.
            later: whether the call gets the parents of a previous call.
            capsules: number of parents, for a layer that gets it with each call; None: as many as children.
        """
        children, pairs = self._pairs(poses_shape, capsules)
        iterates = later or getattr(self, "iterations", 1) > 1
        return VotesCost(*self.plan.bytes(poses_shape[0], children, pairs, iterates))

    def _pairs(self, poses_shape, capsules):
        """Number of children of a parent, and number of (child, parent) pairs in an example."""
        children = children_of(poses_shape)
        return children, children * (self.capsules or capsules or children)

    def _group_children(self, poses_shape, per_child=False):
        """Sets `input_spec`; returns the number of groups of children. `per_child`: whether weights are per child."""
        groups = count_groups(self, poses_shape, self.sharing)
        self.input_spec = input_spec(poses_shape, "none" if per_child else self.sharing)
        return groups

    def _add(self, name, shape, initializer=None, options=None, trainable=True):
        """Adds a weight of `routing_dtype`, with the constructor's arguments that begin with `options`, or `name`."""
        given = options or name
        return self.add_weight(
            shape,
            initializer or getattr(self, f"{given}_initializer"),
            name=name,
            dtype=self.routing_dtype,
            trainable=trainable,
            regularizer=getattr(self, f"{given}_regularizer", None),
            constraint=getattr(self, f"{given}_constraint", None),
            autocast=False,
        )

    def _add_kernel(self, groups, poses_shape, initializer=None):
        """Adds the kernel (*groups, capsules, columns, dim)."""
        shape = (*groups, self.capsules or 1, poses_shape[-1], self.dim)
        self.kernel = self._add("kernel", shape, initializer)

    def _couplings_shape(self, poses_shape, *capsules):
        return poses_shape[0], children_of(poses_shape), self._parents_shape(poses_shape, *capsules)[-1]

    def _parents_shape(self, poses_shape, *capsules):
        return poses_shape[0], self.capsules

    def compute_output_shape(self, poses_shape, *other_shapes, **named_shapes):
        return self._shapes(poses_shape)

    def _shapes(self, poses_shape, *capsules):
        parents = self._parents_shape(poses_shape, *capsules)
        poses = (*parents, *rows_of(poses_shape), self.dim)
        return _one_or_all([poses if name in ("poses", "variances") else parents for name in self.answers])

    def _specs(self, poses, return_couplings, *capsules):
        """The `keras.KerasTensor`s that a call returns. `capsules`: the number of parents, if the call gives it."""
        shapes = self._shapes(tuple(poses.shape), *capsules)
        shapes = shapes if len(self.answers) > 1 else (shapes,)
        specs = [keras.KerasTensor(shape, self.compute_dtype) for shape in shapes]
        if return_couplings:
            shape = self._couplings_shape(tuple(poses.shape), *capsules)
            specs.append(keras.KerasTensor(shape, self.routing_dtype))
        return _one_or_all(specs)

    def _returned(self, results, couplings=()):
        """The return value of a call: the results in the compute dtype, then the couplings, if any."""
        return _one_or_all([*(ops.cast(x, self.compute_dtype) for x in results), *couplings])

    def compute_mask(self, *args, **kwargs):
        return None


def _one_or_all(results):
    return tuple(results) if len(results) > 1 else results[0]
