"""What a routing algorithm may ask of the votes, and the ways to answer.

A child capsule i with pose x_i (a matrix of `rows` x `columns`, or a vector, which is one row) predicts the pose of
parent j by its vote `V_ij = x_i W_ij + B_ij`. An algorithm never needs the votes themselves. It needs

- `weighted_sum(weights)`: `sum_i w_ij V_ij`;
- `agreement(poses)`: the inner products `<V_ij, v_j>`;
- `log_density(means, precisions, constants)`: `c_j - 1/2 sum_k p_jk (V_ijk - m_jk)^2` over the entries k of the pose;
- `moments(couplings)`: mass, mean and variance of the votes that each parent takes;

so it is written once, against an object with these four methods. Poses are (batch, parents, *pose); weights, couplings
and agreements are (batch, children, parents). Weights that are equal for all parents may be given as
(batch, children, 1), which costs a single matrix product in place of one for each parent; a batch axis of 1 then
stands for the whole batch. Densities and moments are about an `origin`, for each parent a pose in the midst of its
votes: means are relative to it, so that votes far from zero keep their digits.

| class | when | numbers held for each (child, parent) pair |
| --- | --- | --- |
| `StoredVotes` | always possible | the size of a parent's pose |
| `SharedVotes` | children share their transformations | none beyond the weight or the coupling itself |
| `DistinctVotes` | each pair has its own matrix | the size of a child's pose; densities and moments store the votes |
"""

import functools
import math
from collections.abc import Callable

import keras
from keras import ops

from tf_capsules.hints import Tensor
from tf_capsules.routing.precision import at_least_float32

# Axis legend: b batch, i child, j parent, r row of a pose, d column of a child's pose, e column of a parent's pose,
# k entry of a flattened pose, g group of children that share a transformation, p child within its group,
# q product of two columns of a child's pose, f feature (1, x, products).

_TINY = 1e-12  # below any mass that matters; its square is still a float32


def couple(logits: Tensor, competition: str = "parents", *, leaky: bool = False, mask: Tensor | None = None):
    """Coupling coefficients: routing logits normalised over those that compete.

    Source: Sabour et al. 2017, eq. 3 (`"parents"`: every child distributes 1 over the parents); Li et al. 2018, section
    2.2 (`"children"`: every parent collects 1 from the children); leaky: the released code of Sabour et al., where a
    further, constant logit of zero takes what belongs to none of the parents.

    Args:
        logits: (batch, children, parents).
        competition: "parents" or "children".
        leaky: whether a child may withhold a part; with competition "parents" only.
        mask: (batch, children), true for the children that take part; the others get couplings of 0.

    Returns:
        Couplings of the shape of `logits`.
    """
    logits = at_least_float32(logits)
    keep = None if mask is None else ops.cast(mask, logits.dtype)[:, :, None]
    if competition == "parents":
        if leaky:
            logits = ops.pad(logits, [[0, 0], [0, 0], [0, 1]])
        couplings = softmax(logits, axis=-1)
        if leaky:
            couplings = couplings[:, :, :-1]
    else:
        if keep is not None:
            logits = ops.where(keep > 0, logits, ops.cast(-1e30, logits.dtype))
        couplings = softmax(logits, axis=1)
    return couplings if keep is None else couplings * keep


def softmax(logits, axis):
    # Keras warns of a softmax over an axis of size 1, which a network with one class has.
    return ops.ones_like(logits) if logits.shape[axis] == 1 else ops.softmax(logits, axis=axis)


def products(x, axis, size, other=None):
    """The products of each entry along an axis of known size with itself and those after it: d (d + 1) / 2 of d.

    With `other`, shaped like x, the first factor is from there.
    """
    # Not slices, each of whose gradients TensorFlow fills up with zeros to the size of x.
    entries = ops.split(x, size, axis=axis)
    firsts = entries if other is None else ops.split(other, size, axis=axis)
    return ops.concatenate([firsts[i] * ops.concatenate(entries[i:], axis=axis) for i in range(size)], axis=axis)


