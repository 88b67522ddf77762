"""Inverted dot-product attention routing as layers, fully connected and convolutional."""

import math

import keras
from keras import ops

from tf_capsules.argument_types import Constraint, Initializer, Regularizer, Size
from tf_capsules.arguments import is_number
from tf_capsules.layers.arguments import check_memory, one_of, truth_value
from tf_capsules.layers.base import RoutingLayer
from tf_capsules.layers.connections import alike, check_per_child, flatten_grid, masked, rows_of
from tf_capsules.layers.convolutional import ConvRoutingLayer
from tf_capsules.layers.pose_normalization import PoseNormalization
from tf_capsules.routing.em import costs_of_a_unit
from tf_capsules.routing.inverted_attention import distinct_inverted_attention, inverted_attention
from tf_capsules.routing.votes import plan
from tf_capsules.routing.windowed import windowed_inverted_attention

# For the parents' activations, which are computed as in EM routing.
_INVERSE_TEMPERATURE = 0.01
_VARIANCE_FLOOR = 1e-5


class _AttentionRoutingLayer(RoutingLayer):
    """Base of the two attention layers: weights, options, and the last steps after the sum of the votes."""

    older_names = {"activations": "use_activations"}
    couplings_contain_activations = True

    @property
    def costs_alike(self):
        return self.initial_pose != "zeros" or self.use_activations

    def _set_options(self, arguments):
        """Checks and sets the options of routing and weights among a constructor's arguments."""
        for name in ("scaled", "layer_norm", "use_activations"):
            setattr(self, name, truth_value(name, arguments[name]))
        self.initial_pose = one_of("initial_pose", arguments["initial_pose"], ("zeros", "random", "learned"))
        self.answers = ("poses", "activations") if self.use_activations else ("poses",)
        rate, self.seed = arguments["dropout"], arguments["seed"]
        if not is_number(rate, 0, 1) or rate == 1:
            raise ValueError(f"`dropout` must be at least 0 and less than 1. Received: {rate!r}")
        inner = {"dtype": self.routing_dtype, "trainable": self.trainable}
        self.dropout = keras.layers.Dropout(float(rate), seed=self.seed, **inner)
        self.normalization = None
        self._set_weight_options(arguments)

    def _add_weights(self, groups, poses_shape):
        """Adds the kernel (*groups, capsules, columns, dim), initial pose, layer normalization and betas."""
        pose = (*rows_of(poses_shape), self.dim)
        stddev = math.sqrt(self.capsules / (poses_shape[-1] * math.prod(groups)))
        initializer = self.kernel_initializer or keras.initializers.RandomNormal(stddev=stddev)
        self._add_kernel(groups, poses_shape, initializer)
        self.initial = None
        if self.initial_pose != "zeros":
            learned = self.initial_pose == "learned"
            start = "zeros" if learned else keras.initializers.RandomNormal(stddev=1.0, seed=self.seed)
            self.initial = self._add("initial_pose", (self.capsules, *pose), start, trainable=learned)
        self.scale = math.prod(pose) ** -0.5 if self.scaled else 1.0
        # A pose of a single number would be normalized to the offset alone.
        if self.layer_norm and math.prod(pose) > 1:
            self.normalization = PoseNormalization(pose, dtype=self.routing_dtype, trainable=self.trainable)
            self.normalization.build((None, self.capsules, *pose))
        self.beta_u = self.beta_a = None
        if self.use_activations:
            self.beta_u = self._add("beta_u", (self.capsules,))
            self.beta_a = self._add("beta_a", (self.capsules,))

    def _finished(self, sums, moments, training):
        """The parents' poses from the sums of their votes, and, given `moments`, their activations."""
        poses = self.dropout(sums, training=training)
        poses = poses if self.normalization is None else self.normalization(poses)
        if not moments:
            return [poses]
        masses, variances = moments
        costs = costs_of_a_unit(self.beta_u, variances + _VARIANCE_FLOOR) * masses
        return [poses, ops.sigmoid(_INVERSE_TEMPERATURE * (self.beta_a - costs))]

    def _check_call(self, poses, activations=None, parents=None, mask=None, **others):
        """Raises a ValueError unless `parents` is shaped like the results, and the other arrays fit the poses."""
        check_per_child(poses, activations=activations, mask=mask)
        if parents is None:
            return
        given = [tuple(one.shape) for one in keras.tree.flatten(parents)]
        wanted = self.compute_output_shape(tuple(poses.shape))
        wanted = list(wanted) if self.use_activations else [wanted]
        if len(given) != len(wanted) or not all(map(alike, given, wanted)):
            wanted, given = (" and ".join(str(tuple(shape)) for shape in shapes) for shapes in (wanted, given))
            raise ValueError(
                f"`parents` must be what the layer returned in the iteration before, of shape {wanted}. "
                f"Received shape {given}."
            )

    def get_config(self):
        return {**super().get_config(), "dropout": self.dropout.rate}


