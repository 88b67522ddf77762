"""Dynamic routing as a layer."""

import keras
from keras import ops

from tf_capsules.layers.arguments import one_of, positive_int
from tf_capsules.layers.connections import (
    SHARING,
    check_per_child,
    children_of,
    count_groups,
    flatten_grid,
    input_spec,
    rows_of,
)
from tf_capsules.routing.dynamic import check_dynamic_routing, dynamic_routing
from tf_capsules.routing.votes import DistinctVotes, SharedVotes


@keras.saving.register_keras_serializable("tf_capsules")
class DynamicRouting(keras.layers.Layer):
    """Fully connected capsules, routed by agreement.

    Source: Sabour et al. 2017, section 2 and procedure 1. A vote is the child's pose times a matrix, `x_i W_ij`; a
    child pose that is a matrix keeps its rows. Routing runs in at least float32 whatever the dtype policy. Different
    from the paper: the option of a bias and of leaky routing (both from the authors' released code), of shared
    transformations and of competition between children (Li et al. 2018).

    Args:
        capsules: number of parents.
        dim: columns of a parent's pose; for vectors its length.
        iterations: routing iterations, at least 1; 1 leaves the couplings uniform.
        sharing: which children share their transformations: "none"; "positions": all children of a type, which needs
            poses on a grid; "all": one matrix a parent for all children, whose number may then vary from call to
            call.
        use_bias: whether each parent's sum has a learned bias.
        leaky: whether a child may belong to none of the parents.
        competition: "parents": a child's couplings sum to 1 over the parents; "children": a parent's over the children.
        votes: "auto" never holds votes in memory where a form without them is smaller; "stored" always does, "free"
            never.
        kernel_initializer, bias_initializer, kernel_regularizer: the default kernel is drawn as in the released code.

    Call arguments:
        poses: (batch, children, d) or (batch, children, rows, d), or the same on a grid
            (batch, height, width, types, ...).
        mask: (batch, children) or (batch, height, width, types), true for the children that take part.
        return_couplings: also return the last couplings.

    Returns:
        (batch, capsules, dim) or (batch, capsules, rows, dim), of length below 1; with `return_couplings` a pair of
        them and the couplings (batch, children, capsules).

    Raises:
        ValueError: arguments out of range, poses of another rank, an unknown number of children without sharing "all".

    Example:
        >>> DynamicRouting(capsules=10, dim=16)(np.zeros((2, 72, 8))).shape
        TensorShape([2, 10, 16])
    """

    def __init__(
        self,
        capsules,
        dim,
        iterations=3,
        sharing="none",
        use_bias=False,
        leaky=False,
        competition="parents",
        votes="auto",
        kernel_initializer=None,
        bias_initializer="zeros",
        kernel_regularizer=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_dynamic_routing(iterations, competition, leaky)
        self.capsules = positive_int("capsules", capsules)
        self.dim = positive_int("dim", dim)
        self.iterations = iterations
        self.sharing = one_of("sharing", sharing, SHARING)
        self.use_bias = use_bias
        self.leaky = leaky
        self.competition = competition
        self.votes = one_of("votes", votes, ("auto", "stored", "free"))
        default = keras.initializers.TruncatedNormal(stddev=0.1)
        self.kernel_initializer = keras.initializers.get(default if kernel_initializer is None else kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.supports_masking = True

    def build(self, input_shape):
        groups = count_groups(self, input_shape, self.sharing)
        self.input_spec = input_spec(input_shape, self.sharing)
        columns = input_shape[-1]
        self.kernel = self.add_weight(
            (groups, self.capsules, columns, self.dim),
            self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            name="kernel",
            autocast=False,
        )
        self.bias = None
        if self.use_bias:
            shape = (self.capsules, *rows_of(input_shape), self.dim)
            self.bias = self.add_weight(shape, self.bias_initializer, name="bias", autocast=False)
        # Numbers held for each (child, parent) pair: a parent's pose if stored, else a child's pose or nothing.
        smaller = self.sharing != "none" or columns <= self.dim
        self.stores_votes = self.votes == "stored" or (self.votes == "auto" and not smaller)
        super().build(input_shape)

    def call(self, poses, mask=None, return_couplings=False):
        check_per_child(poses, mask=mask)
        x = flatten_grid(poses)
        votes = (DistinctVotes if self.sharing == "none" else SharedVotes)(x, self.kernel)
        if mask is not None:
            mask = ops.reshape(mask, (votes.batch, votes.children))
        result = dynamic_routing(
            votes.store() if self.stores_votes else votes,
            self.iterations,
            bias=self.bias,
            leaky=self.leaky,
            competition=self.competition,
            mask=mask,
            return_couplings=return_couplings,
        )
        if return_couplings:
            return ops.cast(result[0], self.compute_dtype), result[1]
        return ops.cast(result, self.compute_dtype)

    def compute_mask(self, inputs, mask=None):
        return None

    def compute_output_spec(self, poses, mask=None, return_couplings=False):
        parents = keras.KerasTensor(self.compute_output_shape(poses.shape), self.compute_dtype)
        if not return_couplings:
            return parents
        shape = (poses.shape[0], children_of(poses.shape), self.capsules)
        return parents, keras.KerasTensor(shape, self.kernel.dtype)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], self.capsules, *rows_of(input_shape), self.dim)

    def get_config(self):
        return {
            **super().get_config(),
            "capsules": self.capsules,
            "dim": self.dim,
            "iterations": self.iterations,
            "sharing": self.sharing,
            "use_bias": self.use_bias,
            "leaky": self.leaky,
            "competition": self.competition,
            "votes": self.votes,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "kernel_regularizer": keras.regularizers.serialize(self.kernel_regularizer),
        }
