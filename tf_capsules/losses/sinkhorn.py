"""The Sinkhorn divergence of two batches of features, by entropic optimal transport."""

import keras
from keras import ops

from tf_capsules.argument_types import Dtype, Tensor
from tf_capsules.arguments import positive_number
from tf_capsules.layers.arguments import one_of, positive_int, truth_value
from tf_capsules.layers.connections import alike
from tf_capsules.losses.base import Loss, two_features
from tf_capsules.routing.precision import at_least_float32
from tf_capsules.routing.squash import TINY, length


def transport_cost(x: Tensor, y: Tensor, cost: str = "cosine"):
    """The cost of carrying each sample of x to each sample of y.

    Source: Li et al. 2018, section 3.2, "cosine": `1 - <x_i, y_j> / (|x_i| |y_j|)`; "l2", of their ablation:
    `|x_i - y_j|`, which needs an array of all differences, (samples, other samples, features).

    Args:
        x: features (..., samples, features).
        y: features (..., other samples, features).
        cost: "cosine" or "l2".

    Returns:
        The costs (..., samples, other samples), in at least float32. With "cosine" a sample of zeros costs 1.

    Raises:
        ValueError: an unknown cost, or features that don't fit each other.

    Example:
        >>> costs = transport_cost(np.array([[3.0, 4.0]]), np.array([[3.0, 4.0], [-4.0, 3.0]]))
        >>> [round(float(cost), 4) for cost in costs[0]]
        [0.0, 1.0]
    """
    one_of("cost", cost, ("cosine", "l2"))
    x, y = at_least_float32(x), at_least_float32(y)
    leading = zip(x.shape[:-2], y.shape[:-2], strict=False)
    fits = len(x.shape) == len(y.shape) > 1 and x.shape[-1] == y.shape[-1]
    if not fits or any(None not in pair and 1 not in pair and pair[0] != pair[1] for pair in leading):
        received = f"Received arrays of shape {tuple(x.shape)} and {tuple(y.shape)}."
        raise ValueError(f"Transport is between features (samples, features) of the same length. {received}")
    if cost == "l2":
        differences = ops.expand_dims(x, -2) - ops.expand_dims(y, -3)
        return ops.sqrt(ops.sum(ops.square(differences), axis=-1) + TINY)
    return 1 - ops.einsum("...if,...jf->...ij", x / length(x, keepdims=True), y / length(y, keepdims=True))


def sinkhorn(
    cost: Tensor, epsilon: float = 1.0, iterations: int = 10, rows: Tensor | None = None, columns: Tensor | None = None
):
    """The entropic transport plan of Sinkhorn's iterations, in the log domain: any `epsilon` above 0 will do.

    Source: Li et al. 2018, section 3.2; constants and order of the updates (rows first) are those of their released
    code. So columns have exactly their mass, and rows come closer to theirs with each iteration.

    Args:
        cost: (..., samples, other samples).
        epsilon: weight of the plan's entropy: the larger, the more even the plan.
        iterations: number of updates of rows and columns.
        rows: masses (samples,) that sum to 1, and may be 0; None: equal masses.
        columns: likewise, (other samples,).

    Returns:
        The plan (..., samples, other samples), in at least float32: nonnegative, of sum 1.

    Raises:
        ValueError: an epsilon that is not above 0 in float32, iterations below 1, costs or masses of other shapes.

    Example:
        >>> cost = np.array([[0.1, 0.7, 0.4], [0.9, 0.2, 0.5], [0.3, 0.6, 0.0]])
        >>> plan = sinkhorn(cost)
        >>> round(float(ops.sum(plan * cost)), 6), [round(float(mass), 4) for mass in ops.sum(plan, axis=0)]
        (0.349274, [0.3333, 0.3333, 0.3333])
    """
    iterations = positive_int("iterations", iterations)
    kernel = -at_least_float32(cost) / positive_number("epsilon", epsilon)
    if len(kernel.shape) < 2:
        raise ValueError(f"`cost` is (..., samples, other samples). Received shape {tuple(kernel.shape)}.")
    rows, columns = _log_masses(rows, kernel[..., 0]), _log_masses(columns, kernel[..., 0, :])
    b = columns
    for _ in range(iterations):
        a = rows - ops.logsumexp(kernel + ops.expand_dims(b, -2), axis=-1)
        b = columns - ops.logsumexp(kernel + ops.expand_dims(a, -1), axis=-2)
    return ops.exp(kernel + ops.expand_dims(a, -1) + ops.expand_dims(b, -2))