@keras.saving.register_keras_serializable("tf_capsules")
class InvertedAttentionRouting(_AttentionRoutingLayer):
    """Fully connected capsules, routed by inverted dot-product attention: one iteration a call.

    A vote is the child's pose times a matrix, `x_i W_ij`; matrix poses keep their rows. A child's couplings are a
    softmax, over the parents, of the agreements of its votes with the parents' previous poses. The sums of votes are
    layer normalized. For a further iteration, call the layer again with its last result as `parents`;
    `ConcurrentRouting` does so. Routing is in at least float32.

    With `use_activations` a parent's activation is `sigmoid(0.01 (beta_a - sum_h (beta_u + log(var_h) / 2) S))` as in
    EM routing: S is the sum of its couplings, var_h the weighted variance of entry h. The paper gives no formula.

    Source: Tsai et al. 2020, sections 2 and 3. The scale of agreement follows the paper's code, not its equations.

    Args:
        capsules: number of parents.
        dim: columns of a parent's pose; for vectors the number of entries.
        scaled: whether agreements are divided by the square root of the size of a parent's pose.
        layer_norm: whether sums are normalized over the entries of a pose, with one learned gain and offset for all
            capsules; poses of one number never are.
        dropout: rate at which entries of the sums are dropped in training, before they are normalized.
        initial_pose: the parents' poses before the first iteration: "zeros", which give uniform couplings; "random",
            drawn once from a normal distribution; "learned", zeros at first.
        use_activations: whether parents have activations (ablation C).
        votes_memory: "auto": with `use_activations` votes are stored. Otherwise the layer computes a child's pose for
            each (child, parent) pair, for a few examples at a time, and again in the backward pass. Calls that return
            couplings compute these for all examples, and keep them. "store": votes are always stored. "recompute":
            never, which excludes `use_activations`. On JAX, forward-mode differentiation (`jax.jvp`) needs "store".
        kernel_initializer: None: normal, of standard deviation `sqrt(capsules / (children * columns of their poses))`.
        beta_u_initializer, ..., beta_a_constraint: of the weights that they name; the betas are those of activations.
        seed: of the dropout and of a random initial pose.

    Call arguments:
        poses: (batch, children, [rows,] d), or on a grid (batch, height, width, types, [rows,] d); always finite.
        activations: (batch, children) or (batch, height, width, types), factors on a child's couplings; None: 1.
        parents: what the layer returned in the previous iteration; None in a first iteration.
        mask: shaped like `activations`, true for the children that take part.
        return_couplings: also return the coupling coefficients: the softmax times the child's activation and mask. Over
            the parents they sum to the activation, to 0 for masked children; without activations to 1.

    Returns:
        Poses (batch, capsules, [rows,] dim); with `use_activations` also activations (batch, capsules), in (0, 1); with
        `return_couplings` also the couplings (batch, children, capsules).

    Raises:
        ValueError: arguments out of range, poses of another rank, unknown number of children, parents of another shape.

    Example:
        >>> layer = InvertedAttentionRouting(capsules=10, dim=4)
        >>> poses = np.ones((2, 72, 4, 4))
        >>> layer(poses, parents=layer(poses)).shape
        TensorShape([2, 10, 4, 4])
    """

    def __init__(
        self,
        capsules: int,
        dim: int,
        scaled: bool = True,
        layer_norm: bool = True,
        dropout: float = 0.0,
        initial_pose: str = "zeros",
        use_activations: bool = False,
        votes_memory: str = "auto",
        kernel_initializer: Initializer = None,
        beta_u_initializer: Initializer = "zeros",
        beta_a_initializer: Initializer = "zeros",
        kernel_regularizer: Regularizer = None,
        beta_u_regularizer: Regularizer = None,
        beta_a_regularizer: Regularizer = None,
        kernel_constraint: Constraint = None,
        beta_u_constraint: Constraint = None,
        beta_a_constraint: Constraint = None,
        seed: int | None = None,
        **kwargs,
    ):
        super().__init__(capsules, dim, votes_memory, **kwargs)
        self._set_options(locals())
        check_memory(votes_memory, None, "use_activations=True" if use_activations else None)

    def build(self, poses_shape, activations_shape=None, parents_shape=None):
        children, rows = self._group_children(poses_shape), rows_of(poses_shape)
        self._add_weights((children,), poses_shape)
        # Variances need the votes. Sums need a child's pose for each pair instead, and in a chunk of examples these may
        # have as many numbers as the kernel.
        memory = "store" if self.votes_memory == "store" or self.use_activations else "recompute"
        numbers = children * self.capsules * math.prod((poses_shape[-1], *rows))
        examples = plan.examples_at_a_time(numbers, at_least=math.prod(self.kernel.shape))
        self.plan = plan.for_sums(memory, False, rows, poses_shape[-1], self.dim, examples)
        super().build(poses_shape)

    def call(
        self, poses, activations=None, parents=None, mask=None, training=None, return_couplings=False, poses_mask=None
    ):
        mask = poses_mask if mask is None else mask
        self._check_call(poses, activations, parents, mask)
        x = flatten_grid(poses)
        if parents is None:
            parents = None if self.initial is None else self.initial[None]
        elif self.use_activations:
            parents, _ = parents
        weights = masked(activations, mask, ops.shape(x)[:2], self.routing_dtype)
        moments, couplings = [], []
        if parents is not None and not (self.stores_votes or return_couplings):
            parents = ops.broadcast_to(parents, (ops.shape(x)[0], *parents.shape[1:]))
            options = dict(examples_per_chunk=self.plan.examples, scale=self.scale, weights=weights)
            sums = distinct_inverted_attention(x, parents, self.kernel, **options)
        else:
            options = dict(weights=weights, return_moments=self.use_activations, return_couplings=True)
            sums, *moments, couplings = inverted_attention(self.make_votes(poses), parents, scale=self.scale, **options)
        return self._returned(self._finished(sums, moments, training), [couplings] if return_couplings else [])


