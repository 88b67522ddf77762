"""Inverted dot-product attention routing as layers, fully connected and convolutional, and chains of them."""

import inspect
import math
from collections.abc import Sequence

import keras
from keras import ops

from tf_capsules.layers.arguments import one_of, positive_int, truth_value
from tf_capsules.layers.connections import (
    check_parents,
    check_per_child,
    children_of,
    count_groups,
    flatten_grid,
    input_spec,
    masked,
    rows_of,
)
from tf_capsules.layers.convolutional import NUMBERS_AT_A_TIME, Convolutional
from tf_capsules.layers.routed import RoutedCapsules
from tf_capsules.routing.inverted_attention import (
    distinct_inverted_attention,
    inverted_attention,
    windowed_inverted_attention,
)
from tf_capsules.routing.votes import DistinctVotes
from tf_capsules.routing.windowed_votes import make_votes

# Of activations, as in EM routing.
_INVERSE_TEMPERATURE = 0.01
_VARIANCE_FLOOR = 1e-5


class _InvertedAttention(RoutedCapsules):
    """What the layers have in common: how they route, their weights, and what is done to the sum of the votes."""

    def __init__(
        self,
        capsules: int,
        dim: int,
        scaled: bool = True,
        layer_norm: bool = True,
        dropout: float = 0.0,
        initial_pose: str = "zeros",
        activations: bool = False,
        votes: str = "auto",
        **kwargs,
    ):
        super().__init__(capsules, dim, **kwargs)
        self.scaled = truth_value("scaled", scaled)
        self.layer_norm = truth_value("layer_norm", layer_norm)
        self.initial_pose = one_of("initial_pose", initial_pose, ("zeros", "random", "learned"))
        self.activations = truth_value("activations", activations)
        self.votes = one_of("votes", votes, ("auto", "stored"))
        if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0 <= dropout < 1:
            raise ValueError(f"`dropout` must be at least 0 and less than 1. Received: {dropout!r}")
        self.dropout = keras.layers.Dropout(dropout, dtype=self.variable_dtype)
        self.normalization = None

    def _add_weights(self, groups, poses_shape):
        """Kernel (*groups, capsules, columns, dim), initial pose, gain and offset of the normalization, and betas."""
        pose = (*rows_of(poses_shape), self.dim)
        initializer = self.kernel_initializer
        if initializer is None:
            initializer = keras.initializers.RandomNormal(
                stddev=math.sqrt(self.capsules / (poses_shape[-1] * math.prod(groups)))
            )
        self._add_kernel(groups, poses_shape, initializer)
        self.initial = None
        if self.initial_pose != "zeros":
            learned = self.initial_pose == "learned"
            start = "zeros" if learned else keras.initializers.RandomNormal(stddev=1.0)
            shape = (self.capsules, *pose)
            self.initial = self.add_weight(shape, start, trainable=learned, name="initial_pose", autocast=False)
        self.scale = math.prod(pose) ** -0.5 if self.scaled else 1.0
        # Of a single number nothing but the offset would be left.
        if self.layer_norm and math.prod(pose) > 1:
            axes = tuple(range(-len(pose), 0))
            self.normalization = keras.layers.LayerNormalization(axes, epsilon=1e-5, dtype=self.variable_dtype)
            self.normalization.build((None, self.capsules, *pose))
        self.beta_u = self.beta_a = None
        if self.activations:
            self.beta_u = self.add_weight((self.capsules,), "zeros", name="beta_u", autocast=False)
            self.beta_a = self.add_weight((self.capsules,), "zeros", name="beta_a", autocast=False)

    def _finished(self, sums, moments, training):
        """The parents' poses, and where they have activations a pair with these, of the sums of their votes."""
        poses = self.dropout(sums, training=training)
        poses = ops.cast(poses if self.normalization is None else self.normalization(poses), self.compute_dtype)
        if not moments:
            return poses
        masses, variances = moments
        entries = math.prod(variances.shape[2:])
        logs = ops.log(ops.reshape(variances, (-1, self.capsules, entries)) + _VARIANCE_FLOOR)
        costs = (entries * self.beta_u + 0.5 * ops.sum(logs, axis=-1)) * masses
        activations = ops.sigmoid(_INVERSE_TEMPERATURE * (self.beta_a - costs))
        return poses, ops.cast(activations, self.compute_dtype)

    def compute_output_spec(
        self, poses, activations=None, parents=None, mask=None, training=None, return_couplings=False
    ):
        check_per_child(poses, activations=activations, mask=mask)
        shapes = self.compute_output_shape(poses.shape)
        check_parents(shapes, parents)
        spec = tuple(keras.KerasTensor(x, self.compute_dtype) for x in (shapes if self.activations else [shapes]))
        if return_couplings:
            return *spec, keras.KerasTensor(self._couplings_shape(poses.shape), self.variable_dtype)
        return spec if self.activations else spec[0]

    def get_config(self):
        return {
            **super().get_config(),
            "scaled": self.scaled,
            "layer_norm": self.layer_norm,
            "dropout": self.dropout.rate,
            "initial_pose": self.initial_pose,
            "activations": self.activations,
            "votes": self.votes,
        }