def _log_masses(masses, like):
    """Logarithms of masses in the shape and dtype of an array; without masses, even ones along its last axis."""
    if masses is None:
        return ops.zeros_like(like) - ops.log(ops.cast(ops.shape(like)[-1], like.dtype))
    masses = ops.cast(masses, like.dtype)
    if not alike(masses.shape, like.shape[-1:]):
        received = f"Received masses of shape {tuple(masses.shape)}."
        raise ValueError(f"Each of {like.shape[-1]} samples needs a mass. {received}")
    some = masses > 0
    # The logarithm of a mass of 0 is finite here, so that no difference of two of them is NaN.
    return ops.where(some, ops.log(ops.where(some, masses, 1.0)), -1e30) + ops.zeros_like(like)


@keras.saving.register_keras_serializable("tf_capsules")
class SinkhornDivergence(Loss):
    """The Sinkhorn divergence of two batches of features: a cost of optimal transport that is 0 for equal batches.

    Source: Li et al. 2018, section 3.2; `2 W(x, y) - W(x, x) - W(y, y)`, where W is the cost of the transport plan, as
    in their released code. Samples have equal masses, or with sample weights masses in proportion to them: a sample of
    weight 0 takes no part. A sample's value is its part of the divergence. With weights the loss is multiplied by their
    mean, as in any Keras loss. Under a `tf.distribute` strategy each replica compares its own part of the batch.

    Args:
        cost: "cosine" or "l2", see `transport_cost`.
        epsilon, iterations: see `sinkhorn`.
        unbiased: False for `W(x, y)` alone, which is not 0 for equal batches.
        plan_gradient: whether the gradient also goes through the plan; the paper finds it better without.
        name, reduction, dtype: of `keras.losses.Loss`; computed in at least float32.

    Call arguments:
        y_true, y_pred: features (batch, features), y and x.
        sample_weight: None, or (batch,) or (batch, 1), nonnegative; or one number for all.

    Raises:
        ValueError: arguments out of range; features or weights of another shape.

    Example:
        >>> x, y = np.array([[1.0, 2.0], [3.0, 1.0], [0.0, 1.0]]), np.array([[2.0, 1.0], [1.0, 1.0], [1.0, 0.0]])
        >>> round(float(SinkhornDivergence()(y, x)), 5)
        0.31467
    """

    def __init__(
        self,
        cost: str = "cosine",
        epsilon: float = 1.0,
        iterations: int = 10,
        unbiased: bool = True,
        plan_gradient: bool = False,
        name: str | None = "sinkhorn_divergence",
        reduction: str | None = "sum_over_batch_size",
        dtype: Dtype = None,
    ):
        super().__init__(name, reduction, dtype)
        self.cost = one_of("cost", cost, ("cosine", "l2"))
        self.epsilon = float(positive_number("epsilon", epsilon))
        self.iterations = positive_int("iterations", iterations)
        self.unbiased = truth_value("unbiased", unbiased)
        self.plan_gradient = truth_value("plan_gradient", plan_gradient)

    def __call__(self, y_true, y_pred, sample_weight=None):
        # Keras applies sample weights after `call`. The plan needs them as masses, so they also go in with the targets.
        return super().__call__(y_true if sample_weight is None else (y_true, sample_weight), y_pred, sample_weight)

    def call(self, y_true, y_pred):
        y_true, weights = y_true if isinstance(y_true, tuple) else (y_true, None)
        y, x = two_features(self, y_true, y_pred)
        masses = _masses(weights, x)
        # One transport plan or three, stacked on an axis before the samples.
        pairs = ((2, x, y), (-1, x, x), (-1, y, y)) if self.unbiased else ((1, x, y),)
        signs, sources, targets = zip(*pairs, strict=True)
        costs = transport_cost(ops.stack(sources), ops.stack(targets), self.cost)
        fixed = costs if self.plan_gradient else ops.stop_gradient(costs)
        carried = ops.sum(sinkhorn(fixed, self.epsilon, self.iterations, masses, masses) * costs, axis=-2)
        return ops.divide_no_nan(sum(sign * carried[i] for i, sign in enumerate(signs)), masses)


def _masses(weights, features):
    """Weights (batch,), (batch, 1), one number or None as masses (batch,) that sum to 1, or to 0 where all are 0."""
    weights = ops.convert_to_tensor(1.0 if weights is None else weights)
    if len(weights.shape) == 0:  # the same for all
        weights = ops.cast(weights, features.dtype) * ops.ones_like(features[:, 0])
    if tuple(weights.shape[1:]) not in ((), (1,)) or not alike(weights.shape[:1], features.shape[:1]):
        received = f"Received weights of shape {tuple(weights.shape)} for {features.shape[0]} samples."
        raise ValueError(f"The weights of SinkhornDivergence are one a sample, (batch,) or (batch, 1). {received}")
    weights = ops.cast(ops.reshape(weights, (-1,)), features.dtype)
    return ops.stop_gradient(ops.divide_no_nan(weights, ops.sum(weights)))
