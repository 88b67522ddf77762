"""What the shape of the children tells about a call of a routing layer: shapes of the results, memory for the votes."""

import inspect
import math

import keras

from tf_capsules.layers.configured import Configured
from tf_capsules.layers.connections import check_per_child, children_of, rows_of
from tf_capsules.routing.votes.plan import Plan


class ShapeInference(Configured):
    """The part of a `RoutingLayer` that says, without computing, what a call returns and what it takes."""

    answers: tuple[str, ...]
    capsules: int | None
    dim: int
    plan: Plan

    def compute_output_shape(self, poses_shape, *other_shapes, **named_shapes):
        return one_or_all(self._shapes(poses_shape))

    def compute_output_spec(self, *args, **kwargs):
        # A subclass may call its arguments otherwise, and hand them on.
        own = next(c for c in type(self).__mro__ if c.__module__.startswith("tf_capsules.") and "call" in vars(c))
        given = inspect.signature(own.call).bind(self, *args, **kwargs).arguments
        del given["self"]
        self._check_call(**given)
        poses_shape, capsules = tuple(given["poses"].shape), given.get("capsules")
        specs = [keras.KerasTensor(shape, self.compute_dtype) for shape in self._shapes(poses_shape, capsules)]
        if given.get("return_couplings", False):
            specs.append(keras.KerasTensor(self._couplings_shape(poses_shape, capsules), self.routing_dtype))
        return one_or_all(specs)

    def _check_call(self, poses, activations=None, mask=None, **others):
        """Raises a ValueError for arguments of a call that do not fit each other."""
        check_per_child(poses, activations=activations, mask=mask)

    def _shapes(self, poses_shape, capsules=None):
        """The shape of each of the layer's answers. `capsules`: the number of parents, if the call gives it."""
        parents = self._parents_shape(poses_shape, capsules)
        poses = (*parents, *rows_of(poses_shape), self.dim)
        return [poses if name in ("poses", "variances") else parents for name in self.answers]

    def _parents_shape(self, poses_shape, capsules=None):
        return poses_shape[0], self.capsules or capsules or children_of(poses_shape)

    def _couplings_shape(self, poses_shape, capsules=None):
        return poses_shape[0], children_of(poses_shape), self._parents_shape(poses_shape, capsules)[-1]

    def votes_cost(self, poses_shape, later=False, capsules=None):
        """The memory for the votes of a call, a `tf_capsules.routing.votes.plan.VotesCost`.

        Args:
            poses_shape: of the children, (batch, ...), all known.
            later: whether the call gets the parents of a previous call.
            capsules: number of parents, for a layer that gets it with each call; None: as many as children.
        """
        batch, *pairs = self._couplings_shape(poses_shape, capsules)
        iterates = later or getattr(self, "iterations", 1) > 1
        return self.plan.cost(batch, pairs[-2], math.prod(pairs), iterates)


def one_or_all(results):
    return tuple(results) if len(results) > 1 else results[0]
