"""Self-attention routing as a layer."""

import keras
from keras import ops

from tf_capsules.hints import Initializer
from tf_capsules.layers.arguments import one_of
from tf_capsules.layers.connections import (
    SHARING,
    check_per_child,
    children_of,
    count_groups,
    flatten_grid,
    input_spec,
    rows_of,
)
from tf_capsules.layers.routed import RoutedCapsules
from tf_capsules.routing.self_attention import self_attention_routing
from tf_capsules.routing.votes import DistinctVotes, SharedVotes


@keras.saving.register_keras_serializable("tf_capsules")
class SelfAttentionRouting(RoutedCapsules):
    """Fully connected capsules, routed once by self-attention.

    Source: Mazzia et al. 2021, section 3.2. A vote is the child's pose times a matrix, `x_i W_ij`; a child pose that is
    a matrix keeps its rows. Routing runs in at least float32 whatever the dtype policy. Different from the paper: the
    options of shared transformations and of no prior.

    Args:
        capsules: number of parents.
        dim: columns of a parent's pose; for vectors its length.
        sharing: which children share their transformations: "none"; "positions": all children of a type, which needs
            poses on a grid; "all": one matrix a parent for all children.
        use_prior: whether a learned prior is added to the couplings, a number for each (child, parent) pair. It needs
            a known number of children.
        votes: "auto" never holds votes in memory where a form without them is smaller; "stored" always does, "free"
            never.
        kernel_initializer: of the transformations.
        kernel_regularizer: of the transformations.
        prior_initializer: of the prior.
        **kwargs: of `keras.layers.Layer`.

    Call arguments:
        poses: (batch, children, d) or (batch, children, rows, d), or the same on a grid
            (batch, height, width, types, ...).
        mask: (batch, children) or (batch, height, width, types), true for the children that take part.
        return_couplings: also return the couplings.

    Returns:
        (batch, capsules, dim) or (batch, capsules, rows, dim), of length below 1; with `return_couplings` a pair of
        them and the couplings (batch, children, capsules).

    Raises:
        ValueError: arguments out of range, poses of another rank, an unknown number of children where it is needed.

    Example:
        >>> SelfAttentionRouting(capsules=10, dim=16)(np.zeros((2, 16, 8))).shape
        TensorShape([2, 10, 16])
    """

    def __init__(
        self,
        capsules: int,
        dim: int,
        sharing: str = "none",
        use_prior: bool = True,
        votes: str = "auto",
        kernel_initializer: Initializer = "he_normal",
        kernel_regularizer: Initializer = None,
        prior_initializer: Initializer = "zeros",
        **kwargs,
    ):
        super().__init__(capsules, dim, kernel_initializer, kernel_regularizer, **kwargs)
        self.sharing = one_of("sharing", sharing, SHARING)
        self.use_prior = use_prior
        self.votes = one_of("votes", votes, ("auto", "stored", "free"))
        self.prior_initializer = keras.initializers.get(prior_initializer)

    def build(self, input_shape):
        groups = count_groups(self, input_shape, self.sharing)
        # The prior is a number for each child.
        self.input_spec = input_spec(input_shape, "none" if self.use_prior else self.sharing)
        self._add_kernel((groups,), input_shape)
        self.prior = None
        if self.use_prior:
            shape = (count_groups(self, input_shape, "none"), self.capsules)
            self.prior = self.add_weight(shape, self.prior_initializer, name="prior", autocast=False)
        # Numbers held for each (child, parent) pair: a parent's pose if stored, else a child's pose or nothing.
        smaller = self.sharing != "none" or input_shape[-1] <= self.dim
        self.stores_votes = self.votes == "stored" or (self.votes == "auto" and not smaller)
        super().build(input_shape)

    def call(self, poses, mask=None, return_couplings=False):
        check_per_child(poses, mask=mask)
        votes = (DistinctVotes if self.sharing == "none" else SharedVotes)(flatten_grid(poses), self.kernel)
        if mask is not None:
            mask = ops.reshape(mask, (votes.batch, votes.children))
        if self.stores_votes:
            votes = votes.store()
        poses, couplings = self_attention_routing(votes, prior=self.prior, mask=mask, return_couplings=True)
        poses = ops.cast(poses, self.compute_dtype)
        return (poses, couplings) if return_couplings else poses

    def compute_output_shape(self, input_shape):
        return (input_shape[0], self.capsules, *rows_of(input_shape), self.dim)

    def compute_output_spec(self, poses, mask=None, return_couplings=False):
        check_per_child(poses, mask=mask)
        parents = keras.KerasTensor(self.compute_output_shape(poses.shape), self.compute_dtype)
        if not return_couplings:
            return parents
        shape = poses.shape[0], children_of(poses.shape), self.capsules
        return parents, keras.KerasTensor(shape, self.kernel.dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "sharing": self.sharing,
            "use_prior": self.use_prior,
            "votes": self.votes,
            "prior_initializer": keras.initializers.serialize(self.prior_initializer),
        }
