"""Votes that are given by the children's poses and the transformations."""

from keras import ops

from tf_capsules.argument_types import Tensor
from tf_capsules.routing.precision import at_least_float32
from tf_capsules.routing.votes.base import Votes
from tf_capsules.routing.votes.stored import StoredVotes

# Axis legend: b batch, i child, j parent, r row of a pose, d column of a child's pose, e column of a parent's pose,
# g group of children that share a transformation, p child within its group.


class TransformedVotes(Votes):
    """Votes `x_i W_ij + B_ij` given by the children's poses and the transformations.

    Args:
        poses: (batch, children, d) or (batch, children, rows, d).
        kernel: (groups, parents, d, e); child i uses `kernel[i % groups]`. With one group all children share their
            transformations; with as many groups as children none do.
        bias: (groups, parents, e) or (groups, parents, rows, e), or None.
        activations: how much each child counts in `moments`, (batch, children); None: 1.
    """

    def __init__(self, poses: Tensor, kernel: Tensor, bias: Tensor | None = None, activations: Tensor | None = None):
        poses = at_least_float32(poses)
        kernel, bias = (None if x is None else ops.cast(x, poses.dtype) for x in (kernel, bias))
        self.groups, _, self.columns, out = kernel.shape
        self.parents = ops.shape(kernel)[1]
        given = f"a kernel of shape {tuple(kernel.shape)}, (groups, parents, d, e)."
        if poses.shape[-1] != self.columns:
            raise ValueError(f"Received poses of shape {tuple(poses.shape)}, whose last axis does not fit {given}")
        if poses.shape[1] is not None and poses.shape[1] % self.groups:
            raise ValueError(f"Received {poses.shape[1]} children, which is no multiple of the groups of {given}")
        self.rows = poses.shape[2] if len(poses.shape) == 4 else 1
        self.pose_shape = (self.rows, out) if len(poses.shape) == 4 else (out,)
        self.batch, self.children = ops.shape(poses)[0], ops.shape(poses)[1]
        self.dtype = poses.dtype
        # The reshape turns a variable into an array: TensorFlow's custom gradients treat variables differently.
        self.kernel = ops.reshape(kernel, ops.shape(kernel))
        self.poses = ops.reshape(poses, (self.batch, self.children, self.rows, self.columns))
        self.bias = None if bias is None else ops.reshape(bias, (self.groups, self.parents, self.rows, out))
        self._set_activations(activations)

    def store(self):
        votes = self._children_last(self.by_group(self.poses), None if self.bias is None else self.bias[None])
        return StoredVotes(votes, self.activations, self.groups, children_last=True)

    def _children_last(self, poses, bias):
        """Votes (b, j, *pose, i) of poses (b, p, g, r, d) and a bias (1 or b, g, j, r, e) or None."""
        # The product gives (groups, batch, members, rows, parents, e).
        votes = ops.transpose(ops.einsum("bpgrd,gjde->gbprje", poses, self.kernel), (1, 4, 3, 5, 2, 0))
        if bias is not None:
            votes = votes + ops.transpose(bias, (0, 2, 3, 4, 1))[:, :, :, :, None]
        return ops.reshape(votes, (self.batch, self.parents, *self.pose_shape, self.children))

    def _with_rows(self, poses):
        """(batch, parents, *pose) as (batch, parents, rows, e)."""
        return ops.reshape(poses, (-1, self.parents, self.rows, self.pose_shape[-1]))

    def _bias_sum(self, masses):
        """`sum_i w_ij B_ij`, (b, j, r, e). The masses are sums of w_ij over each group's children, (b, g, j or 1)."""
        if masses.shape[-1] == 1:
            return ops.einsum("bg,gjre->bjre", masses[..., 0], self.bias)
        return ops.einsum("bgj,gjre->bjre", masses, self.bias)

    def _bias_agreement(self, poses):
        """`<B_ij, v_j>`, (b, g, j), with poses (b, j, r, e)."""
        return ops.einsum("gjre,bjre->bgj", self.bias, poses)
