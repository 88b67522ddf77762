"""Options of EM routing: inverse temperatures, the normalization of costs, and checks."""

import math
import numbers

from keras import ops

from tf_capsules.routing.arguments import is_positive, one_of, positive_int, positive_number


def temperatures(inverse_temperature, iterations):
    """The inverse temperature of each iteration; a number stands for the authors' schedule."""
    if isinstance(inverse_temperature, numbers.Real):
        return [inverse_temperature * (1 - 0.95**step) for step in range(1, iterations + 1)]
    return list(inverse_temperature)


def cost_factor(normalization, parents, children, dtype):
    """The factor on the cost, for a `normalization` that is a number or "data"."""
    if normalization != "data":
        return normalization
    return 100 * ops.cast(parents, dtype) / ops.cast(children, dtype)


def normalized(costs, normalization, votes, epsilon):
    """Costs (batch, parents), normalized."""
    if normalization == "min_max":
        # Without initial values Keras refuses the extremes of an empty batch.
        low = ops.min(costs, axis=-1, keepdims=True, initial=math.inf)
        high = ops.max(costs, axis=-1, keepdims=True, initial=-math.inf)
        return 10 * (costs - low) / (high - low + epsilon) - 5
    return cost_factor(normalization, votes.parents, votes.children, votes.dtype) * costs


def check_em_routing(iterations, inverse_temperature, normalization, gradients, epsilon, variance_floor):
    """Raises a ValueError for arguments that `em_routing` can't work with."""
    positive_int("iterations", iterations)
    several = isinstance(inverse_temperature, (list, tuple))
    lambdas = inverse_temperature if several else [inverse_temperature] * iterations
    if len(lambdas) != iterations or not all(map(is_positive, lambdas)):
        raise ValueError(
            f"`inverse_temperature` must be a number, or one for each of the {iterations} iterations, above 0. "
            f"Received: {inverse_temperature!r}"
        )
    if normalization not in ("data", "min_max") and not is_positive(normalization):
        raise ValueError(f"`normalization` must be a number above 0, 'data' or 'min_max'. Received: {normalization!r}")
    one_of("gradients", gradients, ("all", "last"))
    positive_number("epsilon", epsilon)
    positive_number("variance_floor", variance_floor)