@keras.saving.register_keras_serializable("tf_capsules")
class ConvInvertedAttentionRouting(_AttentionRoutingLayer, ConvRoutingLayer):
    """Convolutional capsules, routed by inverted dot-product attention: one iteration a call.

    `InvertedAttentionRouting` in each window of a convolution without padding; all positions share the transformations.
    Parents compete for a child only within a position: a child in several windows has votes in each. A first iteration
    from zero poses without `use_activations` is a plain convolution. All other calls make the votes, by
    default of some examples at a time.

    Source: Tsai et al. 2020, sections 2 and 3.

    Args:
        capsules: parent types, that is parents at each position.
        kernel_size, strides: of the windows, a number or (rows, columns).
        votes_memory: "auto" and "recompute": votes exist for some examples at a time, and the backward pass recomputes
            them, unless the call returns couplings; "store": for all examples at a time. On JAX, forward-mode
            differentiation (`jax.jvp`) needs "store".
        others: see `InvertedAttentionRouting`; the children that `kernel_initializer` counts are those of a window.

    Call arguments:
        poses: (batch, height, width, types, [rows,] d); finite, even where masked.
        activations, parents, mask: see `InvertedAttentionRouting`; activations are (batch, height, width, types).
        return_couplings: see `InvertedAttentionRouting`; the sums are over the parents of one position.

    Returns:
        Poses (batch, new height, new width, capsules, [rows,] dim); with `use_activations` also activations (batch, new
        height, new width, capsules), in (0, 1); with `return_couplings` also the couplings (batch, new height, new
        width, children of a window, capsules), children by row, column, type.

    Raises:
        ValueError: arguments out of range; no grid, or one of unknown size or smaller than the window; other parents.

    Example:
        >>> ConvInvertedAttentionRouting(8, 4, kernel_size=3, strides=2)(np.zeros((2, 15, 15, 5, 4, 4))).shape
        TensorShape([2, 7, 7, 8, 4, 4])
    """

    def __init__(
        self,
        capsules: int,
        dim: int,
        kernel_size: Size = 3,
        strides: Size = 1,
        scaled: bool = True,
        layer_norm: bool = True,
        dropout: float = 0.0,
        initial_pose: str = "zeros",
        use_activations: bool = False,
        votes_memory: str = "auto",
        kernel_initializer: Initializer = None,
        beta_u_initializer: Initializer = "zeros",
        beta_a_initializer: Initializer = "zeros",
        kernel_regularizer: Regularizer = None,
        beta_u_regularizer: Regularizer = None,
        beta_a_regularizer: Regularizer = None,
        kernel_constraint: Constraint = None,
        beta_u_constraint: Constraint = None,
        beta_a_constraint: Constraint = None,
        seed: int | None = None,
        **kwargs,
    ):
        super().__init__(capsules, dim, kernel_size, strides, votes_memory, **kwargs)
        self._set_options(locals())

    def build(self, poses_shape, activations_shape=None, parents_shape=None):
        self._add_weights(self._open_windows(poses_shape), poses_shape)
        super().build(poses_shape)

    def call(
        self, poses, activations=None, parents=None, mask=None, training=None, return_couplings=False, poses_mask=None
    ):
        mask = poses_mask if mask is None else mask
        self._check_call(poses, activations, parents, mask)
        windows, couplings = self.windows, []
        weights = masked(activations, mask, ops.shape(poses)[:4], self.routing_dtype)
        if parents is not None:
            parents = parents[0] if self.use_activations else parents
            parents = ops.reshape(parents, (-1, *parents.shape[3:]))
        elif self.initial is not None:
            shape = (ops.shape(poses)[0] * windows.positions, *self.initial.shape)
            parents = ops.broadcast_to(self.initial[None], shape)
        options = dict(scale=self.scale, return_moments=self.use_activations)
        if self._differentiates_votes(return_couplings):
            options |= dict(weights=None if weights is None else windows.gather(weights), return_couplings=True)
            sums, *moments, couplings = inverted_attention(self.make_votes(poses), parents, **options)
            couplings = [self._on_the_grid(couplings)] if return_couplings else []
        else:
            options |= dict(windows=windows, examples_per_chunk=self.plan.examples, weights=weights)
            found = windowed_inverted_attention(poses, parents, self._of_a_window(self.kernel), **options)
            sums, *moments = found if self.use_activations else [found]
        return self._returned(map(self._on_the_grid, self._finished(sums, moments, training)), couplings)
