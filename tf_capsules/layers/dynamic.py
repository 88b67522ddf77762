"""Dynamic routing as layers, fully connected and convolutional."""

import keras
from keras import ops

from tf_capsules.argument_types import Constraint, Initializer, Regularizer, Size
from tf_capsules.layers.arguments import one_of, positive_int, positive_int_or_none, takes_xla, truth_value
from tf_capsules.layers.base import RoutingLayer
from tf_capsules.layers.connections import bool_mask, count_groups, flatten_grid, rows_of
from tf_capsules.layers.convolutional import ConvRoutingLayer
from tf_capsules.routing.couplings import check_competition
from tf_capsules.routing.dynamic import dynamic_routing
from tf_capsules.routing.dynamic_by_parents import dynamic_routing_by_parents
from tf_capsules.routing.votes import plan
from tf_capsules.routing.windowed import windowed_dynamic_routing

INITIAL_LOGITS = ("zeros", "random", "learned")
_KERNEL_STDDEV = 0.1  # the released code's


@keras.saving.register_keras_serializable("tf_capsules")
class DynamicRouting(RoutingLayer):
    """Fully connected capsules, routed by agreement.

    A vote is the child's pose times a matrix, `x_i W_ij`; matrix poses keep their rows. Routing is in at least float32.

    Source: Sabour et al. 2017, section 2 and procedure 1. Options that its procedure lacks: a bias and leaky routing
    (the authors' released code); shared transformations, a bias in each vote, competition between children, and initial
    logits (Li et al. 2018; Sabour et al. only say that they can be learned).

    Args:
        capsules: number of parents.
        dim: columns of a parent's pose; for vectors the number of entries.
        iterations: routing iterations, at least 1; 1 without initial logits leaves the couplings uniform.
        sharing: which children share their transformations: "none"; "positions": all children of a type, which needs
            poses on a grid; "all": one matrix for each parent, for any number of children.
        leaky: whether a child may belong to no parent.
        competition: "parents": a child's couplings sum to 1 over the parents; "children": a parent's over the children.
        use_vote_bias: whether votes have a learned bias, `x_i W_ij + B_ij`, shared as transformations are.
        initial_logits: of the first couplings: "zeros"; "random", drawn once from [0, 1); or "learned", zeros at first.
            The last two need a known number of children.
        votes_memory: "auto": votes are stored if every other form is larger; "store": always; "recompute": never.
        parents_per_chunk: about how many parents are routed at a time, to bound the memory; None: all. It needs
            `competition="children"`, `sharing` "positions" or "all", and votes that are not stored. TensorFlow can
            then use neither XLA nor gradients of second order. Calls that return couplings ignore it.
        use_bias: whether each parent's sum has a learned bias.
        kernel_initializer: None: the released code's, truncated normal of standard deviation 0.1.
        bias_initializer, vote_bias_initializer, kernel_regularizer, ...: of the weights that they name.
        seed: of random initial logits.

    Call arguments:
        poses: (batch, children, [rows,] d), or on a grid (batch, height, width, types, [rows,] d); always finite.
        mask: (batch, children) or (batch, height, width, types), true for the children that take part.
        return_couplings: also return the coupling coefficients of the last iteration, which sum to 1 as `competition`
            says. With `leaky` a child's sum to less than 1. Those of masked children are 0.

    Returns:
        Poses (batch, capsules, [rows,] dim), of length below 1; if asked for, couplings (batch, children, capsules).

    Raises:
        ValueError: arguments out of range, poses of another rank, an unknown number of children or types where needed.

    Example:
        >>> DynamicRouting(capsules=10, dim=16)(np.zeros((2, 72, 8))).shape
        TensorShape([2, 10, 16])
    """

    older_names = {"chunk": "parents_per_chunk"}
    logits_add_agreements = True

    @property
    def costs_alike(self):
        return self.initial_logits != "zeros"

    def __init__(
        self,
        capsules: int,
        dim: int,
        iterations: int = 3,
        sharing: str = "none",
        leaky: bool = False,
        competition: str = "parents",
        use_vote_bias: bool = False,
        initial_logits: str = "zeros",
        votes_memory: str = "auto",
        parents_per_chunk: int | None = None,
        vote_bias_initializer: Initializer = "zeros",
        use_bias: bool = False,
        kernel_initializer: Initializer = None,
        bias_initializer: Initializer = "zeros",
        kernel_regularizer: Regularizer = None,
        bias_regularizer: Regularizer = None,
        vote_bias_regularizer: Regularizer = None,
        kernel_constraint: Constraint = None,
        bias_constraint: Constraint = None,
        vote_bias_constraint: Constraint = None,
        seed: int | None = None,
        **kwargs,
    ):
        super().__init__(capsules, dim, votes_memory, sharing, **kwargs)
        self.leaky = truth_value("leaky", leaky)
        self.iterations = positive_int("iterations", iterations)
        check_competition(competition, self.leaky)
        self.competition = competition
        self.use_bias = truth_value("use_bias", use_bias)
        self.use_vote_bias = truth_value("use_vote_bias", use_vote_bias)
        self.initial_logits = one_of("initial_logits", initial_logits, INITIAL_LOGITS)
        self.seed = seed
        self.parents_per_chunk = positive_int_or_none("parents_per_chunk", parents_per_chunk)
        if parents_per_chunk is not None:
            if (competition, sharing == "none", votes_memory == "store") != ("children", False, False):
                raise ValueError(
                    '`parents_per_chunk` needs competition="children", sharing="positions" or "all", and votes that '
                    f"are not stored. Received: parents_per_chunk={parents_per_chunk}, competition={competition!r}, "
                    f"sharing={sharing!r}, votes_memory={votes_memory!r}"
                )
        self.supports_jit = takes_xla(parents_per_chunk is None)
        self._set_weight_options(locals(), kernel=keras.initializers.TruncatedNormal(stddev=_KERNEL_STDDEV))

    def build(self, poses_shape):
        groups, rows = self._group_children(poses_shape, self.initial_logits != "zeros"), rows_of(poses_shape)
        self._add_kernel((groups,), poses_shape)
        self.bias = self._add("bias", (self.capsules, *rows, self.dim)) if self.use_bias else None
        self.vote_bias = self.first_logits = None
        if self.use_vote_bias:
            self.vote_bias = self._add("vote_bias", (groups, self.capsules, *rows, self.dim))
        if self.initial_logits != "zeros":
            children, learned = count_groups(self, poses_shape, "none"), self.initial_logits == "learned"
            start = "zeros" if learned else keras.initializers.RandomUniform(0.0, 1.0, seed=self.seed)
            self.first_logits = self._add("initial_logits", (children, self.capsules), start, trainable=learned)
        self.plan = plan.for_sums(self.votes_memory, self.sharing != "none", rows, poses_shape[-1], self.dim)
        super().build(poses_shape)

    def call(self, poses, mask=None, return_couplings=False):
        self._check_call(poses, mask=mask)
        mask = bool_mask(mask, ops.shape(flatten_grid(poses))[:2])
        votes = self.make_votes(poses, mask)
        options = dict(bias=self.bias, initial_logits=self.first_logits, mask=mask)
        if self.parents_per_chunk is not None and not return_couplings:
            options |= dict(parents_per_chunk=self.parents_per_chunk)
            return self._returned([dynamic_routing_by_parents(votes, self.iterations, **options)])
        options |= dict(leaky=self.leaky, competition=self.competition, return_couplings=return_couplings)
        results = dynamic_routing(votes, self.iterations, **options)
        parents, *couplings = results if return_couplings else (results,)
        return self._returned([parents], couplings)


