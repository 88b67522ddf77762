"""What a routing algorithm may ask of the votes, and the ways to answer.

A child capsule i with pose x_i (a matrix of `rows` x `columns`, or a vector, which is one row) predicts the pose of
parent j by its vote `V_ij = x_i W_ij + B_ij`. An algorithm never needs the votes themselves. It needs

- `weighted_sum(weights)`: `sum_i w_ij V_ij`;
- `agreement(poses)`: the inner products `<V_ij, v_j>`;
- `squared_distances(poses, precisions)`: `sum_k p_jk (V_ijk - v_jk)^2` over the entries k of the pose;
- `weighted_squares(weights, poses)`: `sum_i w_ij (V_ij - v_j)^2`, entry by entry;

so it is written once, against an object with these four methods. Poses are (batch, parents, *pose); weights and
agreements are (batch, children, parents). Weights that are equal for all parents may be given as (batch, children, 1),
which costs a single matrix product in place of one for each parent; a batch axis of 1 then stands for the whole batch.

| class | when | numbers held for each (child, parent) pair |
| --- | --- | --- |
| `StoredVotes` | always possible | the size of a parent's pose |
| `SharedVotes` | children share their transformations | none for sums and agreements beyond the weight itself |
| `DistinctVotes` | each (child, parent) pair has its own matrix | the size of a child's pose |
"""

import math

from keras import ops

from tf_capsules.routing.precision import at_least_float32

# Axis legend: b batch, i child, j parent, r row of a pose, d column of a child's pose, e column of a parent's pose,
# k entry of a flattened pose, g group of children that share a transformation, p child within its group.