def kernel_products(kernel):
    """The weight of each product of entries of x in the square of an entry of a vote, (groups, parents, q, e)."""
    columns = kernel.shape[2]
    twice = [1.0 if d == f else 2.0 for d in range(columns) for f in range(d, columns)]
    return products(kernel, 2, columns) * ops.reshape(ops.convert_to_tensor(twice, kernel.dtype), (-1, 1))


def to_parents(features, kernel):
    """`sum_f x_bgfrj W_gjfe`, (batch, groups, parents, rows, e): a matrix product for each parent.

    The features, (batch, groups, features, rows, parents or 1), may be the same for all parents. Written out, as in
    `to_features`, since TensorFlow takes two to ten times as long for what `ops.einsum` makes of it.
    """
    batch, groups, size, rows, parents = ops.shape(features)
    x = ops.reshape(ops.transpose(features, (1, 4, 0, 3, 2)), (groups, parents, batch * rows, size))
    result = ops.reshape(ops.matmul(x, kernel), (groups, ops.shape(kernel)[1], batch, rows, kernel.shape[-1]))
    return ops.transpose(result, (2, 0, 1, 3, 4))


def to_features(poses, kernel):
    """`sum_e x_bgjre W_gjfe`, (batch, groups, features, rows, parents); the poses may be the same for all groups."""
    batch, groups, parents, rows, size = ops.shape(poses)
    x = ops.reshape(ops.transpose(poses, (1, 2, 0, 3, 4)), (groups, parents, batch * rows, size))
    result = ops.matmul(x, ops.transpose(kernel, (0, 1, 3, 2)))
    result = ops.reshape(result, (kernel.shape[0], parents, batch, rows, kernel.shape[2]))
    return ops.transpose(result, (2, 0, 4, 3, 1))


