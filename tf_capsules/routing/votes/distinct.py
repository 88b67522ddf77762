"""Votes with a matrix for each (child, parent) pair: sums and agreements are computed without the votes."""

from keras import ops

from tf_capsules.argument_types import Tensor
from tf_capsules.routing.votes.transformed import TransformedVotes


class DistinctVotes(TransformedVotes):
    """Computes sums and agreements without the votes, where each (child, parent) pair has its own matrix.

    A sum scales the children's poses by the couplings and then transforms them. An agreement transforms the parent's
    pose back to the child's side. Each is one matrix product for each parent, and holds a child's pose for each pair.
    For densities and moments the votes are stored. Arguments: see `TransformedVotes`, with as many groups as children.
    """

    def __init__(self, poses: Tensor, kernel: Tensor, bias: Tensor | None = None, activations: Tensor | None = None):
        super().__init__(poses, kernel, bias, activations)
        if poses.shape[1] not in (None, self.groups):
            received = f"Received {poses.shape[1]} children for a kernel of shape {tuple(kernel.shape)}"
            raise ValueError(f"{received}: a kernel (children, parents, d, e) has a matrix for each.")
        # Children come last, since their axis is long enough for vector instructions:
        # the kernel as (parents, d * children, e), the poses as (batch, rows, d, children).
        shape = (self.parents, self.columns * self.groups, self.pose_shape[-1])
        self._matrices = ops.reshape(ops.transpose(self.kernel, (1, 2, 0, 3)), shape)
        self._columns_first = ops.transpose(self.poses, (0, 2, 3, 1))

    def weighted_sum(self, weights):
        if weights.shape[-1] == 1:  # the same for all parents
            scaled = ops.transpose(weights, (0, 2, 1))[:, :, None] * self._columns_first
            scaled = ops.reshape(scaled, (-1, self.columns * self.groups))
            sums = ops.einsum("bk,jke->bje", scaled, self._matrices)
            sums = ops.reshape(sums, (self.batch, self.rows, self.parents, self.pose_shape[-1]))
            sums = ops.transpose(sums, (0, 2, 1, 3))
        else:
            scaled = ops.transpose(weights, (2, 0, 1))[:, :, None, None] * self._columns_first[None]
            scaled = ops.reshape(scaled, (self.parents, self.batch * self.rows, self.columns * self.groups))
            shape = (self.parents, self.batch, self.rows, self.pose_shape[-1])
            sums = ops.transpose(ops.reshape(ops.matmul(scaled, self._matrices), shape), (1, 0, 2, 3))
        return self.shaped(sums if self.bias is None else sums + self._bias_sum(weights))

    def agreement(self, poses):
        poses = self._with_rows(poses)
        parents_first = ops.reshape(ops.swapaxes(poses, 0, 1), (self.parents, -1, self.pose_shape[-1]))
        back = ops.matmul(parents_first, ops.transpose(self._matrices, (0, 2, 1)))
        back = ops.reshape(back, (self.parents, self.batch, self.rows, self.columns, self.groups))
        result = ops.transpose(ops.sum(back * self._columns_first[None], axis=(2, 3)), (1, 2, 0))
        return result if self.bias is None else result + self._bias_agreement(poses)
