"""Votes of children that share transformations, answered without making the votes."""

import functools

from keras import ops

from tf_capsules.argument_types import Tensor
from tf_capsules.routing.votes.chunked import moments_by_groups, sums_in_chunks
from tf_capsules.routing.votes.stored import StoredVotes
from tf_capsules.routing.votes.transformed import TransformedVotes

# Axis legend as in `transformed.py`; q product of two columns of a child's pose, f feature (1, x, products).

TINY = 1e-12  # below any mass that matters; its square is still a float32


def products(x, axis, size):
    """Products of entry i with entries i, i + 1, ... of x, which has `size` entries along an axis."""
    # Split, not sliced: TensorFlow pads the gradient of each slice with zeros to the size of x.
    entries = ops.split(x, size, axis=axis)
    return ops.concatenate([entries[i] * ops.concatenate(entries[i:], axis=axis) for i in range(size)], axis=axis)


def to_parents(features, kernel):
    """`sum_f x_bgfrj W_gjfe`, (batch, groups, parents, rows, e): a matrix product for each parent.

    The features are (batch, groups, features, rows, parents or 1). The products are written out, here and in
    `to_features`: with `ops.einsum` TensorFlow takes two to ten times as long.
    """
    batch, groups, size, rows, parents = ops.shape(features)
    x = ops.reshape(ops.transpose(features, (1, 4, 0, 3, 2)), (groups, parents, batch * rows, size))
    result = ops.reshape(ops.matmul(x, kernel), (groups, ops.shape(kernel)[1], batch, rows, kernel.shape[-1]))
    return ops.transpose(result, (2, 0, 1, 3, 4))


def to_features(poses, kernel):
    """`sum_e x_bgjre W_gjfe`, (batch, groups, features, rows, parents), of poses (batch, groups or 1, ...)."""
    batch, groups, parents, rows, size = ops.shape(poses)
    x = ops.reshape(ops.transpose(poses, (1, 2, 0, 3, 4)), (groups, parents, batch * rows, size))
    result = ops.matmul(x, ops.transpose(kernel, (0, 1, 3, 2)))
    result = ops.reshape(result, (kernel.shape[0], parents, batch, rows, kernel.shape[2]))
    return ops.transpose(result, (2, 0, 4, 3, 1))


