"""Dynamic routing as layers, fully connected and convolutional."""

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
    on_grid,
    rows_of,
)
from tf_capsules.layers.convolutional import Convolutional
from tf_capsules.layers.routed import RoutedCapsules
from tf_capsules.routing.dynamic import (
    check_dynamic_routing,
    dynamic_routing,
    dynamic_routing_by_parents,
    windowed_dynamic_routing,
)
from tf_capsules.routing.votes import DistinctVotes, SharedVotes
from tf_capsules.routing.windowed_votes import make_votes


class _DynamicCapsules(RoutedCapsules):
    """What the layers have in common: parents, iterations, kernel and bias."""

    default_kernel_stddev = 0.1

    def __init__(
        self,
        capsules: int,
        dim: int,
        iterations: int = 3,
        use_bias: bool = False,
        bias_initializer: Initializer = "zeros",
        **kwargs,
    ):
        super().__init__(capsules, dim, **kwargs)
        self.iterations = iterations
        self.use_bias = use_bias
        self.bias_initializer = keras.initializers.get(bias_initializer)

    def _add_weights(self, groups, poses_shape):
        """Kernel (*groups, capsules, columns, dim) and bias (capsules, *pose)."""
        self._add_kernel(groups, poses_shape)
        self.bias = None
        if self.use_bias:
            shape = (self.capsules, *rows_of(poses_shape), self.dim)
            self.bias = self.add_weight(shape, self.bias_initializer, name="bias", autocast=False)

    def compute_output_spec(self, poses, mask=None, return_couplings=False):
        check_per_child(poses, mask=mask)
        parents = keras.KerasTensor(self.compute_output_shape(poses.shape), self.compute_dtype)
        if not return_couplings:
            return parents
        return parents, keras.KerasTensor(self._couplings_shape(poses.shape), self.kernel.dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "iterations": self.iterations,
            "use_bias": self.use_bias,
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
        }


INITIAL_LOGITS = ("zeros", "random", "learned")