@keras.saving.register_keras_serializable("tf_capsules")
class InvertedAttentionRouting(_InvertedAttention):
    """Fully connected capsules, routed by inverted dot-product attention: one iteration a call.

    Source: Tsai et al. 2020, sections 2 and 3. A vote is the child's pose times a matrix, `x_i W_ij`; a child pose that
    is a matrix keeps its rows, so that there is a weight for each column of the child and of the parent only. A child
    shares its vote out by a softmax, over the parents, of how well it agrees with the pose each had in the iteration
    before; the sums are layer normalized. Further iterations are further calls with what the last one returned, as
    `ConcurrentRouting` makes them. Routing runs in at least float32 whatever the dtype policy. Different from the
    paper's equations, as in its released code: the scale of the agreement. There are no activations, unless they are
    asked for, whose design the paper leaves open: a parent's is `sigmoid(0.01 (beta_a - sum_h (beta_u + log(var_h) / 2)
    S))` as in EM routing, with S the sum of its couplings and var_h the variance of an entry of the votes so coupled.

    Args:
        capsules: number of parents.
        dim: columns of a parent's pose; for vectors its length.
        scaled: whether agreements are divided by the square root of the size of a parent's pose.
        layer_norm: whether sums are normalized over the entries of a pose, with one learned gain and offset for all
            capsules; poses of one number never are.
        dropout: rate at which entries of the sums are dropped in training, before they are normalized.
        initial_pose: what children agree with in a first iteration: "zeros", with which all agree alike; "random",
            drawn once from a normal distribution; "learned", from zeros on.
        activations: whether parents have activations (ablation C).
        votes: "auto": without activations there are no votes, and a pose for each pair of a child and a parent exists
            for a few examples at a time only, again for the backward pass. "stored": all votes are kept for it, as is
            also done with activations. Only then has the layer gradients of higher order.
        kernel_initializer: None: normal, of standard deviation `sqrt(capsules / (children * columns of their poses))`.
        kernel_regularizer: of the kernel.

    Call arguments:
        poses: (batch, children, d) or (batch, children, rows, d), or the same on a grid
            (batch, height, width, types, ...).
        activations: (batch, children) or (batch, height, width, types), by which a child's couplings are multiplied;
            None: 1.
        parents: what the layer returned in the iteration before; None in a first iteration.
        mask: shaped like `activations`, true for the children that take part.
        return_couplings: also return the couplings.

    Returns:
        (batch, capsules, dim) or (batch, capsules, rows, dim); after it with `activations` (batch, capsules), in
        (0, 1), and with `return_couplings` (batch, children, capsules).

    Raises:
        ValueError: arguments out of range, poses of another rank or an unknown number of children, parents of another
            shape than what the layer returns.

    Example:
        >>> layer = InvertedAttentionRouting(capsules=10, dim=4)
        >>> poses = np.ones((2, 72, 4, 4))
        >>> layer(poses, parents=layer(poses)).shape
        TensorShape([2, 10, 4, 4])
    """

    def build(self, poses_shape, activations_shape=None, parents_shape=None):
        children = count_groups(self, poses_shape, "none")
        self.input_spec = input_spec(poses_shape, "none")
        self._add_weights((children,), poses_shape)
        # Densities and variances have no form without votes.
        self.stores_votes = self.votes == "stored" or self.activations
        # Otherwise there is a child's pose for each pair, in all no more numbers than the kernel has or so.
        of_an_example = children * self.capsules * math.prod((poses_shape[-1], *rows_of(poses_shape)))
        self.chunk = max(1, max(NUMBERS_AT_A_TIME, math.prod(self.kernel.shape)) // of_an_example)
        super().build(poses_shape)

    def call(self, poses, activations=None, parents=None, mask=None, training=None, return_couplings=False):
        check_per_child(poses, activations=activations, mask=mask)
        check_parents(self.compute_output_shape(tuple(poses.shape)), parents)
        x = flatten_grid(poses)
        if parents is None:
            parents = None if self.initial is None else self.initial[None]
        elif self.activations:
            parents, _ = parents
        weights = masked(activations, mask, ops.shape(x)[:2], self.variable_dtype)
        moments = []
        if parents is not None and not (self.stores_votes or return_couplings):
            parents = ops.broadcast_to(parents, (ops.shape(x)[0], *parents.shape[1:]))
            options = dict(chunk=self.chunk, scale=self.scale, weights=weights)
            sums = distinct_inverted_attention(x, parents, self.kernel, **options)
        else:
            votes = DistinctVotes(x, self.kernel)
            votes = votes.store() if self.stores_votes else votes
            options = dict(weights=weights, return_moments=self.activations, return_couplings=True)
            sums, *moments, couplings = inverted_attention(votes, parents, scale=self.scale, **options)
        results = self._finished(sums, moments, training)
        if not return_couplings:
            return results
        return *(results if self.activations else [results]), couplings

    def compute_output_shape(self, poses_shape, activations_shape=None, parents_shape=None):
        parents = poses_shape[0], self.capsules
        poses = *parents, *rows_of(poses_shape), self.dim
        return (poses, parents) if self.activations else poses

    def _couplings_shape(self, poses_shape):
        return poses_shape[0], children_of(poses_shape), self.capsules


@keras.saving.register_keras_serializable("tf_capsules")
class ConvInvertedAttentionRouting(Convolutional, _InvertedAttention):
    """Convolutional capsules, routed by inverted dot-product attention: one iteration a call.

    Source: Tsai et al. 2020, sections 2 and 3. `InvertedAttentionRouting` in each window of a convolution without
    padding, all of them with the same transformations. Only the parents at one position compete for a child: one that
    several windows cover has a vote in each. A first iteration is a plain convolution; in later ones votes exist for a
    few examples at a time and are not kept for the backward pass, which makes them again.

    Args:
        capsules: parent types, that is parents at each position.
        dim: columns of a parent's pose; for vectors its length.
        kernel_size, strides: of the windows, a number or (rows, columns).
        votes: "auto"; or "stored": all of them are kept for the backward pass, as is also done where couplings are
            asked for. Only then has the layer gradients of higher order.
        scaled, layer_norm, dropout, initial_pose, activations, kernel_regularizer: as in `InvertedAttentionRouting`.
        kernel_initializer: as there, the children being those of a window.

    Call arguments:
        poses: (batch, height, width, types, d) or (batch, height, width, types, rows, d).
        activations: (batch, height, width, types), by which a child's couplings are multiplied; None: 1.
        parents: what the layer returned in the iteration before; None in a first iteration.
        mask: shaped like `activations`, true for the children that take part.
        return_couplings: also return the couplings.

    Returns:
        (batch, new height, new width, capsules, dim) or (..., capsules, rows, dim); after it with `activations` (batch,
        new height, new width, capsules), in (0, 1), and with `return_couplings` (batch, new height, new width, children
        of a window, capsules), the children in the order row, column, type.

    Raises:
        ValueError: arguments out of range, poses that are not on a grid of known size, a grid smaller than the window,
            parents of another shape than what the layer returns.

    Example:
        >>> layer = ConvInvertedAttentionRouting(8, 4, kernel_size=3, strides=2)
        >>> layer(np.zeros((2, 15, 15, 5, 4, 4))).shape
        TensorShape([2, 7, 7, 8, 4, 4])
    """

    def build(self, poses_shape, activations_shape=None, parents_shape=None):
        self._add_weights(self._open_windows(poses_shape), poses_shape)
        super().build(poses_shape)

    def call(self, poses, activations=None, parents=None, mask=None, training=None, return_couplings=False):
        check_per_child(poses, activations=activations, mask=mask)
        check_parents(self.compute_output_shape(tuple(poses.shape)), parents)
        windows, kernel = self.windows, self._of_a_window(self.kernel)
        weights = masked(activations, mask, ops.shape(poses)[:4], self.variable_dtype)
        if parents is None:
            parents = self.initial
            if parents is not None:
                parents = ops.broadcast_to(parents[None], (ops.shape(poses)[0] * windows.positions, *parents.shape))
        else:
            parents = parents[0] if self.activations else parents
            parents = ops.reshape(parents, (-1, *parents.shape[3:]))
        options = dict(scale=self.scale, return_moments=self.activations)
        if self.votes == "stored" or return_couplings:
            votes = make_votes(windows, poses, kernel)
            weights = None if weights is None else windows.gather(weights)
            sums, *moments, couplings = inverted_attention(
                votes, parents, weights=weights, return_couplings=True, **options
            )
        else:
            options |= dict(windows=windows, chunk=self.chunk, weights=weights)
            found = windowed_inverted_attention(poses, parents, kernel, **options)
            sums, *moments = found if self.activations else [found]
        results = self._finished(sums, moments, training)
        results = [self._on_the_grid(x) for x in (results if self.activations else [results])]
        if return_couplings:
            results.append(self._on_the_grid(couplings))
        return tuple(results) if len(results) > 1 else results[0]

    def compute_output_shape(self, poses_shape, activations_shape=None, parents_shape=None):
        parents = self._parents_shape(poses_shape)
        poses = *parents, *rows_of(poses_shape), self.dim
        return (poses, parents) if self.activations else poses


@keras.saving.register_keras_serializable("tf_capsules")
class ConcurrentRouting(keras.layers.Layer):
    """A chain of capsule layers that are routed together, several times.

    Source: Tsai et al. 2020, section 4.1 (inference); "sequential": ablation B. In the first
    iteration each layer gets what the one below has just found. In each later one all layers are brought up to date at
    once, each from what its children and it itself were in the iteration before: none sees what another finds in the
    same iteration. Weights are the same in all iterations.

    Args:
        layers: capsule layers, the lowest first, whose call takes what the layer below returned, several results as
            several arguments, and `parents`, what they returned themselves in the iteration before:
            `InvertedAttentionRouting`, `ConvInvertedAttentionRouting`, or yours, which also needs
            `compute_output_shape` of what it takes but `parents`, and `mask` where the lowest layer is to get one.
        iterations: at least 1; 1 is the chain of layers as it is.
        schedule: "concurrent"; or "sequential": each layer goes through all iterations before the next one begins.

    Call arguments:
        poses, activations: what the lowest layer takes; None: no activations.
        mask: true for the children of the lowest layer that take part, or None.
        return_iterations: return, in place of the last layer's result, those of all layers in all iterations.

    Returns:
        What the last layer returns, of the last iteration; with `return_iterations` a list with a list of every
        iteration's result for each layer.

    Raises:
        ValueError: no layers, one that does not take `parents`, iterations below 1 or an unknown schedule; a mask
            that the lowest layer does not take.

    Example:
        >>> chain = [ConvInvertedAttentionRouting(8, 4, strides=2), InvertedAttentionRouting(10, 4)]
        >>> ConcurrentRouting(chain, iterations=2)(np.ones((2, 9, 9, 5, 4, 4))).shape
        TensorShape([2, 10, 4, 4])
    """

    def __init__(self, layers: Sequence[keras.Layer], iterations: int = 2, schedule: str = "concurrent", **kwargs):
        super().__init__(**kwargs)
        if not isinstance(layers, (list, tuple)) or not layers:
            raise ValueError(f"`layers` must be a list of one or more capsule layers. Received: {layers!r}")
        self.chain = list(layers)
        for layer in self.chain:
            if not isinstance(layer, keras.Layer) or not _takes(layer, "parents"):
                raise ValueError(f"`layers` must be layers whose call takes `parents`. Received: {layer!r}")
        self.iterations = positive_int("iterations", iterations)
        self.schedule = one_of("schedule", schedule, ("concurrent", "sequential"))
        self.supports_masking = True

    def build(self, poses_shape, activations_shape=None):
        shapes = _several(poses_shape, activations_shape)
        for layer in self.chain:
            if not layer.built and type(layer).build is not keras.Layer.build:
                layer.build(*shapes)
            shapes = _spread(layer.compute_output_shape(*shapes), tuple)
        super().build(poses_shape)

    def call(self, poses, activations=None, mask=None, training=None, return_iterations=False):
        lowest = _several(poses, activations)
        if mask is not None and not _takes(self.chain[0], "mask"):
            raise ValueError(f"The lowest layer takes no `mask`. Received one for {self.chain[0]!r}.")

        def routed(number, children, parents=None):
            layer = self.chain[number]
            given = dict(mask=None if number else mask, training=training)
            given = {name: value for name, value in given.items() if _takes(layer, name)}
            return layer(*_spread(children), parents=parents, **given)

        found = []
        if self.schedule == "sequential":
            children = lowest
            for number in range(len(self.chain)):
                own = [routed(number, children)]
                while len(own) < self.iterations:
                    own.append(routed(number, children, own[-1]))
                found.append(own)
                children = own[-1]
        else:
            for number in range(len(self.chain)):
                found.append([routed(number, found[-1][0] if number else lowest)])
            for left in reversed(range(self.iterations - 1)):
                children = [lowest, *(own[-1] for own in found[:-1])]
                parents = [own[-1] for own in found]
                for number, own in enumerate(found):
                    # What a layer finds takes as many more iterations to reach the last one as there are layers above.
                    if return_iterations or len(found) - 1 - number <= left:
                        own.append(routed(number, children[number], parents[number]))
        return found if return_iterations else found[-1][-1]

    def compute_mask(self, *args, **kwargs):
        return None

    def compute_output_spec(self, poses, activations=None, mask=None, training=None, return_iterations=False):
        shapes, specs = _several(poses.shape, None if activations is None else activations.shape), []
        for layer in self.chain:
            shapes = _spread(layer.compute_output_shape(*shapes), tuple)
            own = tuple(keras.KerasTensor(shape, layer.compute_dtype) for shape in shapes)
            specs.append([own if len(own) > 1 else own[0] for _ in range(self.iterations)])
        return specs if return_iterations else specs[-1][-1]

    def compute_output_shape(self, poses_shape, activations_shape=None):
        shapes = _several(poses_shape, activations_shape)
        for layer in self.chain:
            shapes = _spread(layer.compute_output_shape(*shapes), tuple)
        return shapes if len(shapes) > 1 else shapes[0]

    def get_config(self):
        return {
            **super().get_config(),
            "layers": [keras.saving.serialize_keras_object(layer) for layer in self.chain],
            "iterations": self.iterations,
            "schedule": self.schedule,
        }

    @classmethod
    def from_config(cls, config):
        layers = [keras.saving.deserialize_keras_object(layer) for layer in config["layers"]]
        return cls(**{**config, "layers": layers})


def _takes(layer, argument):
    return argument in inspect.signature(layer.call).parameters


def _several(poses, activations):
    return (poses,) if activations is None else (poses, activations)


def _spread(results, kind=object):
    """What a layer returned as a tuple; of shapes, which are tuples themselves, those of a kind."""
    if isinstance(results, (tuple, list)) and isinstance(results[0], kind):
        return tuple(results)
    return (results,)
