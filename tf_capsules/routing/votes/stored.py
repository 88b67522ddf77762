"""Votes that are held as a tensor."""

import math

from keras import ops

from tf_capsules.argument_types import Tensor
from tf_capsules.routing.precision import at_least_float32
from tf_capsules.routing.votes.base import Votes


class StoredVotes(Votes):
    """Votes that are held as a tensor (batch, parents, entries of a pose, children).

    Each sum, over children or over entries, is a product of a matrix and a vector for each parent, and makes no further
    tensor of this size.

    Args:
        votes: (batch, children, parents, *pose).
        activations: how much each child counts in `moments`, (batch, children); None: 1.
        groups: child i belongs to group `i % groups`; `moments` returns the masses by group.
        origin: poses that `votes` are relative to, (batch, parents, *pose); None: zero.
        children_last: whether `votes` are (batch, parents, *pose, children), which saves turning them.
    """

    def __init__(
        self,
        votes: Tensor,
        activations: Tensor | None = None,
        groups: int = 1,
        origin: Tensor | None = None,
        children_last: bool = False,
    ):
        votes = at_least_float32(votes if children_last else ops.moveaxis(votes, 1, -1))
        self.pose_shape = tuple(votes.shape[2:-1])
        self.entries = math.prod(self.pose_shape)
        self.batch, self.parents, *_, self.children = ops.shape(votes)
        self.votes = ops.reshape(votes, (self.batch, self.parents, self.entries, self.children))
        self.groups = groups
        self.dtype = votes.dtype
        self.origin = ops.zeros((1, self.parents, *self.pose_shape), self.dtype) if origin is None else origin
        self._set_activations(activations)
        self._last_squares = None, None

    def _flat(self, poses):
        """(batch, parents, *pose) as (batch, parents, entries)."""
        return ops.reshape(poses, (-1, self.parents, self.entries))

    def _over_children(self, values, weights):
        """Weighted sums of (batch, parents, entries, children), (batch, parents, entries)."""
        if weights.shape[-1] == 1:
            values = ops.reshape(values, (self.batch, self.parents * self.entries, self.children))
            return ops.reshape(ops.matmul(values, weights), (-1, self.parents, self.entries))
        return ops.matmul(values, ops.transpose(weights, (0, 2, 1))[..., None])[..., 0]

    def _over_entries(self, weights, values):
        """Weighted sums of (batch, parents, entries, children), (batch, children, parents)."""
        return ops.transpose(ops.matmul(weights[:, :, None], values)[:, :, 0], (0, 2, 1))

    def squares(self, means):
        """`(V_ij - m_j)^2`, shaped like the votes; cached: M-step and E-step ask with the same array of means."""
        if self._last_squares[0] is not means:
            self._last_squares = means, ops.square(self.votes - self._flat(means)[..., None])
        return self._last_squares[1]

    def store(self):
        return self

    def tensor(self):
        votes = ops.reshape(ops.moveaxis(self.votes, 3, 1), (self.batch, self.children, self.parents, *self.pose_shape))
        return votes + self.origin[:, None]

    def weighted_sum(self, weights):
        sums = self.shaped(self._over_children(self.votes, weights))
        mass = ops.sum(weights, axis=1)
        return sums + self.origin * ops.reshape(mass, (*ops.shape(mass), *[1] * len(self.pose_shape)))

    def agreement(self, poses):
        result = self._over_entries(self._flat(poses), self.votes)
        return result + ops.sum(self._flat(self.origin * poses), axis=-1)[:, None]

    def log_density(self, means, precisions, constants):
        return constants[:, None] - 0.5 * self._over_entries(self._flat(precisions), self.squares(means))

    def moments(self, couplings, *state, epsilon=0.0, near=None, masses_by_group=True):
        couplings = couplings(self, *state) if callable(couplings) else couplings
        shares = couplings * self.activations[..., None]
        masses = ops.broadcast_to(ops.sum(self.by_group(shares), axis=1), (self.batch, self.groups, self.parents))
        divisor = ops.sum(masses, axis=1)[..., None] + epsilon
        # mean - origin = (Σ D V' - ε origin) / (mass + ε), where V' is relative to the origin.
        sums = self._over_children(self.votes, shares) - epsilon * self._flat(self.origin)
        means = self.shaped(sums / divisor)
        variances = self._over_children(self.squares(means), shares) / divisor
        masses = masses if masses_by_group else ops.sum(masses, axis=1, keepdims=True)
        return masses, means, self.shaped(variances)