@keras.saving.register_keras_serializable("tf_capsules")
class ConvDynamicRouting(ConvRoutingLayer):
    """Convolutional capsules, routed by agreement.

    Dynamic routing in each window of a convolution without padding; all positions share the transformations. Parents
    compete for a child only with those at the same position: a child in several windows has votes in each.

    Source: Sabour et al. 2017, procedure 1; in windows: Tsai et al. 2020, who compare with it.

    Args:
        capsules: parent types, that is parents at each position.
        kernel_size, strides: of the windows, a number or (rows, columns).
        votes_memory: "auto" and "recompute": votes exist for some examples at a time, and the backward pass recomputes
            them, unless the call returns couplings; "store": for all examples at a time, which takes more memory, and
            less time only where kernels are large. On JAX, forward-mode differentiation (`jax.jvp`) needs "store".
        others: see `DynamicRouting`.

    Call arguments:
        poses: (batch, height, width, types, [rows,] d); finite, even where masked.
        mask: (batch, height, width, types), true for the children that take part.
        return_couplings: see `DynamicRouting`; the sums are over the parents at each position.

    Returns:
        Poses (batch, new height, new width, capsules, [rows,] dim), of length below 1; with `return_couplings` also the
        couplings (batch, new height, new width, children of a window, capsules), children by row, column, type.

    Raises:
        ValueError: arguments out of range; no grid, or one of unknown size or smaller than the window.

    Example:
        >>> ConvDynamicRouting(8, 16, kernel_size=3, strides=2)(np.zeros((2, 15, 15, 5, 8))).shape
        TensorShape([2, 7, 7, 8, 16])
    """

    logits_add_agreements = True

    def __init__(
        self,
        capsules: int,
        dim: int,
        kernel_size: Size = 3,
        strides: Size = 1,
        iterations: int = 3,
        votes_memory: str = "auto",
        use_bias: bool = False,
        kernel_initializer: Initializer = None,
        bias_initializer: Initializer = "zeros",
        kernel_regularizer: Regularizer = None,
        bias_regularizer: Regularizer = None,
        kernel_constraint: Constraint = None,
        bias_constraint: Constraint = None,
        **kwargs,
    ):
        super().__init__(capsules, dim, kernel_size, strides, votes_memory, **kwargs)
        self.iterations = positive_int("iterations", iterations)
        self.use_bias = truth_value("use_bias", use_bias)
        self._set_weight_options(locals(), kernel=keras.initializers.TruncatedNormal(stddev=_KERNEL_STDDEV))

    def build(self, poses_shape):
        self._add_kernel(self._open_windows(poses_shape), poses_shape)
        self.bias = self._add("bias", (self.capsules, *rows_of(poses_shape), self.dim)) if self.use_bias else None
        super().build(poses_shape)

    def call(self, poses, mask=None, return_couplings=False):
        self._check_call(poses, mask=mask)
        mask = bool_mask(mask, ops.shape(poses)[:4])
        if self._differentiates_votes(return_couplings):
            options = dict(bias=self.bias, mask=None if mask is None else self.windows.gather(mask))
            found = dynamic_routing(self.make_votes(poses), self.iterations, return_couplings=True, **options)
            parents, couplings = map(self._on_the_grid, found)
            return self._returned([parents], [couplings] if return_couplings else [])
        options = dict(windows=self.windows, examples_per_chunk=self.plan.examples, bias=self.bias, mask=mask)
        parents = windowed_dynamic_routing(poses, self._of_a_window(self.kernel), self.iterations, **options)
        return self._returned([self._on_the_grid(parents)])
