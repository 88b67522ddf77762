"""Self-attention routing as a layer."""

import keras
from keras import ops

from tf_capsules.argument_types import Constraint, Initializer, Regularizer
from tf_capsules.layers.arguments import truth_value
from tf_capsules.layers.base import RoutingLayer
from tf_capsules.layers.connections import bool_mask, count_groups, flatten_grid, rows_of
from tf_capsules.routing.self_attention import self_attention_routing
from tf_capsules.routing.votes import plan


@keras.saving.register_keras_serializable("tf_capsules")
class SelfAttentionRouting(RoutingLayer):
    """Fully connected capsules, routed once by self-attention.

    The coupling of child i to parent j is a softmax, over the parents, of `<V_ij, sum_k V_kj> / sqrt(D)`, for votes V
    of D entries, plus a learned prior.

    Source: Mazzia et al. 2021, section 3.2. A vote is the child's pose times a matrix, `x_i W_ij`; matrix poses keep
    their rows. Routing is in at least float32. The paper has neither shared transformations nor `use_prior=False`.

    Args:
        capsules: number of parents.
        dim: columns of a parent's pose; for vectors the number of entries.
        sharing: which children share their transformations, as in `DynamicRouting`.
        use_prior: whether a learned number for each pair is added to the couplings; needs a known number of children.
        votes_memory: "auto": votes are stored if every other form is larger; "store": always; "recompute": never.
        kernel_initializer, ..., prior_constraint: of the transformations, of the prior.

    Call arguments:
        poses: (batch, children, [rows,] d), or on a grid (batch, height, width, types, [rows,] d); always finite.
        mask: (batch, children) or (batch, height, width, types), true for the children that take part.
        return_couplings: also return the coupling coefficients: the softmax plus the prior, 0 for masked children. With
            a prior they need not sum to 1 over the parents, and may be negative; with `use_prior=False` they sum to 1.

    Returns:
        Poses (batch, capsules, [rows,] dim), of length below 1; if asked for, couplings (batch, children, capsules).

    Raises:
        ValueError: arguments out of range, poses of another rank, an unknown number of children where it is needed.

    Example:
        >>> SelfAttentionRouting(capsules=10, dim=16)(np.zeros((2, 16, 8))).shape
        TensorShape([2, 10, 16])
    """

    costs_alike = True  # the one agreement needs as much memory as that of a further iteration

    def __init__(
        self,
        capsules: int,
        dim: int,
        sharing: str = "none",
        use_prior: bool = True,
        votes_memory: str = "auto",
        kernel_initializer: Initializer = "he_normal",
        kernel_regularizer: Regularizer = None,
        prior_initializer: Initializer = "zeros",
        prior_regularizer: Regularizer = None,
        kernel_constraint: Constraint = None,
        prior_constraint: Constraint = None,
        **kwargs,
    ):
        super().__init__(capsules, dim, votes_memory, sharing, **kwargs)
        self.use_prior = truth_value("use_prior", use_prior)
        self._set_weight_options(locals())

    def build(self, poses_shape):
        self._add_kernel((self._group_children(poses_shape, self.use_prior),), poses_shape)
        self.prior = None
        if self.use_prior:
            self.prior = self._add("prior", (count_groups(self, poses_shape, "none"), self.capsules))
        shape = (rows_of(poses_shape), poses_shape[-1], self.dim)
        self.plan = plan.for_sums(self.votes_memory, self.sharing != "none", *shape)
        super().build(poses_shape)

    @property
    def couplings_are_shares(self):
        return not self.use_prior

    def call(self, poses, mask=None, return_couplings=False):
        self._check_call(poses, mask=mask)
        mask = bool_mask(mask, ops.shape(flatten_grid(poses))[:2])
        votes = self.make_votes(poses, mask)
        poses, couplings = self_attention_routing(votes, prior=self.prior, mask=mask, return_couplings=True)
        return self._returned([poses], [couplings] if return_couplings else [])