def couple(logits, competition="parents", *, leaky=False, mask=None):
    """Coupling coefficients: routing logits normalised over those that compete.

    Source: Sabour et al. 2017, eq. 3 (`"parents"`: every child distributes 1 over the parents); Li et al. 2018, section
    3.1 (`"children"`: every parent collects 1 from the children); leaky: the released code of Sabour et al., where a
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
        couplings = _softmax(logits, axis=-1)
        if leaky:
            couplings = couplings[:, :, :-1]
    else:
        if keep is not None:
            logits = ops.where(keep > 0, logits, ops.cast(-1e30, logits.dtype))
        couplings = _softmax(logits, axis=1)
    return couplings if keep is None else couplings * keep


def _softmax(logits, axis):
    # Keras warns of a softmax over an axis of size 1, which a network with one class has.
    return ops.ones_like(logits) if logits.shape[axis] == 1 else ops.softmax(logits, axis=axis)


class Votes:
    """What all ways to answer share; what has no smaller form stores the votes."""

    def store(self):
        """The same votes, as `StoredVotes`."""
        raise TypeError(f"{type(self).__name__} must define `store`.")

    def squared_distances(self, poses, precisions=None):
        return self.store().squared_distances(poses, precisions)

    def weighted_squares(self, weights, poses):
        return self.store().weighted_squares(weights, poses)


class StoredVotes(Votes):
    """Answers from the tensor of votes.

    Args:
        votes: (batch, children, parents, *pose).
    """

    def __init__(self, votes):
        votes = at_least_float32(votes)
        self.pose_shape = tuple(votes.shape[3:])
        self.parents = votes.shape[2]
        self.children = ops.shape(votes)[1]
        self.batch = ops.shape(votes)[0]
        self.dtype = votes.dtype
        self.votes = ops.reshape(votes, (self.batch, self.children, self.parents, math.prod(self.pose_shape)))

    def _flat(self, poses):
        return ops.reshape(poses, (-1, self.parents, math.prod(self.pose_shape)))

    def _shaped(self, poses):
        return ops.reshape(poses, (-1, self.parents, *self.pose_shape))

    def store(self):
        return self

    def weighted_sum(self, weights):
        if weights.shape[-1] == 1:
            return self._shaped(ops.sum(weights[..., None] * self.votes, axis=1))
        return self._shaped(ops.einsum("bij,bijk->bjk", weights, self.votes))

    def agreement(self, poses):
        return ops.einsum("bijk,bjk->bij", self.votes, self._flat(poses))

    def squared_distances(self, poses, precisions=None):
        squares = ops.square(self.votes - self._flat(poses)[:, None])
        return ops.sum(squares if precisions is None else squares * self._flat(precisions)[:, None], axis=-1)

    def weighted_squares(self, weights, poses):
        squares = ops.square(self.votes - self._flat(poses)[:, None])
        return self._shaped(ops.sum(weights[..., None] * squares, axis=1))


class TransformedVotes(Votes):
    """Votes `x_i W_ij + B_ij` given by the children's poses and the transformations.

    Args:
        poses: (batch, children, d) or (batch, children, rows, d).
        kernel: (groups, parents, d, e); the children are `groups` runs over the groups, group fastest, so that child i
            uses `kernel[i % groups]`. One group: all children share. As many groups as children: none do.
        bias: (groups, parents, e) or (groups, parents, rows, e), or None.
    """

    def __init__(self, poses, kernel, bias=None):
        poses, kernel = at_least_float32(poses), at_least_float32(kernel)
        self.groups, self.parents, self.columns, out = kernel.shape
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

    def _with_rows(self, poses):
        """(batch, parents, *pose) as (batch, parents, rows, e)."""
        return ops.reshape(poses, (-1, self.parents, self.rows, self.pose_shape[-1]))

    def _shaped(self, poses):
        return ops.reshape(poses, (-1, self.parents, *self.pose_shape))

    def _by_group(self, x):
        """(batch, children, ...) as (batch, members, groups, ...)."""
        shape = ops.shape(x)
        return ops.reshape(x, (shape[0], shape[1] // self.groups, self.groups, *shape[2:]))

    def store(self):
        votes = ops.einsum("bpgrd,gjde->bpgjre", self._by_group(self.poses), self.kernel)
        if self.bias is not None:
            votes = votes + self.bias
        return StoredVotes(ops.reshape(votes, (self.batch, self.children, self.parents, *self.pose_shape)))

    def _bias_sum(self, weights):
        """`sum_i w_ij B_ij`, or 0 without a bias."""
        if self.bias is None:
            return 0.0
        mass = ops.sum(self._by_group(weights), axis=1)
        if mass.shape[-1] == 1:
            return ops.einsum("bg,gjre->bjre", mass[..., 0], self.bias)
        return ops.einsum("bgj,gjre->bjre", mass, self.bias)

    def _bias_agreement(self, poses):
        """`<B_ij, v_j>`, (batch, groups, parents)."""
        return ops.einsum("gjre,bjre->bgj", self.bias, poses)

    def _common_sum(self, weights):
        """The weighted sum for weights (batch, children, 1) that are the same for all parents."""
        moments = ops.sum(self._by_group(weights[..., None] * self.poses), axis=1)
        return ops.einsum("bgrd,gjde->bjre", moments, self.kernel)


class SharedVotes(TransformedVotes):
    """Answers without votes where children share transformations.

    Votes are affine in the child's pose, so a weighted sum of votes is the transformed weighted sum of poses, and an
    agreement with a parent is the agreement of the child's pose with the parent's, transformed back. Squared
    distances are quadratic forms in the child's pose, and weighted squares follow from its second moments. The vote
    tensor is never made; the result is exact, not an approximation. Arguments: see `TransformedVotes`.
    """

    def weighted_sum(self, weights):
        if weights.shape[-1] == 1:
            sums = self._common_sum(weights)
        else:
            moments = ops.einsum("bpgj,bpgrd->bgjrd", self._by_group(weights), self._by_group(self.poses))
            sums = ops.einsum("bgjrd,gjde->bjre", moments, self.kernel)
        return self._shaped(sums + self._bias_sum(weights))

    def agreement(self, poses):
        poses = self._with_rows(poses)
        back = ops.einsum("bjre,gjde->bgjrd", poses, self.kernel)
        result = ops.einsum("bpgrd,bgjrd->bpgj", self._by_group(self.poses), back)
        if self.bias is not None:
            result = result + self._bias_agreement(poses)[:, None]
        return ops.reshape(result, (self.batch, self.children, self.parents))

    def _offset(self, poses):
        """What of the distance does not depend on the child: `v_j - B_gj`, (batch, groups, parents, rows, e)."""
        offset = self._with_rows(poses)[:, None]
        return offset if self.bias is None else offset - self.bias

    def squared_distances(self, poses, precisions=None):
        offset = self._offset(poses) + ops.zeros((1, self.groups, 1, 1, 1), self.dtype)
        weight = ops.ones_like(offset[:, 0]) if precisions is None else self._with_rows(precisions)
        forms = ops.einsum("gjde,bjre,gjfe->bgjrdf", self.kernel, weight, self.kernel)
        linear = ops.einsum("bgjre,bjre,gjde->bgjrd", offset, weight, self.kernel)
        constant = ops.einsum("bgjre,bjre->bgj", ops.square(offset), weight)
        children = self._by_group(self.poses)
        squares = ops.einsum("bpgrd,bpgrf->bpgrdf", children, children)
        result = ops.einsum("bpgrdf,bgjrdf->bpgj", squares, forms)
        result = result - 2 * ops.einsum("bpgrd,bgjrd->bpgj", children, linear) + constant[:, None]
        return ops.reshape(ops.maximum(result, 0), (self.batch, self.children, self.parents))

    def weighted_squares(self, weights, poses):
        children, weights = self._by_group(self.poses), self._by_group(weights)
        weights = weights + ops.zeros((self.batch, 1, 1, self.parents), self.dtype)
        mass = ops.sum(weights, axis=1)
        # Moments about each group's own mean, so that nothing cancels when the poses lie far from the origin.
        center = ops.mean(children, axis=1, keepdims=True)
        centered = children - center
        first = ops.einsum("bpgj,bpgrd->bgjrd", weights, centered)
        second = ops.einsum("bpgj,bpgrd,bpgrf->bgjrdf", weights, centered, centered)
        spread = ops.einsum("bgjrdf,gjde,gjfe->bgjre", second, self.kernel, self.kernel)
        rest = ops.einsum("bgrd,gjde->bgjre", center[:, 0], self.kernel) - self._offset(poses)
        cross = 2 * rest * ops.einsum("bgjrd,gjde->bgjre", first, self.kernel)
        return self._shaped(ops.sum(spread + cross + mass[..., None, None] * ops.square(rest), axis=1))


class DistinctVotes(TransformedVotes):
    """Answers sums and agreements without votes where each (child, parent) pair has its own matrix.

    The poses are scaled by the couplings before, in place of the votes after, the transformation, and a parent is
    transformed back to the child's side before it is compared: one matrix product a parent for either. What is held
    for each pair is a child's pose (8 numbers in the MNIST network) in place of a parent's (16). Squared distances and
    weighted squares have no smaller form here and store the votes. Arguments: see `TransformedVotes`, with as many
    groups as children.
    """

    def __init__(self, poses, kernel, bias=None):
        super().__init__(poses, kernel, bias)
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
