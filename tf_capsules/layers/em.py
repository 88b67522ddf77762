"""EM routing as a fully connected layer; the convolutional one is in `convolutional_em.py`."""

from collections.abc import Sequence

import keras
from keras import ops

from tf_capsules.argument_types import Constraint, Initializer, Regularizer
from tf_capsules.layers.arguments import check_memory, plain_numbers, positive_int_or_none, takes_xla, truth_value
from tf_capsules.layers.base import RoutingLayer
from tf_capsules.layers.connections import bool_mask, children_of, flatten_grid, masked, rows_of
from tf_capsules.layers.coordinate_addition import add_coordinates, check_coordinates
from tf_capsules.routing.em import check_em_routing, em_routing
from tf_capsules.routing.votes import plan

_OPTIONS = ("iterations", "inverse_temperature", "normalization", "gradients", "epsilon", "variance_floor")


class EMRoutingLayer(RoutingLayer):
    """Base of the two EM layers: their weights and routing options."""

    answers: tuple[str, ...] = ("poses", "activations", "logits")

    def _set_options(self, arguments):
        """Checks and sets the options of routing and weights among a constructor's arguments."""
        check_em_routing(**{name: arguments[name] for name in _OPTIONS})
        for name in _OPTIONS:
            setattr(self, name, plain_numbers(arguments[name]))
        self.use_bias = truth_value("use_bias", arguments["use_bias"])
        random = keras.initializers  # each draws its seed when it is made
        betas = "zeros", "zeros"
        if self.normalization == "data":
            limit = (6 / (self.capsules + 1)) ** 0.5
            betas = random.RandomUniform(-limit, limit), random.TruncatedNormal(-1000.0, 500.0)
        elif self.normalization == "min_max":
            betas = random.RandomUniform(0.0, 1.0), random.RandomUniform(0.0, 1.0)
        kernel = random.TruncatedNormal(stddev=1.0)
        self._set_weight_options(arguments, beta_u=betas[0], beta_a=betas[1], kernel=kernel)

    def _add_weights(self, groups, poses_shape):
        """Adds the kernel (*groups, capsules, columns, dim), the bias of the votes, and the betas of the parents."""
        self._add_kernel(groups, poses_shape)
        shape = (*groups, self.capsules, *rows_of(poses_shape), self.dim)
        self.bias = self.vote_bias = self._add("bias", shape) if self.use_bias else None
        self.beta_u = self._add("beta_u", (self.capsules,))
        self.beta_a = self._add("beta_a", (self.capsules,))

    @property
    def _options(self):
        return {name: getattr(self, name) for name in (*_OPTIONS, "beta_u", "beta_a")}


