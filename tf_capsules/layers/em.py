"""EM routing as layers, fully connected and convolutional."""

from collections.abc import Sequence

import keras
from keras import ops

from tf_capsules.hints import Initializer, Size
from tf_capsules.layers.arguments import one_of, positive_int
from tf_capsules.layers.connections import (
    SHARING,
    check_per_child,
    children_of,
    count_groups,
    flatten_grid,
    input_spec,
    masked,
    on_grid,
    rows_of,
)
from tf_capsules.layers.convolutional import Convolutional
from tf_capsules.layers.routed import RoutedCapsules
from tf_capsules.routing.em import check_em_routing, em_routing
from tf_capsules.routing.votes import SharedVotes, TransformedVotes
from tf_capsules.routing.windowed_em import windowed_em_routing

# With fewer a parent may be left with one child: without stored votes the variance about it is rounding.
_FEW_CHILDREN = 128


class _EMCapsules(RoutedCapsules):
    """What the layers have in common: how they route, and the weights of votes and parents."""

    default_kernel_stddev = 1.0

    def __init__(
        self,
        capsules: int,
        dim: int,
        iterations: int = 3,
        use_bias: bool = False,
        inverse_temperature: float | Sequence[float] = 0.01,
        normalization: float | str = 1.0,
        gradients: str = "all",
        epsilon: float = 1e-9,
        variance_floor: float = 1e-9,
        beta_u_initializer: Initializer = None,
        beta_a_initializer: Initializer = None,
        bias_initializer: Initializer = "zeros",
        **kwargs,
    ):
        super().__init__(capsules, dim, **kwargs)
        check_em_routing(iterations, inverse_temperature, normalization, gradients, epsilon, variance_floor)
        self.iterations = iterations
        self.use_bias = use_bias
        self.inverse_temperature = inverse_temperature
        self.normalization = normalization
        self.gradients = gradients
        self.epsilon = epsilon
        self.variance_floor = variance_floor
        beta_u, beta_a = _initial_betas(normalization, self.capsules)
        self.beta_u_initializer = keras.initializers.get(beta_u if beta_u_initializer is None else beta_u_initializer)
        self.beta_a_initializer = keras.initializers.get(beta_a if beta_a_initializer is None else beta_a_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)

    def _add_weights(self, groups, poses_shape):
        """Kernel (*groups, capsules, columns, dim), bias, and the betas of the parents."""
        self._add_kernel(groups, poses_shape)
        self.bias = None
        if self.use_bias:
            shape = (*groups, self.capsules, *rows_of(poses_shape), self.dim)
            self.bias = self.add_weight(shape, self.bias_initializer, name="bias", autocast=False)
        self.beta_u = self.add_weight((self.capsules,), self.beta_u_initializer, name="beta_u", autocast=False)
        self.beta_a = self.add_weight((self.capsules,), self.beta_a_initializer, name="beta_a", autocast=False)

    @property
    def _options(self):
        """Arguments of the routing function."""
        names = ("iterations", "inverse_temperature", "normalization", "gradients", "epsilon", "variance_floor")
        return {name: getattr(self, name) for name in names} | {"beta_u": self.beta_u, "beta_a": self.beta_a}

    def _results(self, means, scores, *couplings):
        """Poses, activations, logits and, if there are, couplings."""
        return (*(ops.cast(x, self.compute_dtype) for x in (means, ops.sigmoid(scores), scores)), *couplings)

    def compute_output_spec(self, poses, activations=None, mask=None, return_couplings=False):
        check_per_child(poses, activations=activations, mask=mask)
        specs = [keras.KerasTensor(shape, self.compute_dtype) for shape in self.compute_output_shape(poses.shape)]
        if return_couplings:
            specs.append(keras.KerasTensor(self._couplings_shape(poses.shape), self.variable_dtype))
        return tuple(specs)

    def get_config(self):
        return {
            **super().get_config(),
            "iterations": self.iterations,
            "use_bias": self.use_bias,
            "inverse_temperature": self.inverse_temperature,
            "normalization": self.normalization,
            "gradients": self.gradients,
            "epsilon": self.epsilon,
            "variance_floor": self.variance_floor,
            "beta_u_initializer": keras.initializers.serialize(self.beta_u_initializer),
            "beta_a_initializer": keras.initializers.serialize(self.beta_a_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
        }


@keras.saving.register_keras_serializable("tf_capsules")
class EMRouting(_EMCapsules):
    """Fully connected capsules with activations, routed by expectation-maximization.

    Source: Hinton et al. 2018, section 3 and procedure 1; coordinates: section 4, "coordinate addition". A vote is the
    child's pose times a matrix, `x_i W_ij`; a child pose that is a matrix keeps its rows. Where children share
    transformations votes are never made, unless they are the smaller form. Routing runs in at least float32 whatever
    the dtype policy. Different from the paper: vectors as poses (with coordinates in their first two entries), the
    bias and `normalization="min_max"` (both Li et al. 2018) and "data" (the best known open implementation).

    Args:
        capsules: number of parents.
        dim: columns of a parent's pose; for vectors its length.
        iterations: routing iterations, at least 1; 1 leaves the couplings uniform.
        sharing: which children share their transformations: "none"; "positions": all children of a type, which needs
            poses on a grid; "all": one matrix a parent for all children, whose number may then vary from call to call.
        coordinates: add to each vote where its child lies, in (0, 1): the row, (row + 0.5) / height, to the first and
            the column to the second entry of the right-hand column; needs poses on a grid.
        use_bias: whether votes have a learned bias.
        inverse_temperature: what the authors' schedule tends to; or as many numbers as iterations.
        normalization: factor on a parent's cost; "data", `100 capsules / children`; or "min_max".
        gradients: "all" or "last": through which iterations.
        votes: "auto" never holds votes in memory where a form without them is smaller, but always does for fewer than
            128 children, for the sake of rounding; "stored" always does, "free" never.
        chunk: None, or about how many children are worked on at a time, to bound the memory; not with stored votes, and
            under TensorFlow's XLA not in training.
        epsilon: added to each parent's share of the data, where it divides.
        variance_floor: added to each variance.
        kernel_initializer: None: truncated normal of standard deviation 1.
        beta_u_initializer, beta_a_initializer: None: with "data" as its implementation has them (uniform within
            `sqrt(6 / (capsules + 1))`; truncated normal of mean -1000 and standard deviation 500), with "min_max"
            uniform in [0, 1], else zeros.
        bias_initializer, kernel_regularizer: of the bias, of the kernel.

    Call arguments:
        poses: (batch, children, d) or (batch, children, rows, d), or the same on a grid
            (batch, height, width, types, ...). They must be finite, also where a mask hides them.
        activations: of the children, not negative, shaped like `poses` without a pose; None: all 1.
        mask: shaped like `activations`, true for the children that take part.
        return_couplings: also return the couplings of the last iteration.

    Returns:
        Poses (batch, capsules, dim) or (batch, capsules, rows, dim); activations (batch, capsules) in (0, 1); their
        logits (batch, capsules); with `return_couplings` also (batch, children, capsules).

    Raises:
        ValueError: arguments out of range, poses of another rank, coordinates without a grid or room for two, an
            unknown number of children without sharing "all".

    Example:
        >>> layer = EMRouting(5, 4, sharing="positions", coordinates=True)
        >>> poses, activations, logits = layer(np.zeros((2, 4, 4, 8, 4, 4)), np.ones((2, 4, 4, 8)))
        >>> poses.shape, activations.shape
        (TensorShape([2, 5, 4, 4]), TensorShape([2, 5]))
    """

    def __init__(
        self,
        capsules: int,
        dim: int,
        iterations: int = 3,
        sharing: str = "none",
        coordinates: bool = False,
        votes: str = "auto",
        chunk: int | None = None,
        **kwargs,
    ):
        super().__init__(capsules, dim, iterations, **kwargs)
        self.sharing = one_of("sharing", sharing, SHARING)
        self.coordinates = coordinates
        self.votes = one_of("votes", votes, ("auto", "stored", "free"))
        self.chunk = None if chunk is None else positive_int("chunk", chunk)
        if sharing == "none" and (votes == "free" or chunk):
            asked = 'votes="free"' if votes == "free" else f"chunk={chunk}"
            raise ValueError(f"{asked} does not go with children with matrices of their own: they need stored votes.")
        if chunk and votes == "stored":
            raise ValueError(f'chunk={chunk} does not go with votes="stored".')

    def build(self, poses_shape, activations_shape=None):
        groups = count_groups(self, poses_shape, self.sharing)
        self.input_spec = input_spec(poses_shape, self.sharing)
        if self.coordinates:
            self._check_coordinates(poses_shape)
        self._add_weights((groups,), poses_shape)
        # Numbers held for each child: the features of its pose, or its votes.
        rows = rows_of(poses_shape)
        columns = poses_shape[-1] + self.coordinates * (1 if rows else 2)
        features = 1 + (rows[0] if rows else 1) * (columns + columns * (columns + 1) // 2)
        votes = (rows[0] if rows else 1) * self.dim * self.capsules
        children = children_of(poses_shape)
        few = children is not None and children < _FEW_CHILDREN
        smaller = self.sharing != "none" and features <= votes and not few
        needs_votes = self.votes == "stored" or self.sharing == "none"
        self.stores_votes = needs_votes or (self.votes == "auto" and not smaller)
        super().build(poses_shape)

    def _check_coordinates(self, poses_shape):
        room = (rows_of(poses_shape) or (self.dim,))[0]
        if not on_grid(poses_shape):
            raise ValueError(
                "`coordinates` needs poses on a grid (batch, height, width, types, ...). "
                f"Received input shape {tuple(poses_shape)}."
            )
        if room < 2:
            raise ValueError(
                "`coordinates` needs two entries in the right-hand column of a vote, or in a vector. Received "
                f"{room} for input shape {tuple(poses_shape)} and dim {self.dim}."
            )

    def call(self, poses, activations=None, mask=None, return_couplings=False):
        check_per_child(poses, activations=activations, mask=mask)
        kernel = self.kernel
        if self.coordinates:
            poses, kernel = self._add_coordinates(poses, kernel)
        x = flatten_grid(poses)
        activations = masked(activations, mask, ops.shape(x)[:2], self.variable_dtype)
        if self.stores_votes:
            votes = TransformedVotes(x, kernel, self.bias, activations).store(centered=True)
        else:
            votes = SharedVotes(x, kernel, self.bias, activations, self.chunk)
        means, _, scores, _, *couplings = em_routing(votes, return_couplings=return_couplings, **self._options)
        return self._results(means, scores, *couplings)

    def _add_coordinates(self, poses, kernel):
        """Poses with columns of the coordinates, and the kernel with rows that put them where they belong in a vote.

        So votes stay affine in what the child has to say, and need not be stored.
        """
        poses = ops.cast(poses, self.variable_dtype)
        batch, height, width, types = ops.shape(poses)[:4]
        row, column = ops.meshgrid(_centers(height), _centers(width), indexing="ij")
        rows = rows_of(poses.shape)
        # Of a matrix the first two rows of one further column, else the entries of two further columns.
        where = ops.stack([row, column], axis=-1)[None, :, :, None]
        if rows:
            where = ops.pad(where, [[0, 0]] * 4 + [[0, rows[0] - 2]])[..., None]
            placed = ops.one_hot([self.dim - 1], self.dim, dtype=kernel.dtype)
        else:
            placed = ops.one_hot([0, 1], self.dim, dtype=kernel.dtype)
        where = ops.cast(where, poses.dtype)
        where = ops.broadcast_to(where, (batch, height, width, types, *where.shape[4:]))
        placed = ops.broadcast_to(placed, (*kernel.shape[:2], *placed.shape))
        return ops.concatenate([poses, where], axis=-1), ops.concatenate([kernel, placed], axis=2)

    def compute_output_shape(self, poses_shape, activations_shape=None):
        parents = (poses_shape[0], self.capsules)
        return (*parents, *rows_of(poses_shape), self.dim), parents, parents

    def _couplings_shape(self, poses_shape):
        return poses_shape[0], children_of(poses_shape), self.capsules

    def get_config(self):
        return {
            **super().get_config(),
            "sharing": self.sharing,
            "coordinates": self.coordinates,
            "votes": self.votes,
            "chunk": self.chunk,
        }


@keras.saving.register_keras_serializable("tf_capsules")
class ConvEMRouting(Convolutional, _EMCapsules):
    """Convolutional capsules with activations, routed by expectation-maximization.

    Source: Hinton et al. 2018, section 4 and procedure 1. Each parent position has its window of children, without
    padding; transformations and betas are shared by all positions. A child divides itself among all parents that see
    it, of all types and at all positions; children that no window covers take no part. Votes, which are rows times
    columns of the parents' grid, times children of a window, times `capsules`, times entries of a pose, exist for a few
    examples at a time and are not kept for the backward pass, which makes them again.

    Args:
        capsules: parent types, that is parents at each position.
        dim: columns of a parent's pose; for vectors its length.
        kernel_size, strides: of the windows, a number or (rows, columns).
        iterations: routing iterations, at least 1; 1 leaves the couplings uniform.
        competition: "all" (the paper); or "types": only the parents at one position compete, another, simpler
            algorithm.
        votes: "auto"; or "stored": all of them are kept for the backward pass, as is also done with `normalization`
            "min_max" and where couplings are asked for. Only then has the layer gradients of higher order.
        use_bias, inverse_temperature, normalization, gradients, epsilon, variance_floor, kernel_initializer,
            beta_u_initializer, beta_a_initializer, bias_initializer, kernel_regularizer: as in `EMRouting`; "data" is
            `100 capsules / children of a window`.

    Call arguments:
        poses: (batch, height, width, types, d) or (batch, height, width, types, rows, d). They must be finite, also
            where a mask hides them.
        activations: of the children, not negative, (batch, height, width, types); None: all 1.
        mask: shaped like `activations`, true for the children that take part.
        return_couplings: also return the couplings of the last iteration.

    Returns:
        Poses (batch, new height, new width, capsules, dim) or (..., capsules, rows, dim); activations in (0, 1) and
        their logits, (batch, new height, new width, capsules); with `return_couplings` also (batch, new height, new
        width, children of a window, capsules), the children in the order row, column, type.

    Raises:
        ValueError: arguments out of range, poses that are not on a grid of known size, a grid smaller than the window.

    Example:
        >>> layer = ConvEMRouting(8, 4, kernel_size=3, strides=2)
        >>> poses, activations, logits = layer(np.zeros((2, 14, 14, 5, 4, 4)), np.ones((2, 14, 14, 5)))
        >>> poses.shape, activations.shape
        (TensorShape([2, 6, 6, 8, 4, 4]), TensorShape([2, 6, 6, 8]))
    """

    def __init__(
        self,
        capsules: int,
        dim: int,
        kernel_size: Size = 3,
        strides: Size = 1,
        iterations: int = 3,
        competition: str = "all",
        votes: str = "auto",
        **kwargs,
    ):
        super().__init__(capsules, dim, kernel_size, strides, iterations=iterations, **kwargs)
        self.competition = one_of("competition", competition, ("all", "types"))
        self.votes = one_of("votes", votes, ("auto", "stored"))

    def build(self, poses_shape, activations_shape=None):
        self._add_weights(self._open_windows(poses_shape), poses_shape)
        self.stores_votes = self.votes == "stored" or self.normalization == "min_max"
        super().build(poses_shape)

    def call(self, poses, activations=None, mask=None, return_couplings=False):
        check_per_child(poses, activations=activations, mask=mask)
        windows, competes = self.windows, self.competition == "all"
        activations = masked(activations, mask, ops.shape(poses)[:4], self.variable_dtype)
        if activations is None:
            activations = ops.ones(ops.shape(poses)[:4], self.variable_dtype)
        kernel, bias = self._of_a_window(self.kernel), self._of_a_window(self.bias)
        if self.stores_votes or return_couplings:
            votes = TransformedVotes(windows.gather(poses), kernel, bias, windows.gather(activations)).store()
            options = dict(competition=windows.couple if competes else None, return_couplings=return_couplings)
            means, _, scores, _, *couplings = em_routing(votes, **options, **self._options)
            results = self._results(means, scores, *couplings)
        else:
            options = dict(windows=windows, competes=competes, chunk=self.chunk)
            results = windowed_em_routing(poses, activations, kernel, bias, **options, **self._options)
            results = self._results(*results)
        return tuple(map(self._on_the_grid, results))

    def compute_output_shape(self, poses_shape, activations_shape=None):
        parents = self._parents_shape(poses_shape)
        return (*parents, *rows_of(poses_shape), self.dim), parents, parents

    def get_config(self):
        return {
            **super().get_config(),
            "competition": self.competition,
            "votes": self.votes,
        }


def _initial_betas(normalization, capsules):
    """Initializers of beta_u and beta_a that go with a normalization."""
    initializers = keras.initializers
    if normalization == "data":
        limit = (6 / (capsules + 1)) ** 0.5
        return initializers.RandomUniform(-limit, limit), initializers.TruncatedNormal(-1000.0, 500.0)
    if normalization == "min_max":
        return initializers.RandomUniform(0.0, 1.0), initializers.RandomUniform(0.0, 1.0)
    return "zeros", "zeros"


def _centers(size):
    """Centers of so many equal parts of [0, 1]."""
    return (ops.arange(size, dtype="float32") + 0.5) / ops.cast(size, "float32")