@keras.saving.register_keras_serializable("tf_capsules")
class DynamicRouting(_DynamicCapsules):
    """Fully connected capsules, routed by agreement.

    Source: Sabour et al. 2017, section 2 and procedure 1. A vote is the child's pose times a matrix, `x_i W_ij`; a
    child pose that is a matrix keeps its rows. Routing runs in at least float32 whatever the dtype policy. Different
    from the paper: the option of a bias and of leaky routing (both from the authors' released code), of shared
    transformations, a bias in each vote, competition between children and their initial logits (Li et al. 2018).

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
        use_vote_bias: whether votes have a learned bias, `x_i W_ij + B_ij`, shared as transformations are.
        initial_logits: of the first couplings: "zeros"; "random", drawn once from [0, 1); or "learned", zeros at first.
            Both need a known number of children.
        votes: "auto" never holds votes in memory where a form without them is smaller; "stored" always does, "free"
            never.
        chunk: None, or about how many parents are worked on at a time, to bound the memory: for competition between
            children that share transformations, without stored votes; under TensorFlow's XLA not in training. Not done
            where couplings are asked for.
        kernel_initializer, bias_initializer, vote_bias_initializer, kernel_regularizer: the default kernel is drawn as
            in the released code.

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
        capsules: int,
        dim: int,
        iterations: int = 3,
        sharing: str = "none",
        leaky: bool = False,
        competition: str = "parents",
        use_vote_bias: bool = False,
        initial_logits: str = "zeros",
        votes: str = "auto",
        chunk: int | None = None,
        vote_bias_initializer: Initializer = "zeros",
        **kwargs,
    ):
        super().__init__(capsules, dim, iterations, **kwargs)
        check_dynamic_routing(iterations, competition, leaky)
        self.sharing = one_of("sharing", sharing, SHARING)
        self.leaky = leaky
        self.competition = competition
        self.use_vote_bias = use_vote_bias
        self.initial_logits = one_of("initial_logits", initial_logits, INITIAL_LOGITS)
        self.votes = one_of("votes", votes, ("auto", "stored", "free"))
        self.chunk = None if chunk is None else positive_int("chunk", chunk)
        if chunk is not None and (competition, sharing == "none", votes == "stored") != ("children", False, False):
            raise ValueError(
                '`chunk` needs competition="children", sharing="positions" or "all", and votes that are not stored. '
                f"Received: chunk={chunk}, competition={competition!r}, sharing={sharing!r}, votes={votes!r}"
            )
        self.vote_bias_initializer = keras.initializers.get(vote_bias_initializer)

    def build(self, input_shape):
        groups = count_groups(self, input_shape, self.sharing)
        self.input_spec = input_spec(input_shape, self.sharing)
        self._add_weights((groups,), input_shape)
        self.vote_bias = self.logits = None
        if self.use_vote_bias:
            shape = (groups, self.capsules, *rows_of(input_shape), self.dim)
            self.vote_bias = self.add_weight(shape, self.vote_bias_initializer, name="vote_bias", autocast=False)
        if self.initial_logits != "zeros":
            self._add_logits(input_shape)
        # Numbers held for each (child, parent) pair: a parent's pose if stored, else a child's pose or nothing.
        smaller = self.sharing != "none" or input_shape[-1] <= self.dim
        self.stores_votes = self.votes == "stored" or (self.votes == "auto" and not smaller)
        super().build(input_shape)

    def _add_logits(self, input_shape):
        children = children_of(input_shape)
        if children is None:
            raise ValueError(
                f'initial_logits="{self.initial_logits}" needs a known number of children. '
                f"Received input shape {tuple(input_shape)}."
            )
        learned = self.initial_logits == "learned"
        draw = "zeros" if learned else keras.initializers.RandomUniform(0.0, 1.0)
        shape = (children, self.capsules)
        self.logits = self.add_weight(shape, draw, trainable=learned, name="logits", autocast=False)
        own = {axis: input_shape[axis] for axis in ((1, 2, 3) if on_grid(input_shape) else (1,))}
        self.input_spec = keras.layers.InputSpec(ndim=len(input_shape), axes=own | {-1: input_shape[-1]})

    def call(self, poses, mask=None, return_couplings=False):
        check_per_child(poses, mask=mask)
        x = flatten_grid(poses)
        votes = (DistinctVotes if self.sharing == "none" else SharedVotes)(x, self.kernel, self.vote_bias)
        if mask is not None:
            mask = ops.reshape(mask, (votes.batch, votes.children))
        options = dict(bias=self.bias, initial_logits=self.logits, mask=mask)
        if self.chunk is not None and not return_couplings:
            result = dynamic_routing_by_parents(votes, self.iterations, chunk=self.chunk, **options)
        else:
            result = dynamic_routing(
                votes.store() if self.stores_votes else votes,
                self.iterations,
                leaky=self.leaky,
                competition=self.competition,
                return_couplings=return_couplings,
                **options,
            )
        if return_couplings:
            return ops.cast(result[0], self.compute_dtype), result[1]
        return ops.cast(result, self.compute_dtype)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], self.capsules, *rows_of(input_shape), self.dim)

    def _couplings_shape(self, poses_shape):
        return poses_shape[0], children_of(poses_shape), self.capsules

    def get_config(self):
        return {
            **super().get_config(),
            "sharing": self.sharing,
            "leaky": self.leaky,
            "competition": self.competition,
            "use_vote_bias": self.use_vote_bias,
            "initial_logits": self.initial_logits,
            "votes": self.votes,
            "chunk": self.chunk,
            "vote_bias_initializer": keras.initializers.serialize(self.vote_bias_initializer),
        }


@keras.saving.register_keras_serializable("tf_capsules")
class ConvDynamicRouting(Convolutional, _DynamicCapsules):
    """Convolutional capsules, routed by agreement.

    Source: Sabour et al. 2017, procedure 1, in each window of a convolution without padding, as Tsai et al. 2020
    compare with it. Transformations are shared by all positions. Only the parents at one position compete for a child:
    one that several windows cover has a vote in each. Votes exist for a few examples at a time and are not kept for the
    backward pass, which makes them again.

    Args:
        capsules: parent types, that is parents at each position.
        dim: columns of a parent's pose; for vectors its length.
        kernel_size, strides: of the windows, a number or (rows, columns).
        votes: "auto"; or "stored": all of them are kept for the backward pass, as is also done where couplings are
            asked for. Only then has the layer gradients of higher order.
        iterations, use_bias, kernel_initializer, bias_initializer, kernel_regularizer: as in `DynamicRouting`.

    Call arguments:
        poses: (batch, height, width, types, d) or (batch, height, width, types, rows, d).
        mask: (batch, height, width, types), true for the children that take part.
        return_couplings: also return the last couplings.

    Returns:
        (batch, new height, new width, capsules, dim) or (..., capsules, rows, dim), of length below 1; with
        `return_couplings` a pair of them and the couplings (batch, new height, new width, children of a window,
        capsules), the children in the order row, column, type.

    Raises:
        ValueError: arguments out of range, poses that are not on a grid of known size, a grid smaller than the window.

    Example:
        >>> layer = ConvDynamicRouting(8, 16, kernel_size=3, strides=2)
        >>> layer(np.zeros((2, 15, 15, 5, 8))).shape
        TensorShape([2, 7, 7, 8, 16])
    """

    def __init__(
        self,
        capsules: int,
        dim: int,
        kernel_size: Size = 3,
        strides: Size = 1,
        iterations: int = 3,
        votes: str = "auto",
        **kwargs,
    ):
        check_dynamic_routing(iterations)
        super().__init__(capsules, dim, kernel_size, strides, iterations=iterations, **kwargs)
        self.votes = one_of("votes", votes, ("auto", "stored"))

    def build(self, input_shape):
        self._add_weights(self._open_windows(input_shape), input_shape)
        super().build(input_shape)

    def call(self, poses, mask=None, return_couplings=False):
        check_per_child(poses, mask=mask)
        windows, kernel = self.windows, self._of_a_window(self.kernel)
        mask = None if mask is None else ops.reshape(mask, ops.shape(poses)[:4])
        if self.votes == "stored" or return_couplings:
            votes = make_votes(windows, poses, kernel)
            mask = None if mask is None else windows.gather(mask)
            options = dict(bias=self.bias, mask=mask, return_couplings=True)
            parents, couplings = dynamic_routing(votes, self.iterations, **options)
        else:
            options = dict(bias=self.bias, windows=windows, chunk=self.chunk, mask=mask)
            parents = windowed_dynamic_routing(poses, kernel, self.iterations, **options)
        parents = ops.cast(self._on_the_grid(parents), self.compute_dtype)
        return (parents, self._on_the_grid(couplings)) if return_couplings else parents

    def compute_output_shape(self, input_shape):
        return *self._parents_shape(input_shape), *rows_of(input_shape), self.dim

    def get_config(self):
        return {**super().get_config(), "votes": self.votes}
