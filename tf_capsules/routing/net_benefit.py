"""Routing by net benefit and net cost (Heinsen 2019)."""

from collections.abc import Callable

from keras import ops

from tf_capsules.argument_types import Tensor
from tf_capsules.arguments import positive_int, positive_number
from tf_capsules.routing.couplings import softmax
from tf_capsules.routing.precision import at_least_float32
from tf_capsules.routing.votes import Votes

DENSITIES = ("gaussian", "soft_k_means")


def heinsen_routing(
    votes: Votes,
    iterations: int = 3,
    *,
    beta_use: Tensor | None = None,
    beta_ignore: Tensor | None = None,
    density: str | Callable = "gaussian",
    epsilon: float = 1e-5,
    return_couplings: bool = False,
):
    """Routes by net benefit: a parent's activation logit is the benefit of the data it uses less the cost of the rest.

    A child's activation is the share of its data that is routed. Gradients flow through all iterations.

    Source: Heinsen 2019, section 2 and algorithm 1; `epsilon`, single beta, soft k-means: the author's code.

    Args:
        votes: `tf_capsules.routing.votes.Votes` with the children's activations.
        iterations, epsilon: see `tf_capsules.layers.HeinsenRouting`.
        beta_use, beta_ignore: net benefit of a unit of data used and net cost of a unit ignored, (groups, parents);
            None: zeros. The same array twice is a single beta.
        density: "gaussian"; "soft_k_means"; or a function of (votes, means, variances), (batch, children, parents,
            *pose) and twice (batch, parents, *pose), that returns log densities (batch, children, parents), up to a
            constant. A function needs `StoredVotes`.
        return_couplings: also return the coupling coefficients of the last iteration.

    Returns:
        Activation logits (batch, parents); means, which are the parents' poses, and variances, both
        (batch, parents, *pose); with `return_couplings` also the couplings (batch, children, parents), which sum to 1
        over the parents.

    Raises:
        ValueError: iterations below 1, an unknown density, or an epsilon out of range.
    """
    check_heinsen_routing(iterations, density, epsilon)
    pose_axes = tuple(range(2, 2 + len(votes.pose_shape)))
    total = ops.sum(votes.by_group(votes.activations), axis=1)  # of each group's children
    use, ignore = (0.0 if x is None else ops.cast(x, votes.dtype) for x in (beta_use, beta_ignore))

    def couplings(votes, activation_logits, means, variances):
        prior = -ops.softplus(-activation_logits)
        if callable(density):
            logits = density(votes.tensor(), means + votes.origin, variances) + prior[:, None]
        elif density == "gaussian":
            constants = prior - 0.5 * ops.sum(ops.log(variances), axis=pose_axes)
            logits = votes.log_density(means, 1 / variances, constants)
        else:
            logits = votes.log_density(means, ops.full_like(variances, 2.0), prior)
        return softmax(logits, axis=-1)

    def parents(couplings, *state):
        masses, means, variances = votes.moments(couplings, *state, epsilon=epsilon)
        # Benefit of the data used less cost of the data ignored, summed over the groups.
        logits = ops.sum(use * masses - ignore * (total[..., None] - masses), axis=1)
        return logits, means, variances + epsilon

    uniform = ops.ones((1, votes.children, 1), votes.dtype) / ops.cast(votes.parents, votes.dtype)
    before, state = None, parents(uniform)
    for _ in range(iterations - 1):
        before, state = state, parents(couplings, *state)
    activation_logits, means, variances = state
    results = activation_logits, means + votes.origin, variances
    if not return_couplings:
        return results
    last = uniform if before is None else couplings(votes, *before)
    return *results, ops.broadcast_to(last, (votes.batch, votes.children, votes.parents))


def check_heinsen_routing(iterations: int, density: str | Callable, epsilon: float):
    """Raises a ValueError for arguments that `heinsen_routing` can't work with."""
    positive_int("iterations", iterations)
    if not callable(density) and density not in DENSITIES:
        raise ValueError(f"`density` must be one of {', '.join(DENSITIES)}, or a function. Received: {density!r}")
    positive_number("epsilon", epsilon)


def mask_logits(mask: Tensor):
    """The logits whose logistic function is the mask: `log(x / (1 - x))`, infinite at 0 and 1, without gradient.

    Source: Heinsen 2019, section 4.1; a mask between 0 and 1 comes from mixing examples.

    Args:
        mask: array of numbers in [0, 1], or of bools.

    Returns:
        An array of the mask's shape, in at least float32.

    Example:
        >>> [float(x) for x in mask_logits([0.0, 0.5, 1.0])]
        [-inf, 0.0, inf]
    """
    mask = ops.stop_gradient(at_least_float32(mask))
    inside = ops.logical_and(mask > 0, mask < 1)
    between = ops.where(inside, mask, 0.5)
    infinite = ops.where(mask > 0.5, float("inf"), float("-inf"))
    return ops.where(inside, ops.log(between) - ops.log1p(-between), ops.cast(infinite, mask.dtype))