class Votes:
    """What all ways to answer share; what has no smaller form stores the votes."""

    batch: Tensor
    children: Tensor
    parents: int
    pose_shape: tuple[int, ...]
    dtype: str
    agreement: Callable
    weighted_sum: Callable

    def store(self, centered=False):
        """The same votes, as `StoredVotes`; `centered`: about their own origin."""
        raise TypeError(f"{type(self).__name__} must define `store`.")

    def tensor(self):
        """The votes themselves, (batch, children, parents, *pose)."""
        return self.store().tensor()

    def log_density(self, means, precisions, constants):
        """`c_j - 1/2 sum_k p_jk (V_ijk - m_jk)^2`: a Gaussian's log density, up to what the constants hold.

        Args:
            means, precisions: (batch, parents, *pose), the means relative to `origin`.
            constants: (batch, parents).

        Returns:
            (batch, children, parents).
        """
        return self._centered.log_density(means, precisions, constants)

    def moments(self, couplings, *state, epsilon=0.0, near=None, by_group=True):
        """Mass, mean and variance of the votes that each parent takes.

        Child i gives parent j the share `D_ij = a_i R_ij`: its activation times its coupling.

        Args:
            couplings: (batch, children, parents) or (batch, children, 1); or a function of (votes, *state) that gives
                them and in which children don't depend on each other: then it may be asked for some children at a
                time.
            state: arrays for the function.
            epsilon: added to a parent's mass where it divides.
            near: poses near the means, relative to `origin`, (batch, parents, *pose), or None. No result depends on it
                but for rounding.
            by_group: whether the children of each group have a mass of their own, or all have one, which is smaller.

        Returns:
            Masses (batch, groups or 1, parents), the sum of D_ij over the children of each group, or of all; means
            `sum_i D_ij V_ij / (mass + epsilon)`, less `origin`, and variances
            `sum_i D_ij (V_ij - mean)^2 / (mass + epsilon)`, both (batch, parents, *pose).
        """
        return self._centered.moments(couplings, *state, epsilon=epsilon, near=near, by_group=by_group)

    @functools.cached_property
    def origin(self):
        """What means are relative to, (batch or 1, parents, *pose)."""
        return self._centered.origin

    @functools.cached_property
    def _centered(self):
        return self.store(centered=True)

    def total_activation(self):
        """Sum of the activations of each group's children, (batch or 1, groups)."""
        return ops.sum(self.by_group(self.activations), axis=1)

    def by_group(self, x):
        """(batch, children, ...) as (batch, members, groups, ...)."""
        shape = ops.shape(x)
        return ops.reshape(x, (shape[0], shape[1] // self.groups, self.groups, *shape[2:]))

    def _masses(self, masses, by_group):
        return masses if by_group else ops.sum(masses, axis=1, keepdims=True)

    def _take(self, activations):
        """Keeps the activations, (batch, children); None stands for ones."""
        if activations is None:
            self.activations = ops.ones((1, self.children), self.dtype)
        else:
            self.activations = ops.cast(activations, self.dtype)


class StoredVotes(Votes):
    """Answers from the tensor of votes.

    It is kept with the parents before and the children after the entries of a pose: then each sum, over children or
    over entries, is a product of a matrix and a vector for each parent, which makes no further tensor of this size.

    Args:
        votes: (batch, children, parents, *pose).
        activations: how much each child counts in `moments`, (batch, children); None: 1.
        groups: child i belongs to group `i % groups`; `moments` gives the masses by group.
        origin: what `votes` are relative to, (batch, parents, *pose); None: zero.
    """

    def __init__(
        self,
        votes: Tensor,
        activations: Tensor | None = None,
        groups: int = 1,
        origin: Tensor | None = None,
        _pose_shape=None,
    ):
        votes = at_least_float32(votes)
        if _pose_shape is None:
            _pose_shape = tuple(votes.shape[3:])
            shape = ops.shape(votes)
            votes = ops.transpose(ops.reshape(votes, (*shape[:3], math.prod(_pose_shape))), (0, 2, 3, 1))
        self.votes = votes  # (batch, parents, entries of a pose, children)
        self.batch, self.parents, self.entries, self.children = ops.shape(votes)
        self.pose_shape = _pose_shape
        self.groups = groups
        self.dtype = votes.dtype
        self.origin = ops.zeros((1, self.parents, *_pose_shape), self.dtype) if origin is None else origin
        self._take(activations)
        self._last_squares = None, None

    def _flat(self, poses):
        """(batch, parents, *pose) as (batch, parents, entries)."""
        return ops.reshape(poses, (-1, self.parents, self.entries))

    def _shaped(self, poses):
        """(batch, parents, entries) as (batch, parents, *pose)."""
        return ops.reshape(poses, (-1, self.parents, *self.pose_shape))

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
        """`(V_ij - m_j)^2`, shaped like the votes; an algorithm asks twice in a row about the same means."""
        if self._last_squares[0] is not means:
            self._last_squares = means, ops.square(self.votes - self._flat(means)[..., None])
        return self._last_squares[1]

    def store(self, centered=False):
        return self

    def tensor(self):
        votes = ops.transpose(self.votes, (0, 3, 1, 2))
        votes = ops.reshape(votes, (self.batch, self.children, self.parents, *self.pose_shape))
        return votes + self.origin[:, None]

    def weighted_sum(self, weights):
        sums = self._shaped(self._over_children(self.votes, weights))
        mass = ops.sum(weights, axis=1)
        return sums + self.origin * ops.reshape(mass, (*ops.shape(mass), *[1] * len(self.pose_shape)))

    def agreement(self, poses):
        result = self._over_entries(self._flat(poses), self.votes)
        return result + ops.sum(self._flat(self.origin * poses), axis=-1)[:, None]

    def log_density(self, means, precisions, constants):
        return constants[:, None] - 0.5 * self._over_entries(self._flat(precisions), self.squares(means))

    def moments(self, couplings, *state, epsilon=0.0, near=None, by_group=True):
        couplings = couplings(self, *state) if callable(couplings) else couplings
        shares = couplings * self.activations[..., None]
        masses = ops.sum(self.by_group(shares), axis=1)
        masses = ops.broadcast_to(masses, (self.batch, self.groups, self.parents))
        divisor = ops.sum(masses, axis=1)[..., None] + epsilon
        # The origin counts once for each unit of mass, but is taken off whole: what is left is epsilon times it.
        sums = self._over_children(self.votes, shares) - epsilon * self._flat(self.origin)
        means = self._shaped(sums / divisor)
        variances = self._over_children(self.squares(means), shares) / divisor
        return self._masses(masses, by_group), means, self._shaped(variances)


class TransformedVotes(Votes):
    """Votes `x_i W_ij + B_ij` given by the children's poses and the transformations.

    Args:
        poses: (batch, children, d) or (batch, children, rows, d).
        kernel: (groups, parents, d, e); the children are `groups` runs over the groups, group fastest, so that child i
            uses `kernel[i % groups]`. One group: all children share. As many groups as children: none do.
        bias: (groups, parents, e) or (groups, parents, rows, e), or None.
        activations: how much each child counts in `moments`, (batch, children); None: 1.
    """

    def __init__(self, poses: Tensor, kernel: Tensor, bias: Tensor | None = None, activations: Tensor | None = None):
        poses, kernel = at_least_float32(poses), at_least_float32(kernel)
        self.groups, _, self.columns, out = kernel.shape
        self.parents = ops.shape(kernel)[1]
        if poses.shape[-1] != self.columns:
            raise ValueError(
                f"Received poses of shape {tuple(poses.shape)}, whose last axis does not fit a kernel of shape "
                f"{tuple(kernel.shape)}, (groups, parents, d, e)."
            )
        if poses.shape[1] is not None and poses.shape[1] % self.groups:
            raise ValueError(
                f"Received {poses.shape[1]} children, which are not whole runs over the groups of a kernel of shape "
                f"{tuple(kernel.shape)}, (groups, parents, d, e)."
            )
        self.rows = poses.shape[2] if len(poses.shape) == 4 else 1
        self.pose_shape = (self.rows, out) if len(poses.shape) == 4 else (out,)
        self.batch, self.children = ops.shape(poses)[0], ops.shape(poses)[1]
        self.dtype = poses.dtype
        self.kernel = kernel
        self.poses = ops.reshape(poses, (self.batch, self.children, self.rows, self.columns))
        self.bias = None if bias is None else ops.reshape(bias, (self.groups, self.parents, self.rows, out))
        self._take(activations)

    def _with_rows(self, poses):
        """(batch, parents, *pose) as (batch, parents, rows, e)."""
        return ops.reshape(poses, (-1, self.parents, self.rows, self.pose_shape[-1]))

    def _shaped(self, poses):
        return ops.reshape(poses, (-1, self.parents, *self.pose_shape))

    def store(self, centered=False):
        # Of a group of one the center is its only pose: its votes would be no more exact.
        centered = centered and self.groups != self.poses.shape[1]
        poses = self.by_group(self.poses)
        poses, bias = (poses - self.center[:, None], self._central_offsets) if centered else (poses, self.bias)
        # As the product gives them, (groups, batch, members, rows, parents, e), and then as they are kept.
        votes = ops.transpose(ops.einsum("bpgrd,gjde->gbprje", poses, self.kernel), (1, 4, 3, 5, 2, 0))
        if bias is not None:
            bias = bias if centered else bias[None]
            votes = votes + ops.transpose(bias, (0, 2, 3, 4, 1))[:, :, :, :, None]
        votes = ops.reshape(votes, (self.batch, self.parents, math.prod(self.pose_shape), self.children))
        origin = self._shaped(self._origin) if centered else None
        return StoredVotes(votes, self.activations, self.groups, origin, self.pose_shape)

    @functools.cached_property
    def center(self):
        """The mean pose of each group, (batch, groups, rows, d). No result depends on it but for rounding."""
        weights = self.by_group(self.activations)[..., None, None]
        mass = ops.maximum(ops.sum(weights, axis=1), _TINY)
        return ops.stop_gradient(ops.sum(weights * self.by_group(self.poses), axis=1) / mass)

    @functools.cached_property
    def _central_votes(self):
        """The vote of each group's center, (batch, groups, parents, rows, e)."""
        votes = ops.einsum("bgrd,gjde->bgjre", self.center, self.kernel)
        return votes if self.bias is None else votes + self.bias

    @functools.cached_property
    def _origin(self):
        """The mean vote of the centers, (batch, parents, rows, e). No result depends on it but for rounding."""
        origin = ops.einsum("bgrd,gjde->bjre", self.center, self.kernel)
        origin = origin if self.bias is None else origin + ops.sum(self.bias, axis=0)
        return ops.stop_gradient(origin / self.groups)

    @functools.cached_property
    def _central_offsets(self):
        return self._central_votes - self._origin[:, None]

    def _bias_sum(self, weights):
        """`sum_i w_ij B_ij`, or 0 without a bias."""
        if self.bias is None:
            return 0.0
        mass = ops.sum(self.by_group(weights), axis=1)
        if mass.shape[-1] == 1:
            return ops.einsum("bg,gjre->bjre", mass[..., 0], self.bias)
        return ops.einsum("bgj,gjre->bjre", mass, self.bias)

    def _bias_agreement(self, poses):
        """`<B_ij, v_j>`, (batch, groups, parents)."""
        return ops.einsum("gjre,bjre->bgj", self.bias, poses)

    def _common_sum(self, weights):
        """The weighted sum for weights (batch, children, 1) that are the same for all parents."""
        moments = ops.sum(self.by_group(weights[..., None] * self.poses), axis=1)
        return ops.einsum("bgrd,gjde->bjre", moments, self.kernel)


class SharedVotes(TransformedVotes):
    """Answers without votes where children share transformations.

    Votes are affine in the child's pose, so a weighted sum of votes is the transformed weighted sum of poses, and an
    agreement with a parent is the agreement of the child's pose with the parent's, transformed back. A Gaussian's log
    density is a quadratic form in the child's pose, and a weighted variance follows from its second moments: both are
    matrix products over the features (1, x, x x^T) of a pose. The vote tensor is never made; the result is exact, not
    an approximation.

    Args:
        poses, kernel, bias, activations: see `TransformedVotes`.
        chunk: None, or about how many children `moments` works on at a time, a group at a time where it has as many:
            then their features and couplings exist for one chunk only, and the backward pass makes them again.
    """

    def __init__(
        self,
        poses: Tensor,
        kernel: Tensor,
        bias: Tensor | None = None,
        activations: Tensor | None = None,
        chunk: int | None = None,
        _center=None,
    ):
        super().__init__(poses, kernel, bias, activations)
        self.chunk = chunk
        if _center is not None:
            self.center = _center

    @property
    def origin(self):
        return self._shaped(self._origin)

    def weighted_sum(self, weights):
        if weights.shape[-1] == 1:
            sums = self._common_sum(weights)
        else:
            moments = ops.einsum("bpgj,bpgrd->bgjrd", self.by_group(weights), self.by_group(self.poses))
            sums = ops.einsum("bgjrd,gjde->bjre", moments, self.kernel)
        return self._shaped(sums + self._bias_sum(weights))

    def agreement(self, poses):
        poses = self._with_rows(poses)
        back = ops.einsum("bjre,gjde->bgjrd", poses, self.kernel)
        result = ops.einsum("bpgrd,bgjrd->bpgj", self.by_group(self.poses), back)
        if self.bias is not None:
            result = result + self._bias_agreement(poses)[:, None]
        return ops.reshape(result, (self.batch, self.children, self.parents))

    @functools.cached_property
    def _features(self):
        """1, x and the products of the entries of x, of the centered poses: (batch, groups, features, members)."""
        centered = self.by_group(self.poses) - self.center[:, None]
        x = ops.transpose(centered, (0, 2, 4, 3, 1))  # children last, the axis long enough to be worked on as vectors
        return self._join(ops.ones_like(x[:, :, :1, 0]), x, products(x, 2, self.columns))

    @functools.cached_property
    def _weighted_features(self):
        return self._features * ops.transpose(self.by_group(self.activations), (0, 2, 1))[:, :, None]

    @functools.cached_property
    def _kernel_products(self):
        return kernel_products(self.kernel)

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
        result = ops.einsum("bgfp,bgfj->bgpj", self._features, coefficients)
        if self.groups > 1:
            result = ops.transpose(result, (0, 2, 1, 3))
        return ops.reshape(result, (self.batch, self.children, self.parents))

    def moments(self, couplings, *state, epsilon=0.0, near=None, by_group=True):
        if self.chunk is None:
            sums = self._sums(couplings, *state)
        elif self._a_group_is_a_chunk:
            return self._moments_by_groups(couplings, *state, epsilon=epsilon, near=near, by_group=by_group)
        else:
            sums = self._sums_by_chunks(couplings, *state)
        masses, votes, squares = self._about_own_means(sums)
        squares = ops.sum(squares, axis=1)
        divisor = ops.sum(masses, axis=1)[..., None, None] + epsilon
        # The origin counts once for each unit of mass, but is taken off whole: what is left is epsilon times it.
        means = (ops.sum(masses[..., None, None] * votes, axis=1) - epsilon * self._origin) / divisor
        between = ops.sum(masses[..., None, None] * ops.square(votes - means[:, None]), axis=1)
        variances = (squares + between) / divisor
        masses = ops.broadcast_to(masses, (self.batch, self.groups, self.parents))
        return self._masses(masses, by_group), self._shaped(means), self._shaped(variances)

    @property
    def _a_group_is_a_chunk(self):
        """Whether groups are at least as large as a chunk; where their size is unknown a chunk has a part of each."""
        return self.groups > 1 and isinstance(self.children, int) and self.chunk <= self.children // self.groups

    def _about_own_means(self, sums):
        """Of each group the mass, (b, g, j), the mean, less the origin, and the squares about it, (b, g, j, r, e)."""
        masses, first, second = self._split(sums)
        votes = to_parents(first / ops.maximum(masses, _TINY)[:, :, None, None], self.kernel)
        squares = to_parents(second, self._kernel_products) - masses[..., None, None] * ops.square(votes)
        return masses, votes + self._central_offsets, ops.maximum(squares, 0)

    def _sums(self, couplings, *state):
        """Sums over children of shares times features, (batch, groups, features, parents); or one for all parents."""
        couplings = couplings(self, *state) if callable(couplings) else couplings
        if couplings.shape[-1] == 1:
            weights = ops.transpose(self.by_group(couplings[..., 0]), (0, 2, 1))[:, :, None]
            return ops.sum(self._weighted_features * weights, axis=-1, keepdims=True)
        shape = ops.shape(couplings)
        if self.groups == 1:
            couplings = ops.reshape(couplings, (shape[0], 1, *shape[1:]))
        else:
            couplings = ops.transpose(self.by_group(couplings), (0, 2, 1, 3))
        return ops.einsum("bgfp,bgpj->bgfj", self._weighted_features, couplings)

    def _moments_by_groups(self, couplings, *state, epsilon, near, by_group):
        """`moments`, one group of children after the other: nothing exists for all groups, children and parents."""
        given = {"poses": self.by_group(self.poses), "kernel": self.kernel, "center": self.center}
        activations = ops.broadcast_to(self.activations, (self.batch, self.children))
        given["activations"] = self.by_group(activations)
        if self.bias is not None:
            given["bias"] = self.bias
        if not callable(couplings):
            couplings_of_all = ops.broadcast_to(couplings, (self.batch, *ops.shape(couplings)[1:]))
            given["couplings"] = self.by_group(couplings_of_all)
        axes = {"poses": 2, "kernel": 0, "center": 1, "activations": 2, "bias": 0, "couplings": 2}
        names = tuple(given)
        near = ops.zeros_like(self._origin) if near is None else ops.stop_gradient(self._with_rows(near))
        near = ops.broadcast_to(near, (self.batch, *ops.shape(self._origin)[1:]))

        @keras.remat
        def sums(origin, near, state, *given):
            of = dict(zip(names, given, strict=True))
            bias, center = of["bias"][None] if "bias" in of else None, of["center"][:, None]
            votes = SharedVotes(
                ops.reshape(of["poses"], (self.batch, -1, self.rows, self.columns)),
                of["kernel"][None],
                bias,
                of["activations"],
                _center=center,
            )
            votes._origin = origin
            found = votes._about_own_means(votes._sums(of.get("couplings", couplings), *state))
            masses, means, squares = (ops.squeeze(x, axis=1) for x in found)
            masses = ops.broadcast_to(masses, (self.batch, self.parents))
            weights, means = masses[..., None, None], means - near
            # So that sums over groups lose no digits, squares are about what is near all their means.
            return masses, weights * means, squares + weights * ops.square(means)

        @keras.remat  # a dozen arrays of the size of all parents
        def finish(masses, first, second, near, origin):
            mass = ops.sum(masses, axis=1)[..., None, None]
            divisor = mass + epsilon
            # The origin counts once for each unit of mass, but is taken off whole: what is left is epsilon times it.
            means = (first + mass * near - epsilon * origin) / divisor
            beyond = means - near
            squares = second - 2 * beyond * first + mass * ops.square(beyond)
            return means, ops.maximum(squares, 0) / divisor

        def step(total, given):
            row, *given = given
            masses, *others = sums(self._origin, near, state, *given)
            masses = masses[:, None]
            added = (row[:, None] * masses if by_group else masses, *others)
            return tuple(a + b for a, b in zip(total, added, strict=True)), None

        # The gradient of TensorFlow's scan keeps what is carried along at each step: as little as will do.
        rows = ops.eye(self.groups, dtype=self.dtype) if by_group else ops.ones((self.groups, 1), self.dtype)
        parts = (rows, *(ops.moveaxis(x, axes[name], 0) for name, x in given.items()))
        masses = ops.zeros((self.batch, rows.shape[1], self.parents), self.dtype)
        masses, first, second = ops.scan(step, (masses, ops.zeros_like(near), ops.zeros_like(near)), parts)[0]
        means, variances = finish(masses, first, second, near, self._origin)
        return masses, self._shaped(means), self._shaped(variances)

    def _sums_by_chunks(self, couplings, *state):
        members = self.children // self.groups
        count = -(-members // -(-self.chunk // self.groups))
        count = max(count, 1) if isinstance(count, int) else ops.maximum(count, 1)
        size = -(-members // count)  # chunks of one size, so that little has to be filled up
        missing = (count * size - members) * self.groups
        bias = () if self.bias is None else (self.bias,)
        center, entries = self.center, self.rows * self.columns
        # As one array: of several, whose number is unknown, TensorFlow's scan makes nothing.
        given = [ops.reshape(self.poses, (self.batch, self.children, entries))]
        given += [ops.broadcast_to(self.activations, (self.batch, self.children))[..., None]]
        if not callable(couplings):
            given += [ops.broadcast_to(couplings, (self.batch, *ops.shape(couplings)[1:]))]
        packed = ops.concatenate(given, axis=-1)
        packed = ops.pad(packed, [[0, 0], [0, missing], [0, 0]])
        packed = ops.reshape(packed, (self.batch, count, size * self.groups, packed.shape[-1]))

        @keras.remat
        def sums(packed, center, kernel, bias, state):
            poses, activations, own = ops.split(packed, [entries, entries + 1], axis=-1)
            poses = ops.reshape(poses, (*ops.shape(poses)[:2], self.rows, self.columns))
            votes = SharedVotes(poses, kernel, *bias, activations=activations[..., 0], _center=center)
            return votes._sums(couplings if callable(couplings) else own, *state)

        def step(total, packed):
            return total + sums(packed, center, self.kernel, bias, state), None

        features = 1 + self.rows * (self.columns + self.columns * (self.columns + 1) // 2)
        start = ops.zeros((self.batch, self.groups, features, self.parents), self.dtype)
        return ops.scan(step, start, ops.moveaxis(packed, 1, 0))[0]


class DistinctVotes(TransformedVotes):
    """Answers sums and agreements without votes where each (child, parent) pair has its own matrix.

    The poses are scaled by the couplings before, in place of the votes after, the transformation, and a parent is
    transformed back to the child's side before it is compared: one matrix product a parent for either. What is held
    for each pair is a child's pose (8 numbers in the MNIST network) in place of a parent's (16). Densities and moments
    have no smaller form here and store the votes. Arguments: see `TransformedVotes`, with as many
    groups as children.
    """

    def __init__(self, poses: Tensor, kernel: Tensor, bias: Tensor | None = None, activations: Tensor | None = None):
        super().__init__(poses, kernel, bias, activations)
        if poses.shape[1] not in (None, self.groups):
            raise ValueError(
                f"Received {poses.shape[1]} children for a kernel of shape {tuple(kernel.shape)}: "
                "a kernel (children, parents, d, e) has a matrix for each."
            )
        # Children last, which is the axis long enough to be worked on as vectors:
        # the kernel as (parents, d * children, e), the poses as (batch, rows, d, children).
        shape = (self.parents, self.columns * self.groups, self.pose_shape[-1])
        self._matrices = ops.reshape(ops.transpose(self.kernel, (1, 2, 0, 3)), shape)
        self._columns_first = ops.transpose(self.poses, (0, 2, 3, 1))

    def weighted_sum(self, weights):
        if weights.shape[-1] == 1:
            sums = self._common_sum(weights)
        else:
            scaled = ops.transpose(weights, (2, 0, 1))[:, :, None, None] * self._columns_first[None]
            scaled = ops.reshape(scaled, (self.parents, self.batch * self.rows, self.columns * self.groups))
            sums = ops.reshape(ops.matmul(scaled, self._matrices), (self.parents, self.batch, self.rows, -1))
            sums = ops.transpose(sums, (1, 0, 2, 3))
        return self._shaped(sums + self._bias_sum(weights))

    def agreement(self, poses):
        poses = self._with_rows(poses)
        parents_first = ops.reshape(
            ops.transpose(poses, (1, 0, 2, 3)), (self.parents, self.batch * self.rows, self.pose_shape[-1])
        )
        back = ops.matmul(parents_first, ops.transpose(self._matrices, (0, 2, 1)))
        back = ops.reshape(back, (self.parents, self.batch, self.rows, self.columns, self.groups))
        result = ops.transpose(ops.sum(back * self._columns_first[None], axis=(2, 3)), (1, 2, 0))
        return result if self.bias is None else result + self._bias_agreement(poses)

    def _common_sum(self, weights):
        scaled = ops.transpose(weights, (0, 2, 1))[:, :, None] * self._columns_first
        scaled = ops.reshape(scaled, (-1, self.columns * self.groups))
        sums = ops.einsum("bk,jke->bje", scaled, self._matrices)
        return ops.transpose(ops.reshape(sums, (self.batch, self.rows, self.parents, -1)), (0, 2, 1, 3))