@keras.saving.register_keras_serializable("tf_capsules")
class EMRouting(EMRoutingLayer):
    """Fully connected capsules with activations, routed by expectation-maximization.

    A vote is the child's pose times a matrix, `x_i W_ij`; matrix poses keep their rows. Routing is in at least float32.

    Source: Hinton et al. 2018, section 3 and procedure 1; coordinates: section 4, "coordinate addition". Vectors as
    poses are an ablation there; here their first two entries take the coordinates. The paper lacks the bias and
    `normalization="min_max"` (both Li et al. 2018), and `normalization="data"` (Gritzman 2019).

    Args:
        capsules: number of parents.
        dim: columns of a parent's pose; for vectors the number of entries.
        iterations: routing iterations, at least 1; 1 leaves the couplings uniform.
        sharing: which children share their transformations: "none"; "positions": all of a type, on a grid; "all".
        coordinates: whether to add the child's position to its votes: (row + 0.5) / height to the first entry of the
            right-hand column, (column + 0.5) / width to the second. It needs poses on a grid.
        votes_memory: "auto": votes are stored if this takes less memory, without sharing, and for fewer than 128
            children, whose variances would otherwise lose digits; "store": always, more exact where mask, activations
            or couplings leave a parent only a few of many children; "recompute": never, which needs sharing.
        children_per_chunk: about how many children are routed at a time, to bound the memory; None: all. A
            type with at least so many is routed in one piece. It needs sharing, and not "store". Where "auto" stores
            votes it has no effect. Elsewhere TensorFlow can use neither XLA nor gradients of second order.
        use_bias: whether votes have a learned bias.
        inverse_temperature: a number for each iteration; or one number n, for `n (1 - 0.95 ** t)` in iteration t.
        normalization: factor on the costs; "data": `100 capsules / children`, without those that are masked; "min_max":
            an example's lie in [-5, 5].
        gradients: "all": through all iterations; "last": through the last M-step only, its couplings held fixed.
        epsilon: added, in divisions, to each parent's mass (the sum of couplings times activations), and with
            "min_max" to the range of the costs.
        variance_floor: added to each variance.
        beta_u_initializer, beta_a_initializer: None: zeros; with "min_max" uniform in [0, 1]; with "data" uniform in
            ±`sqrt(6 / (capsules + 1))` and truncated normal (mean -1000, standard deviation 500), as Gritzman has it.
        kernel_initializer: None: truncated normal, standard deviation 1.
        bias_initializer, kernel_regularizer, ..., beta_a_constraint: of the weights that they name.

    Call arguments:
        poses: (batch, children, [rows,] d), or on a grid (batch, height, width, types, [rows,] d); always finite.
        activations: of the children, not negative, shaped like `poses` without their pose axes; None: all 1.
        mask: shaped like `activations`, true for the children that take part.
        return_couplings: also return the coupling coefficients of the last iteration, without the activations and the
            mask: those of every child sum to 1 over the parents.
        return_variances: also return the variances of the votes about the parents' poses.

    Returns:
        Poses (batch, capsules, [rows,] dim); activations in (0, 1) and their logits, (batch, capsules); then, if asked
        for, variances, shaped like the poses; then, if asked for, couplings (batch, children, capsules).

    Raises:
        ValueError: arguments out of range, poses of another rank, coordinates without a grid or without two entries for
            them, an unknown number of children or types where `sharing` needs it.

    Example:
        >>> layer = EMRouting(5, 4, sharing="positions", coordinates=True)
        >>> poses, activations, logits = layer(np.zeros((2, 4, 4, 8, 4, 4)), np.ones((2, 4, 4, 8)))
        >>> poses.shape, activations.shape
        (TensorShape([2, 5, 4, 4]), TensorShape([2, 5]))
    """

    older_names = {"chunk": "children_per_chunk"}

    def __init__(
        self,
        capsules: int,
        dim: int,
        iterations: int = 3,
        sharing: str = "none",
        coordinates: bool = False,
        votes_memory: str = "auto",
        children_per_chunk: int | None = None,
        use_bias: bool = False,
        inverse_temperature: float | Sequence[float] = 0.01,
        normalization: float | str = 1.0,
        gradients: str = "all",
        epsilon: float = 1e-9,
        variance_floor: float = 1e-9,
        beta_u_initializer: Initializer = None,
        beta_a_initializer: Initializer = None,
        bias_initializer: Initializer = "zeros",
        kernel_initializer: Initializer = None,
        kernel_regularizer: Regularizer = None,
        bias_regularizer: Regularizer = None,
        beta_u_regularizer: Regularizer = None,
        beta_a_regularizer: Regularizer = None,
        kernel_constraint: Constraint = None,
        bias_constraint: Constraint = None,
        beta_u_constraint: Constraint = None,
        beta_a_constraint: Constraint = None,
        **kwargs,
    ):
        super().__init__(capsules, dim, votes_memory, sharing, **kwargs)
        self._set_options(locals())
        self.coordinates = truth_value("coordinates", coordinates)
        self.children_per_chunk = positive_int_or_none("children_per_chunk", children_per_chunk)
        check_memory(votes_memory, children_per_chunk, sharing=sharing)
        self.supports_jit = takes_xla(children_per_chunk is None)

    def build(self, poses_shape, activations_shape=None):
        groups, rows = self._group_children(poses_shape), rows_of(poses_shape)
        if self.coordinates:
            check_coordinates(poses_shape, self.dim)
        self._add_weights((groups,), poses_shape)
        columns = poses_shape[-1] + self.coordinates * (1 if rows else 2)
        sizes = rows, columns, self.dim, self.capsules
        self.plan = plan.for_moments(self.votes_memory, self.sharing != "none", *sizes, fewest=plan.FEWEST_FOR_EM)
        self.supports_jit = takes_xla(self.children_per_chunk is None or self.plan.stores(children_of(poses_shape)))
        super().build(poses_shape)

    def make_votes(self, poses, activations=None, stored=None):
        kernel = self.kernel
        if self.coordinates:
            poses, kernel = add_coordinates(ops.cast(poses, self.routing_dtype), kernel)
        return self._hold(stored, poses, kernel, self.bias, activations)

    def call(self, poses, activations=None, mask=None, return_couplings=False, return_variances=False, poses_mask=None):
        mask = poses_mask if mask is None else mask
        self._check_call(poses, activations, mask)
        shape, options = ops.shape(flatten_grid(poses))[:2], {**self._options, "return_couplings": return_couplings}
        activations = masked(activations, mask, shape, self.routing_dtype)
        if mask is not None:
            options["children"] = ops.maximum(ops.sum(ops.cast(bool_mask(mask, shape), "int32"), 1, keepdims=True), 1)
        found = self._route(lambda stored: em_routing(self.make_votes(poses, activations, stored), **options), poses)
        return self._returned(found[: 4 if return_variances else 3], found[4:])
