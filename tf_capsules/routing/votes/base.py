"""The interface between routing algorithms and votes."""

import functools

from keras import ops

from tf_capsules.argument_types import Tensor


class Votes:
    """The interface of votes. By default each method stores the votes and answers from them."""

    batch: Tensor  # this and the next two are sizes; tensors where they are unknown
    children: Tensor
    parents: Tensor
    groups: int  # child i belongs to group `i % groups`
    pose_shape: tuple[int, ...]  # of a vote, (columns,) or (rows, columns)
    activations: Tensor  # how much each child counts in `moments`, (batch or 1, children)
    dtype: str  # float32 or float64

    def store(self):
        """The same votes, as `StoredVotes`."""
        raise TypeError(f"{type(self).__name__} must define `store`.")

    def weighted_sum(self, weights):
        """`sum_i w_ij V_ij`, (batch, parents, *pose), of weights (batch, children, parents or 1)."""
        return self._stored.weighted_sum(weights)

    def agreement(self, poses):
        """The inner products `<V_ij, v_j>`, (batch, children, parents), with poses (batch, parents, *pose)."""
        return self._stored.agreement(poses)

    def tensor(self):
        """The votes themselves, (batch, children, parents, *pose)."""
        return self.store().tensor()

    def log_density(self, means, precisions, constants):
        """A Gaussian's log density `c_j - 1/2 sum_k p_jk (V_ijk - m_jk)^2`, (batch, children, parents).

        Its means, relative to `origin`, and precisions are (batch, parents, *pose), its constants (batch, parents).
        """
        return self._stored.log_density(means, precisions, constants)

    def moments(self, couplings, *state, epsilon=0.0, near=None, masses_by_group=True):
        """Mass, mean and variance of the votes that each parent takes.

        Child i gives parent j the share `D_ij = a_i R_ij`: its activation times its coupling.

        Args:
            couplings: (batch, children, parents) or (batch, children, 1); or a function of (votes, *state) that returns
                them. `SharedVotes` may call it with the votes of some children at a time, so a child's couplings must
                not depend on other children.
            state: arrays for the function.
            epsilon: added to a parent's mass in divisions.
            near: a guess of the means, relative to `origin`, (batch, parents, *pose), such as those of the previous
                iteration; or None. It lessens rounding errors of sums group by group; other forms ignore it.
            masses_by_group: whether to return a mass for each group of children, (batch, groups, parents), or one for
                all children, (batch, 1, parents).

        Returns:
            Masses, the sums of D_ij; means `sum_i D_ij V_ij / (mass + epsilon)`, less `origin`, and variances
            `sum_i D_ij (V_ij - mean)^2 / (mass + epsilon)`, both (batch, parents, *pose).
        """
        return self._stored.moments(couplings, *state, epsilon=epsilon, near=near, masses_by_group=masses_by_group)

    @functools.cached_property
    def origin(self):
        """The poses that means are relative to, (batch or 1, parents, *pose)."""
        return self._stored.origin

    @functools.cached_property
    def _stored(self):
        return self.store()

    def by_group(self, x):
        """(batch, children, ...) as (batch, members, groups, ...)."""
        shape = ops.shape(x)
        return ops.reshape(x, (shape[0], shape[1] // self.groups, self.groups, *shape[2:]))

    def shaped(self, poses):
        """Poses of the parents with entries in any layout, as (batch, parents, *pose)."""
        return ops.reshape(poses, (-1, self.parents, *self.pose_shape))

    def _set_activations(self, activations):
        """Sets the activations, (batch, children); None stands for ones."""
        activations = ops.ones((1, self.children)) if activations is None else activations
        self.activations = ops.cast(activations, self.dtype)
