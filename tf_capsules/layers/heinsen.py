"""Routing by net benefit and net cost as a layer."""

from collections.abc import Callable

import keras
from keras import ops

from tf_capsules.argument_types import Constraint, Initializer, Regularizer
from tf_capsules.arguments import positive_int
from tf_capsules.layers.arguments import check_memory, one_of, positive_int_or_none, takes_xla, truth_value
from tf_capsules.layers.base import RoutingLayer
from tf_capsules.layers.configured import cloned
from tf_capsules.layers.connections import check_per_child, children_of, flatten_grid, masked, rows_of
from tf_capsules.routing.net_benefit import check_heinsen_routing, heinsen_routing
from tf_capsules.routing.votes import plan


@keras.saving.register_keras_serializable("tf_capsules")
class HeinsenRouting(RoutingLayer):
    """Fully connected capsules, routed by net benefit and net cost.

    A vote is `x_i W_ij + B_ij`; a child pose that is a matrix keeps its rows. Routing runs in at least float32.

    With `capsules=None` each call gives the number of parents, and parents share kernel, bias and betas. In the paper's
    form (section 2.1.1) all parents are then equal. The author's later code adds a learned bias times
    `linspace(-1, 1, capsules)`: poses then differ by a shift, couplings stay uniform, and logits and variances stay
    equal. With `symmetry_breaking="all"` (ours) kernel and betas vary in the same way, and parents compete.

    Source: Heinsen 2019, section 2 and algorithm 1.

    Args:
        capsules: number of parents; None: it is given with each call.
        dim: columns of a parent's pose; for vectors the number of entries.
        iterations: routing iterations, at least 1; 1 leaves the couplings uniform.
        sharing: which children share kernel, bias and betas: "none" (a fixed number of children); "positions": all
            children of a type, which needs poses on a grid; "all": all children, in any number.
        single_beta: one beta is both the benefit of using and the cost of ignoring (the author's code).
        density: "gaussian", "soft_k_means" (the author's code), or a function of (votes, means, variances) that returns
            log densities (batch, children, parents), up to a constant. With a function votes are stored.
        symmetry_breaking: None (the paper), "bias" (the author's code) or "all" (ours); only for `capsules=None`.
        votes_memory: "auto": votes are stored if every other form is larger, and in calls with fewer than 8 children,
            whose variances would otherwise lose digits; "store": always, best where a mask or the logits leave only a
            few of many children; "recompute": never, which needs sharing.
        children_per_chunk: about how many children are routed at a time, to bound the memory; None: all. A
            type with at least so many is routed in one piece. It needs shared transformations, and
            neither "store" nor a function as density. Where "auto" stores votes it has no effect. Elsewhere TensorFlow
            can use neither XLA nor gradients of second order; likewise for `capsules=None` with "auto" and an unknown
            number of children.
        epsilon: added to each parent's mass (the sum of the shares of data that it uses) and to each variance.
        kernel_initializer: None: normal of standard deviation 1 / (columns of a child's pose).
        bias_initializer, beta_initializer (of all betas), kernel_regularizer, ...: of the weights that they name.

    Call arguments:
        poses: (batch, children, [rows,] d), or on a grid (batch, height, width, types, [rows,] d); always finite.
        logits: activation logits of the children, shaped like `poses` without their pose axes. Plus infinity stands for
            an activation of exactly 1, minus infinity for 0. None: all activations are 1.
        mask: shaped like `logits`, true for the children that take part.
        capsules: number of parents in this call, for a layer with `capsules=None`; None: as many as children.
        return_couplings: also return the coupling coefficients of the last iteration, without the activations and the
            mask: those of every child sum to 1 over the parents.

    Returns:
        Poses (batch, capsules, [rows,] dim); activation logits (batch, capsules); variances, shaped like the poses;
        with `return_couplings` also the couplings (batch, children, capsules).

    Raises:
        ValueError: arguments out of range, poses of another rank, unknown sizes where needed, `capsules` given twice.

    Example:
        >>> poses, logits, variances = HeinsenRouting(5, 4, sharing="all")(np.zeros((2, 72, 4, 4)))
        >>> poses.shape, logits.shape
        (TensorShape([2, 5, 4, 4]), TensorShape([2, 5]))
    """

    answers = ("poses", "logits", "variances")
    older_names = {"chunk": "children_per_chunk"}
    capsules_by_call = True

    def __init__(
        self,
        capsules: int | None,
        dim: int,
        iterations: int = 3,
        sharing: str = "none",
        single_beta: bool = False,
        density: str | Callable = "gaussian",
        symmetry_breaking: str | None = "bias",
        votes_memory: str = "auto",
        children_per_chunk: int | None = None,
        epsilon: float = 1e-5,
        kernel_initializer: Initializer = None,
        bias_initializer: Initializer = "zeros",
        beta_initializer: Initializer = "zeros",
        kernel_regularizer: Regularizer = None,
        bias_regularizer: Regularizer = None,
        beta_regularizer: Regularizer = None,
        kernel_constraint: Constraint = None,
        bias_constraint: Constraint = None,
        beta_constraint: Constraint = None,
        **kwargs,
    ):
        super().__init__(capsules, dim, votes_memory, sharing, **kwargs)
        check_heinsen_routing(iterations, density, epsilon)
        self.iterations = positive_int("iterations", iterations)
        self.single_beta = truth_value("single_beta", single_beta)
        self.density = density
        self.symmetry_breaking = one_of("symmetry_breaking", symmetry_breaking, (None, "bias", "all"))
        self.children_per_chunk = positive_int_or_none("children_per_chunk", children_per_chunk)
        self.epsilon = epsilon
        needs_votes = "a density that is a function" if callable(density) else None
        check_memory(votes_memory, children_per_chunk, needs_votes, sharing)
        # XLA can't choose the form of the votes in each call if the number of parents is unknown, too.
        self._xla = children_per_chunk is None and (capsules is not None or votes_memory != "auto")
        self.supports_jit = takes_xla(self._xla)
        self._set_weight_options(locals())

    def build(self, poses_shape, logits_shape=None):
        groups, rows = self._group_children(poses_shape), rows_of(poses_shape)
        parents, columns = self.capsules or 1, poses_shape[-1]
        initializer = self.kernel_initializer or keras.initializers.RandomNormal(stddev=1 / columns)
        self._add_kernel((groups,), poses_shape, initializer)
        self.bias = self.vote_bias = self._add("bias", (groups, parents, *rows, self.dim))
        self.beta_use = self._add("beta_use", (groups, parents), options="beta")
        self.beta_ignore = self.beta_use
        if not self.single_beta:
            self.beta_ignore = self._add("beta_ignore", (groups, parents), cloned(self.beta_initializer), "beta")
        self.breaking = {}
        if self.capsules is None and self.symmetry_breaking is not None:
            self.breaking["bias"] = self._add("bias_breaking", (*rows, self.dim), "zeros", "bias")
        if self.capsules is None and self.symmetry_breaking == "all":
            self.breaking["kernel"] = self._add("kernel_breaking", (columns, self.dim), cloned(initializer), "kernel")
            self.breaking["beta_use"] = self._add("beta_use_breaking", (), "zeros", "beta")
            self.breaking["beta_ignore"] = self.breaking["beta_use"]
            if not self.single_beta:
                self.breaking["beta_ignore"] = self._add("beta_ignore_breaking", (), "zeros", "beta")
        memory = "store" if callable(self.density) else self.votes_memory
        shape = (rows, columns, self.dim, self.capsules)
        self.plan = plan.for_moments(memory, self.sharing != "none", *shape, fewest=plan.FEWEST_FOR_HEINSEN)
        known = self.children_per_chunk is None and children_of(poses_shape) is not None
        self.supports_jit = takes_xla(self._xla or known or self.plan.stores(children_of(poses_shape)))
        super().build(poses_shape)

    def build_from_config(self, config):
        shapes = config.get("shapes_dict", {})
        if "scores_shape" in shapes:  # the name of `logits` in files of earlier versions
            shapes["logits_shape"] = shapes.pop("scores_shape")
        super().build_from_config(config)

    def __call__(self, *args, **kwargs):
        if "scores" in kwargs:  # the name of `logits` in functional models of earlier versions
            kwargs["logits"] = kwargs.pop("scores")
        return super().__call__(*args, **kwargs)

    def make_votes(self, poses, activations=None, stored=None, capsules=None):
        weights = self._for_parents(self.capsules or capsules or ops.shape(flatten_grid(poses))[1])
        return self._hold(stored, poses, weights["kernel"], weights["bias"], activations)

    def call(self, poses, logits=None, mask=None, capsules=None, return_couplings=False, poses_mask=None):
        mask = poses_mask if mask is None else mask
        self._check_call(poses, logits, mask, capsules)
        batch, children = ops.shape(flatten_grid(poses))[:2]
        activations = None if logits is None else ops.sigmoid(ops.cast(logits, self.routing_dtype))
        activations = masked(activations, mask, (batch, children), self.routing_dtype)
        weights = self._for_parents(self.capsules or capsules or children)

        options = dict(density=self.density, epsilon=self.epsilon, return_couplings=return_couplings)
        options |= {name: weights[name] for name in ("beta_use", "beta_ignore")}

        def route(stored):
            return heinsen_routing(self.make_votes(poses, activations, stored, capsules), self.iterations, **options)

        logits, parents, variances, *couplings = self._route(route, poses)
        return self._returned([parents, logits, variances], couplings)

    def _for_parents(self, capsules):
        """Kernel, bias and betas by name; the parent axis of each has size `capsules`."""
        weights = {name: getattr(self, name) for name in ("kernel", "bias", "beta_use", "beta_ignore")}
        if self.capsules is not None:
            return weights
        steps = ops.cast(ops.arange(capsules), self.routing_dtype)
        line = 2 * steps / ops.cast(ops.maximum(capsules - 1, 1), self.routing_dtype) - 1
        for name, weight in weights.items():
            along = ops.reshape(line, (-1,) + (1,) * (len(weight.shape) - 2))
            weights[name] = weight + along * self.breaking.get(name, 0.0)
        return weights

    def _check_call(self, poses, logits=None, mask=None, capsules=None, **others):
        check_per_child(poses, logits=logits, mask=mask)
        if capsules is not None and self.capsules is not None:
            raise ValueError(f"`capsules` is {self.capsules} by construction. Received in the call: {capsules}")
        positive_int_or_none("capsules", capsules)

    def get_config(self):
        config = super().get_config()
        if callable(self.density):
            config["density"] = keras.saving.serialize_keras_object(self.density)
        return config

    @classmethod
    def from_config(cls, config):
        if isinstance(config.get("density"), dict):
            config = config | {"density": keras.saving.deserialize_keras_object(config["density"])}
        return super().from_config(config)