class SharedVotes(TransformedVotes):
    """Votes of children that share transformations. The four methods compute exactly, without making the votes.

    Votes are affine in the child's pose. So a weighted sum of votes is the transformed weighted sum of poses, and an
    agreement is that of the child's pose with the parent's pose transformed back. A Gaussian's log density is a
    quadratic form in the child's pose, and a weighted variance follows from its second moments: both are matrix
    products over the features (1, x, x x^T) of a pose.

    Args:
        poses, kernel, bias, activations: see `TransformedVotes`.
        children_per_chunk: about how many children `moments` handles at a time, or one group if groups are that large:
            features and couplings exist for one chunk, and the backward pass recomputes them. None: all children.
    """

    def __init__(
        self,
        poses: Tensor,
        kernel: Tensor,
        bias: Tensor | None = None,
        activations: Tensor | None = None,
        children_per_chunk: int | None = None,
    ):
        super().__init__(poses, kernel, bias, activations)
        self.children_per_chunk = children_per_chunk
        # (batch, groups, members, rows * d), with a bias a further column of ones; and (parents, groups * d, e).
        x = ops.reshape(self.poses, (self.batch, self.children, self.rows * self.columns))
        x = x if bias is None else ops.concatenate([x, ops.ones_like(x[..., :1])], axis=-1)
        self._flat_poses = self.groups_first(x)
        self._matrices = ops.reshape(ops.swapaxes(self.kernel, 0, 1), (self.parents, -1, self.pose_shape[-1]))

    def store(self):
        votes = self._children_last(self._centered, self._central_offsets)
        return StoredVotes(votes, self.activations, self.groups, self.origin, children_last=True)

    @property
    def origin(self):
        return self.shaped(self._origin)

    @functools.cached_property
    def center(self):
        """The mean pose of each group, (batch, groups, rows, d). It affects rounding only."""
        weights = self.by_group(self.activations)[..., None, None]
        mass = ops.maximum(ops.sum(weights, axis=1), TINY)
        return ops.stop_gradient(ops.sum(weights * self.by_group(self.poses), axis=1) / mass)

    @property
    def _centered(self):
        """The children's poses less the center of their group, (batch, members, groups, rows, d)."""
        return self.by_group(self.poses) - self.center[:, None]

    @functools.cached_property
    def _origin(self):
        """The mean vote of the centers, (batch, parents, rows, e). It affects rounding only."""
        origin = ops.einsum("bgrd,gjde->bjre", self.center, self.kernel)
        origin = origin if self.bias is None else origin + ops.sum(self.bias, axis=0)
        return ops.stop_gradient(origin / self.groups)

    @functools.cached_property
    def _central_offsets(self):
        """The vote of each group's center less the origin, (batch, groups, parents, rows, e)."""
        votes = ops.einsum("bgrd,gjde->bgjre", self.center, self.kernel)
        votes = votes if self.bias is None else votes + self.bias
        return votes - self._origin[:, None]

    def groups_first(self, x):
        """(batch, children, ...) as (batch, groups, members, ...)."""
        return ops.swapaxes(self.by_group(x), 1, 2)

    def _children_first(self, x):
        """(batch, groups, members, parents) as (batch, children, parents)."""
        return ops.reshape(ops.swapaxes(x, 1, 2), (self.batch, self.children, self.parents))

    def weighted_sum(self, weights):
        # TensorFlow's product of (batch, 1, ...) and (1, 1, ...) is wrong: tests/test_tensorflow_faults.py.
        weights = ops.broadcast_to(weights, (self.batch, *ops.shape(weights)[1:]))
        return self.shaped(self.sum_by_group(self.groups_first(weights)))

    def sum_by_group(self, weights):
        """`weighted_sum`, (batch, parents, rows, e), of weights (batch, groups, members, parents or 1)."""
        sums = ops.matmul(ops.swapaxes(self._flat_poses, 2, 3), weights)
        masses = None
        if self.bias is not None:
            sums, masses = ops.split(sums, [self.rows * self.columns], axis=2)
        count = ops.shape(weights)[3]  # one for each parent, or one for all
        sums = ops.reshape(sums, (-1, self.groups, self.rows, self.columns, count))
        sums = ops.reshape(ops.transpose(sums, (4, 0, 2, 1, 3)), (count, -1, self.groups * self.columns))
        sums = ops.reshape(ops.matmul(sums, self._matrices), (self.parents, -1, self.rows, self.pose_shape[-1]))
        sums = ops.swapaxes(sums, 0, 1)
        return sums if masses is None else sums + self._bias_sum(masses[:, :, 0])

    def agreement(self, poses):
        return self._children_first(self.agreement_by_group(poses))

    def agreement_by_group(self, poses):
        """`agreement` as (batch, groups, members, parents)."""
        poses = ops.broadcast_to(self._with_rows(poses), (self.batch, self.parents, self.rows, self.pose_shape[-1]))
        back = ops.reshape(ops.swapaxes(poses, 0, 1), (self.parents, -1, self.pose_shape[-1]))
        back = ops.matmul(back, ops.swapaxes(self._matrices, 1, 2))
        back = ops.reshape(back, (self.parents, -1, self.rows, self.groups, self.columns))
        back = ops.transpose(back, (1, 3, 2, 4, 0))
        back = ops.reshape(back, (-1, self.groups, self.rows * self.columns, self.parents))
        if self.bias is not None:
            back = ops.concatenate([back, self._bias_agreement(poses)[:, :, None]], axis=2)
        return ops.matmul(self._flat_poses, back)

    @functools.cached_property
    def _features(self):
        """1, x and the products of the entries of x, of the centered poses: (batch, groups, features, members)."""
        x = ops.transpose(self._centered, (0, 2, 4, 3, 1))  # children last: a long axis, for vector instructions
        return self._join(ops.ones_like(x[:, :, :1, 0]), x, products(x, 2, self.columns))

    @functools.cached_property
    def _features_by_child(self):
        """`_features` as (batch, groups, members, features): matrix products are faster in this layout."""
        return ops.transpose(self._features, (0, 1, 3, 2))

    @functools.cached_property
    def _weighted_features(self):
        return self._features * self.groups_first(self.activations)[:, :, None]

    @functools.cached_property
    def _kernel_products(self):
        """The coefficients of products of entries of x in the squares of a vote's entries, (groups, parents, q, e)."""
        twice = [1.0 if d == f else 2.0 for d in range(self.columns) for f in range(d, self.columns)]
        twice = ops.reshape(ops.convert_to_tensor(twice, self.kernel.dtype), (-1, 1))
        return products(self.kernel, 2, self.columns) * twice

    def _join(self, ones, x, products):
        """(b, g, 1, n), (b, g, d, r, n) and (b, g, q, r, n) as (b, g, features, n)."""
        shape = ops.shape(x)
        flat = [ops.reshape(part, (*shape[:2], part.shape[2] * self.rows, shape[4])) for part in (x, products)]
        return ops.concatenate([ones, *flat], axis=2)

    def _split(self, features):
        """The inverse of `_join`."""
        shape = ops.shape(features)
        end = 1 + self.columns * self.rows
        ones, *parts = ops.split(features, [1, end], axis=2)
        parts = [ops.reshape(x, (*shape[:2], x.shape[2] // self.rows, self.rows, shape[3])) for x in parts]
        return ops.squeeze(ones, axis=2), *parts

    def log_density(self, means, precisions, constants):
        precisions = self._with_rows(precisions)
        offset = self._with_rows(means)[:, None] - self._central_offsets
        weighted = offset * precisions[:, None]
        constant = constants[:, None] - 0.5 * ops.sum(offset * weighted, axis=(-2, -1))
        linear = to_features(weighted, self.kernel)
        quadratic = to_features(-0.5 * precisions[:, None], self._kernel_products)
        coefficients = self._join(constant[:, :, None], linear, quadratic)
        return self._children_first(ops.matmul(self._features_by_child, coefficients))

    def moments(self, couplings, *state, epsilon=0.0, near=None, masses_by_group=True):
        members = self.children // self.groups  # where it is unknown, a chunk has a part of each group
        if self.children_per_chunk is None:
            sums = self._sums(couplings, *state)
        elif self.groups > 1 and isinstance(members, int) and self.children_per_chunk <= members:
            options = dict(epsilon=epsilon, near=near, masses_by_group=masses_by_group)
            return moments_by_groups(self, couplings, *state, **options)
        else:
            sums = sums_in_chunks(self, couplings, *state)
        masses, votes, squares, rest = self._about_own_means(sums)
        weights = masses[..., None, None]
        divisor = ops.sum(weights, axis=1) + epsilon
        # mean - origin = (Σ D V' - ε origin) / (mass + ε), where V' is relative to the origin.
        means = (ops.sum(weights * votes + rest, axis=1) - epsilon * self._origin) / divisor
        apart = votes - means[:, None]
        variances = ops.sum(squares + weights * ops.square(apart) + 2 * rest * apart, axis=1) / divisor
        masses = ops.broadcast_to(masses, (self.batch, self.groups, self.parents))
        masses = masses if masses_by_group else ops.sum(masses, axis=1, keepdims=True)
        return masses, self.shaped(means), self.shaped(variances)

    def _about_own_means(self, sums):
        """For each group: mass (b, g, j); mean less the origin, squares about the mean, and a rest, (b, g, j, r, e).

        The rest is what mass times mean lacks of the sum. It is 0; its gradient is not, where the mass is 0.
        """
        masses, first, second = self._split(sums)
        weights, total = masses[..., None, None], to_parents(first, self.kernel)
        votes = total / ops.maximum(weights, TINY)
        squares = to_parents(second, self._kernel_products) - weights * ops.square(votes)
        squares = ops.where(squares < 0, 0.0, squares)  # unlike a maximum, it has a whole gradient at 0
        return masses, votes + self._central_offsets, squares, total - weights * votes

    def _sums(self, couplings, *state):
        """Sums over children of shares times features, (batch, groups, features, parents or 1)."""
        couplings = couplings(self, *state) if callable(couplings) else couplings
        if couplings.shape[-1] == 1:
            weights = self.groups_first(couplings[..., 0])[:, :, None]
            return ops.sum(self._weighted_features * weights, axis=-1, keepdims=True)
        return ops.einsum("bgfp,bgpj->bgfj", self._weighted_features, self.groups_first(couplings))
