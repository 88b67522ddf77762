"""EM routing as a convolutional layer."""

from collections.abc import Sequence

import keras
from keras import ops

from tf_capsules.argument_types import Constraint, Initializer, Regularizer, Size
from tf_capsules.layers.arguments import check_memory, one_of
from tf_capsules.layers.connections import masked
from tf_capsules.layers.convolutional import ConvRoutingLayer
from tf_capsules.layers.em import EMRoutingLayer
from tf_capsules.routing.em import em_routing
from tf_capsules.routing.windowed import windowed_em_routing


@keras.saving.register_keras_serializable("tf_capsules")
class ConvEMRouting(EMRoutingLayer, ConvRoutingLayer):
    """Convolutional capsules with activations, routed by expectation-maximization.

    Each parent position has a window of children, without padding. All positions share transformations and betas. By
    default a child's couplings sum to 1 over all parents whose windows contain it, of all types and at all positions.
    Children in no window take no part. An example has (rows x columns of the parents' grid) x (children of a window) x
    `capsules` votes.

    Source: Hinton et al. 2018, section 4 and procedure 1.

    Args:
        capsules: parent types, that is parents at each position.
        kernel_size, strides: of the windows, a number or (rows, columns).
        competition: "all" (the paper); or "types": only the parents at one position compete, a simpler algorithm.
        votes_memory: "auto": votes exist for some examples at a time, and the backward pass recomputes them, unless the
            call returns couplings or `normalization` is "min_max"; "recompute": likewise, which excludes "min_max";
            "store": for all examples at a time, which takes more memory, and less time only where kernels are large. On
            JAX, forward-mode differentiation (`jax.jvp`) needs "store".
        normalization: see `EMRouting`; "data" is `100 capsules / children of a window`, masked ones included; "min_max"
            is over the types at each position.
        others: see `EMRouting`.

    Call arguments:
        poses: (batch, height, width, types, [rows,] d); finite, even where masked.
        activations: of the children, not negative, (batch, height, width, types); None: all 1.
        mask: shaped like `activations`, true for the children that take part.
        return_couplings, return_variances: see `EMRouting`; `competition` says which parents compete for a child.

    Returns:
        Poses (batch, new height, new width, capsules, [rows,] dim); activations in (0, 1) and their logits, (batch, new
        height, new width, capsules); then, if asked for, variances, shaped like the poses; then, if asked for,
        couplings (batch, new height, new width, children of a window, capsules), children by row, column, type.

    Raises:
        ValueError: arguments out of range or in conflict; no grid, or one of unknown size or smaller than the window.

    Example:
        >>> layer = ConvEMRouting(8, 4, kernel_size=3, strides=2)
        >>> poses, activations, logits = layer(np.zeros((2, 14, 14, 5, 4, 4)), np.ones((2, 14, 14, 5)))
        >>> poses.shape, activations.shape
        (TensorShape([2, 6, 6, 8, 4, 4]), TensorShape([2, 6, 6, 8]))
    """

    costs_alike = True  # a first iteration takes votes, too: without them a small variance would lose digits

    def __init__(
        self,
        capsules: int,
        dim: int,
        kernel_size: Size = 3,
        strides: Size = 1,
        iterations: int = 3,
        competition: str = "all",
        votes_memory: str = "auto",
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
        super().__init__(capsules, dim, kernel_size, strides, votes_memory, **kwargs)
        self._set_options(locals())
        self.competition = one_of("competition", competition, ("all", "types"))
        check_memory(votes_memory, None, 'normalization="min_max"' if normalization == "min_max" else None)

    def build(self, poses_shape, activations_shape=None):
        memory = "store" if self.normalization == "min_max" else self.votes_memory
        self._add_weights(self._open_windows(poses_shape, memory), poses_shape)
        super().build(poses_shape)

    def call(self, poses, activations=None, mask=None, return_couplings=False, return_variances=False, poses_mask=None):
        mask = poses_mask if mask is None else mask
        self._check_call(poses, activations, mask)
        windows, competes = self.windows, self.competition == "all"
        activations = masked(activations, mask, ops.shape(poses)[:4], self.routing_dtype)
        if activations is None:
            activations = ops.ones(ops.shape(poses)[:4], self.routing_dtype)
        if self._differentiates_votes(return_couplings) or self.normalization == "min_max":
            options = dict(competition=windows.couple if competes else None, return_couplings=return_couplings)
            found = em_routing(self.make_votes(poses, activations), **options, **self._options)
        else:
            kernel, bias = self._of_a_window(self.kernel), self._of_a_window(self.bias)
            options = dict(windows=windows, competes=competes, examples_per_chunk=self.plan.examples)
            found = windowed_em_routing(poses, activations, kernel, bias, **options, **self._options)
        found = [self._on_the_grid(x) for x in found]
        return self._returned(found[: 4 if return_variances else 3], found[4:])
