"""The base of all routing layers: the kernel, the votes, and what a layer answers."""

import inspect
import math
from typing import Any, NamedTuple

import keras
from keras import ops

from tf_capsules.argument_types import Tensor
from tf_capsules.layers.arguments import one_of, positive_int
from tf_capsules.layers.configured import Configured
from tf_capsules.layers.connections import check_per_child, children_of, count_groups, flatten_grid, input_spec, rows_of
from tf_capsules.routing.precision import precise
from tf_capsules.routing.votes import DistinctVotes, SharedVotes, TransformedVotes
from tf_capsules.routing.votes.plan import Plan


class Routed(NamedTuple):
    """The results of a routing layer, by name; None for what a call of the layer does not return.

    Attributes:
        poses: of the parents, (batch, capsules, *pose), on a grid (batch, rows, columns, capsules, *pose).
        activations: in [0, 1], shaped like the poses without their pose axes.
        logits: activation logits, shaped like the activations.
        variances: of a parent's votes, weighted by the children's activations times couplings, shaped like the poses.
        couplings: coupling coefficients, (batch, children, capsules), on a grid (batch, rows, columns, children of a
            window, capsules). Each layer says what they contain, and over what they sum to 1.
    """

    poses: Tensor
    activations: Tensor | None = None
    logits: Tensor | None = None
    variances: Tensor | None = None
    couplings: Tensor | None = None


class RoutingLayer(Configured):
    """Base of all routing layers. The call makes votes of the poses, routes them, and returns the parents.

    A call returns poses only, or a tuple in the order of `answers`; with `return_couplings=True` the coupling
    coefficients come last. `routed` returns the same by name, so that callers need not know which layer it is. If a
    call receives a second array, Keras passes the mask of the poses as `poses_mask`.

    Args:
        capsules: number of parents; None, if `capsules_by_call`: each call gives it.
        dim: columns of a parent's pose; for vectors the number of entries.
        votes_memory: "auto", "store" or "recompute", see the layers.
        sharing: which children share transformations: "none"; "positions": all children of a type; or "all".
        kwargs: of `keras.layers.Layer`.
    """

    older_names = {"votes": "votes_memory"}
    older_values = {"votes_memory": {"stored": "store", "free": "recompute"}}
    answers: tuple[str, ...] = ("poses",)  # names of a call's results, as in `Routed`, without the couplings
    capsules_by_call = False
    children_per_chunk: int | None = None
    costs_alike = False  # whether a first iteration takes as much memory for votes as later ones
    couplings_contain_activations = False  # whether a child's couplings are multiplied by its activation
    couplings_are_shares = True  # whether the couplings say how a child's votes are divided, and nothing else
    logits_add_agreements = False  # whether each iteration adds the agreements of votes and poses to the routing logits
    # Once built:
    kernel: Tensor
    vote_bias: Tensor | None = None  # in each vote, (*groups, capsules, [rows,] dim)
    plan: Plan  # how votes are held
    windows: Any = None  # of a convolutional layer; None for a fully connected one

    def __init__(self, capsules: int | None, dim: int, votes_memory: str = "auto", sharing: str = "none", /, **kwargs):
        super().__init__(**kwargs)
        self.capsules = None if capsules is None and self.capsules_by_call else positive_int("capsules", capsules)
        self.dim = positive_int("dim", dim)
        self.votes_memory = one_of("votes_memory", votes_memory, ("auto", "store", "recompute"))
        self.sharing = one_of("sharing", sharing, ("none", "positions", "all"))

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
        # None where `votes` asks, and for layers whose plan does not depend on the number of children.
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

    def routed(self, *args, **kwargs):
        """Calls the layer, and returns its answers by name, a `Routed`."""
        results = keras.tree.flatten(self(*args, **kwargs))
        names = (*self._answers(kwargs), "couplings")[: len(results)]
        return Routed(**dict(zip(names, results, strict=True)))

    def _returned(self, results, couplings=()):
        """The return value of a call: the results in the compute dtype, then the couplings, if any."""
        return one_or_all([*(ops.cast(x, self.compute_dtype) for x in results), *couplings])

    def compute_mask(self, *args, **kwargs):
        return None

    def compute_output_shape(self, poses_shape, *other_shapes, **named_shapes):
        return one_or_all(self._shapes(poses_shape))

    def compute_output_spec(self, *args, **kwargs):
        if not type(self).call.__module__.startswith("tf_capsules."):  # a subclass's own `call` is traced
            return keras.Operation.compute_output_spec(self, *args, **kwargs)
        given = inspect.signature(self.call).bind(*args, **kwargs).arguments
        self._check_call(**given)
        poses_shape, capsules = tuple(given["poses"].shape), given.get("capsules")
        shapes = self._shapes(poses_shape, capsules, self._answers(given))
        specs = [keras.KerasTensor(shape, self.compute_dtype) for shape in shapes]
        if given.get("return_couplings", False):
            specs.append(keras.KerasTensor(self._couplings_shape(poses_shape, capsules), self.routing_dtype))
        return one_or_all(specs)

    def _check_call(self, poses, activations=None, mask=None, **others):
        """Raises a ValueError for arguments of a call that do not fit each other."""
        check_per_child(poses, activations=activations, mask=mask)

    def _answers(self, given):
        """Names of the results of a call with these arguments, without the couplings."""
        return (*self.answers, "variances") if given.get("return_variances", False) else self.answers

    def _shapes(self, poses_shape, capsules=None, answers=None):
        """The shape of each of the layer's answers. `capsules`: the number of parents, if the call gives it."""
        parents = self._parents_shape(poses_shape, capsules)
        poses = (*parents, *rows_of(poses_shape), self.dim)
        return [poses if name in ("poses", "variances") else parents for name in answers or self.answers]

    def _parents_shape(self, poses_shape, capsules=None):
        return poses_shape[0], self.capsules or capsules or children_of(poses_shape)

    def _couplings_shape(self, poses_shape, capsules=None):
        return poses_shape[0], children_of(poses_shape), self._parents_shape(poses_shape, capsules)[-1]

    @property
    def stores_votes(self):
        """Whether every call holds its votes as a tensor, once built."""
        return self.plan.stored

    def votes_cost(self, poses_shape, later=False, capsules=None, return_couplings=False):
        """The memory for the votes of a call, a `tf_capsules.routing.votes.plan.VotesCost`.

        Args:
            poses_shape: of the children, (batch, ...), all known.
            later: whether the call gets the parents of a previous call.
            capsules: number of parents, for a layer that gets it with each call; None: as many as children.
            return_couplings: whether the call returns couplings: some layers then store their votes.
        """
        batch, *sizes = self._couplings_shape(poses_shape, capsules)  # ..., children, parents
        iterates = later or self.costs_alike or getattr(self, "iterations", 1) > 1
        return self.plan.cost(batch, sizes[-2], math.prod(sizes), iterates, return_couplings)


def one_or_all(results):
    return tuple(results) if len(results) > 1 else results[0]
