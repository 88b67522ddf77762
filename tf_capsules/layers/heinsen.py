"""Routing by net benefit and net cost as a layer."""

import keras
from keras import ops

from tf_capsules.hints import Initializer
from tf_capsules.layers.arguments import one_of, positive_int
from tf_capsules.layers.connections import (
    SHARING,
    check_per_child,
    children_of,
    count_groups,
    flatten_grid,
    input_spec,
    masked,
    rows_of,
)
from tf_capsules.routing.heinsen import check_heinsen_routing, heinsen_routing
from tf_capsules.routing.votes import SharedVotes, TransformedVotes

# With fewer children the variances come near epsilon, and rounding weighs more without stored votes.
_FEW_CHILDREN = 8


@keras.saving.register_keras_serializable("tf_capsules")
class HeinsenRouting(keras.layers.Layer):
    """Fully connected capsules, routed by net benefit and net cost.

    Source: Heinsen 2019, section 2 and algorithm 1. A vote is `x_i W_ij + B_ij`; a child pose that is a matrix keeps
    its rows. Where children share transformations (a variable number of inputs) votes are never made, unless they are
    the smaller form. Routing runs in at least float32 whatever the dtype policy.

    Without `capsules` the number of parents is that of a call, and parents share kernel, bias and betas. Taken
    literally (the paper, section 2.1.1) all parents are then equal. The author's later code adds a learned bias times
    `linspace(-1, 1, capsules)`: poses then differ by a shift, couplings stay uniform, and scores and variances equal.
    With `symmetry_breaking="all"`, which is ours, kernel and betas vary along the same line, and parents compete.

    Args:
        capsules: number of parents; None: it is given with each call.
        dim: columns of a parent's pose; for vectors its length.
        iterations: routing iterations, at least 1; 1 leaves the couplings uniform.
        sharing: which children share kernel, bias and betas: "none" (a fixed number of inputs); "positions": all
            children of a type, which needs poses on a grid; "all": all children, whose number may then vary.
        single_beta: one beta is both the benefit of using and the cost of ignoring (the author's code).
        density: "gaussian", "soft_k_means" (the author's code), or a function of (votes, means, variances) that gives
            log densities (batch, children, parents), up to a constant; it makes the layer store votes.
        symmetry_breaking: None (the paper), "bias" (the author's code), "all" (ours); only without `capsules`.
        votes: "auto" never holds votes in memory where a form without them is smaller, which is counted when the layer
            is built; but always does for fewer than 8 children, for the sake of rounding. "stored" always does, "free"
            never.
        chunk: None, or about how many children are worked on at a time, to bound the memory; not with stored votes, and
            under TensorFlow's XLA not in training.
        epsilon: added to each parent's mass and to each variance.
        kernel_initializer: None: normal of standard deviation 1 / (columns of a child's pose).
        bias_initializer, beta_initializer, kernel_regularizer: of bias and betas, of the kernel.

    Call arguments:
        poses: (batch, children, d) or (batch, children, rows, d), or the same on a grid
            (batch, height, width, types, ...). They must be finite, also where a mask hides them.
        scores: logits of the children's activations, shaped like `poses` without a pose; plus and minus infinity are
            activations of exactly 1 and 0. None: all 1.
        mask: shaped like `scores`, true for the children that take part.
        capsules: number of parents of this call, where the layer has none; None: as many as children.
        return_couplings: also return the routing probabilities of the last iteration.

    Returns:
        Poses (batch, capsules, dim) or (batch, capsules, rows, dim); scores (batch, capsules), which are logits;
        variances, shaped like the poses; with `return_couplings` also (batch, children, capsules).

    Raises:
        ValueError: arguments out of range, poses of another rank, an unknown number of children without sharing "all",
            `capsules` given twice.

    Example:
        >>> poses, scores, variances = HeinsenRouting(5, 4, sharing="all")(np.zeros((2, 72, 4, 4)))
        >>> poses.shape, scores.shape
        (TensorShape([2, 5, 4, 4]), TensorShape([2, 5]))
    """

    def __init__(
        self,
        capsules: int | None,
        dim: int,
        iterations: int = 3,
        sharing: str = "none",
        single_beta: bool = False,
        density: str = "gaussian",
        symmetry_breaking: str | None = "bias",
        votes: str = "auto",
        chunk: int | None = None,
        epsilon: float = 1e-5,
        kernel_initializer: Initializer = None,
        bias_initializer: Initializer = "zeros",
        beta_initializer: Initializer = "zeros",
        kernel_regularizer: Initializer = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if isinstance(density, dict):
            density = keras.saving.deserialize_keras_object(density)
        check_heinsen_routing(iterations, density, epsilon)
        self.capsules = None if capsules is None else positive_int("capsules", capsules)
        self.dim = positive_int("dim", dim)
        self.iterations = iterations
        self.sharing = one_of("sharing", sharing, SHARING)
        self.single_beta = single_beta
        self.density = density
        self.symmetry_breaking = one_of("symmetry_breaking", symmetry_breaking, (None, "bias", "all"))
        self.votes = one_of("votes", votes, ("auto", "stored", "free"))
        self.chunk = None if chunk is None else positive_int("chunk", chunk)
        self.epsilon = epsilon
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.beta_initializer = keras.initializers.get(beta_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.supports_masking = True
        needs_votes = "children with matrices of their own" if sharing == "none" else None
        needs_votes = "a density that is a function" if callable(density) else needs_votes
        if needs_votes and (votes == "free" or chunk):
            asked = 'votes="free"' if votes == "free" else f"chunk={chunk}"
            raise ValueError(f"{asked} does not go with {needs_votes}: they need stored votes.")
        if chunk and votes == "stored":
            raise ValueError(f'chunk={chunk} does not go with votes="stored".')
        self._needs_votes = needs_votes is not None

    def build(self, poses_shape, scores_shape=None):
        groups = count_groups(self, poses_shape, self.sharing)
        self.input_spec = input_spec(poses_shape, self.sharing)
        rows, columns = rows_of(poses_shape), poses_shape[-1]
        parents = self.capsules or 1
        initializer = self.kernel_initializer or keras.initializers.RandomNormal(stddev=1 / columns)

        def weight(name, shape, initializer, regularizer=None):
            return self.add_weight(shape, initializer, name=name, regularizer=regularizer, autocast=False)

        shape = (groups, parents, columns, self.dim)
        self.kernel = weight("kernel", shape, initializer, self.kernel_regularizer)
        self.bias = weight("bias", (groups, parents, *rows, self.dim), self.bias_initializer)
        self.beta_use = weight("beta_use", (groups, parents), self.beta_initializer)
        self.beta_ignore = self.beta_use
        if not self.single_beta:
            self.beta_ignore = weight("beta_ignore", (groups, parents), self.beta_initializer)
        self.breaking = {}
        if self.capsules is None and self.symmetry_breaking is not None:
            self.breaking["bias"] = weight("bias_breaking", (*rows, self.dim), "zeros")
        if self.capsules is None and self.symmetry_breaking == "all":
            again = initializer.clone() if hasattr(initializer, "clone") else initializer
            self.breaking["kernel"] = weight("kernel_breaking", (columns, self.dim), again)
            self.breaking["beta_use"] = weight("beta_use_breaking", (), "zeros")
            self.breaking["beta_ignore"] = self.breaking["beta_use"]
            if not self.single_beta:
                self.breaking["beta_ignore"] = weight("beta_ignore_breaking", (), "zeros")
        # Numbers held for each child: the features of its pose, or its votes.
        features = 1 + (rows[0] if rows else 1) * (columns + columns * (columns + 1) // 2)
        votes = (rows[0] if rows else 1) * self.dim * (self.capsules or children_of(poses_shape) or features)
        smaller = not self._needs_votes and features <= votes
        self.stores_votes = self.votes == "stored" or self._needs_votes or (self.votes == "auto" and not smaller)
        super().build(poses_shape)

    def call(self, poses, scores=None, mask=None, capsules=None, return_couplings=False):
        check_per_child(poses, scores=scores, mask=mask)
        x = flatten_grid(poses)
        children = ops.shape(x)[1]
        if capsules is not None and self.capsules is not None:
            raise ValueError(f"This layer has {self.capsules} capsules. Received in the call: {capsules}")
        activations = None if scores is None else ops.sigmoid(ops.cast(scores, self.variable_dtype))
        activations = masked(activations, mask, (ops.shape(x)[0], children), self.variable_dtype)
        kernel, bias, beta_use, beta_ignore = self._for_parents(self.capsules or capsules or children)

        def route(stored):
            if stored:
                votes = TransformedVotes(x, kernel, bias, activations).store(centered=True)
            else:
                votes = SharedVotes(x, kernel, bias, activations, self.chunk)
            return heinsen_routing(
                votes,
                self.iterations,
                beta_use=beta_use,
                beta_ignore=beta_ignore,
                density=self.density,
                epsilon=self.epsilon,
                return_couplings=return_couplings,
            )

        if self.votes != "auto" or self.stores_votes:
            scores, means, variances, *couplings = route(self.stores_votes)
        elif isinstance(children, int):
            scores, means, variances, *couplings = route(children < _FEW_CHILDREN)
        else:
            results = ops.cond(children < _FEW_CHILDREN, lambda: route(True), lambda: route(False))
            scores, means, variances, *couplings = results
        results = (ops.cast(result, self.compute_dtype) for result in (means, scores, variances))
        return (*results, *couplings)

    def _for_parents(self, capsules):
        """Kernel, bias and betas, with a parent axis of so many capsules."""
        weights = {name: getattr(self, name) for name in ("kernel", "bias", "beta_use", "beta_ignore")}
        if self.capsules is not None:
            return tuple(weights.values())
        steps = ops.cast(ops.arange(capsules), self.variable_dtype)
        line = 2 * steps / ops.cast(ops.maximum(capsules - 1, 1), self.variable_dtype) - 1

        def spread(name, weight):
            along = ops.reshape(line, (-1,) + (1,) * (len(weight.shape) - 2))
            return weight + along * (self.breaking[name] if name in self.breaking else 0.0)

        return tuple(spread(name, weight) for name, weight in weights.items())

    def compute_mask(self, *args, **kwargs):
        return None

    def compute_output_spec(self, poses, scores=None, mask=None, capsules=None, return_couplings=False):
        check_per_child(poses, scores=scores, mask=mask)
        children = children_of(poses.shape)
        if capsules is not None and self.capsules is not None:
            raise ValueError(f"This layer has {self.capsules} capsules. Received in the call: {capsules}")
        parents = (poses.shape[0], self.capsules or capsules or children)
        pose = (*parents, *rows_of(poses.shape), self.dim)
        specs = [keras.KerasTensor(shape, self.compute_dtype) for shape in (pose, parents, pose)]
        if return_couplings:
            specs.append(keras.KerasTensor((parents[0], children, parents[1]), self.variable_dtype))
        return tuple(specs)

    def compute_output_shape(self, poses_shape, scores_shape=None):
        parents = (poses_shape[0], self.capsules or children_of(poses_shape))
        pose = (*parents, *rows_of(poses_shape), self.dim)
        return pose, parents, pose

    def get_config(self):
        named = isinstance(self.density, str)
        return {
            **super().get_config(),
            "capsules": self.capsules,
            "dim": self.dim,
            "iterations": self.iterations,
            "sharing": self.sharing,
            "single_beta": self.single_beta,
            "density": self.density if named else keras.saving.serialize_keras_object(self.density),
            "symmetry_breaking": self.symmetry_breaking,
            "votes": self.votes,
            "chunk": self.chunk,
            "epsilon": self.epsilon,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer)
            if self.kernel_initializer
            else None,
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "beta_initializer": keras.initializers.serialize(self.beta_initializer),
            "kernel_regularizer": keras.regularizers.serialize(self.kernel_regularizer),
        }
