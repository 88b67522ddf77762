"""EM routing: parents are Gaussians that are fitted to the votes (Hinton, Sabour, Frosst 2018)."""

import math
import numbers
from collections.abc import Callable, Sequence

from keras import ops

from tf_capsules.hints import Tensor
from tf_capsules.routing.precision import at_least_float32
from tf_capsules.routing.votes import Votes, softmax

NORMALIZATIONS = ("data", "min_max")


def em_routing(
    votes: Votes,
    iterations: int = 3,
    *,
    beta_u: Tensor | None = None,
    beta_a: Tensor | None = None,
    inverse_temperature: float | Sequence[float] = 0.01,
    normalization: float | str = 1.0,
    gradients: str = "all",
    epsilon: float = 1e-9,
    variance_floor: float = 1e-9,
    competition: Callable | None = None,
    start: tuple | None = None,
    return_couplings: bool = False,
    return_states: bool = False,
):
    """Routes by expectation-maximization: a parent is active where describing the votes by it is cheaper than not to.

    Source: Hinton et al. 2018, procedure 1; the schedule of the inverse temperature: the authors' answers to readers;
    "data": the best known open implementation; "min_max", which goes with inverse temperatures (1, 2, 3, ...): Li et
    al. 2018, released code. With a parent's share S_j of the data, `sum_i R_ij a_i`, and the entries k of a pose, its
    cost is `sum_k (beta_u_j + log(variance_jk) / 2) S_j` and its score `lambda (beta_a_j - cost_j)`, whose logistic
    function is its activation. The E-step is in the log domain, and its result after the last M-step is not computed.

    Args:
        votes: what answers for the votes (`tf_capsules.routing.votes`), with the children's activations, which are not
            negative; 0 for a child that is masked.
        iterations: at least 1; 1 leaves the couplings uniform.
        beta_u, beta_a: cost of a unit of data for each entry of a pose, and benefit of being active, (parents,); None:
            zeros.
        inverse_temperature: lambda. A number is what the authors' schedule `number * (1 - 0.95 ** t)` tends to, t from
            1; or as many numbers as iterations.
        normalization: a factor on the cost; "data": the factor `100 parents / children`, parents and children being
            the types that compete in one place and the children of one parent; "min_max": the costs of a sample's
            parents are brought to [-5, 5].
        gradients: "all": through all iterations; "last": only through the last M-step, given its couplings.
        epsilon: added to each parent's share, and to the range of the costs, where they divide.
        variance_floor: added to each variance.
        competition: None: all parents compete for a child; or a function from logits to couplings, both (batch,
            children, parents) or (batch, children, 1), such as `Windows.couple`, where a batch is of parent positions.
        start: None; or what there is after the first M-step, as with `return_states`, so that only the other iterations
            are left.
        return_couplings: also return the couplings R of the last M-step.
        return_states: return, in place of all else, what there is after each M-step: scores, means, less the origin of
            the votes, and variances.

    Returns:
        Means, which are the parents' poses, (batch, parents, *pose); activations and scores, which are their logits,
        (batch, parents); variances, shaped like the poses; with `return_couplings` also (batch, children, parents),
        which sum to 1 over the parents that compete.

    Raises:
        ValueError: an argument out of its range.
    """
    check_em_routing(iterations, inverse_temperature, normalization, gradients, epsilon, variance_floor)
    temperature = temperatures(inverse_temperature, iterations)
    beta_u, beta_a = (
        0.0 if beta is None else ops.cast(at_least_float32(beta), votes.dtype) for beta in (beta_u, beta_a)
    )

    def couplings(votes, *state):
        return couple(em_logits(votes, *state), competition)

    def fixed_couplings(votes, *state):
        return ops.stop_gradient(couplings(votes, *state))

    def parents(temperature, couplings, *state):
        near = state[1] if state else None
        masses, means, variances = votes.moments(couplings, *state, epsilon=epsilon, near=near, by_group=False)
        variances = variances + variance_floor
        costs = masses[:, 0] * costs_of_a_unit(beta_u, variances)
        return temperature * (beta_a - _normalize(costs, normalization, votes, epsilon)), means, variances

    uniform = uniform_couplings(votes, competition)
    states = [parents(temperature[0], uniform) if start is None else start]
    for step in range(1, iterations):
        if gradients == "last":
            states[-1] = tuple(map(ops.stop_gradient, states[-1]))
        states.append(parents(temperature[step], couplings if gradients == "all" else fixed_couplings, *states[-1]))
    if return_states:
        return states
    scores, means, variances = states[-1]
    results = means + votes.origin, ops.sigmoid(scores), scores, variances
    if not return_couplings:
        return results
    last = uniform if iterations == 1 else couplings(votes, *states[-2])
    return *results, ops.broadcast_to(last, (votes.batch, votes.children, votes.parents))


def costs_of_a_unit(beta_u, variances):
    """What a unit of data costs a parent over all entries of its pose, (batch, parents)."""
    entries = tuple(range(2, len(variances.shape)))
    return math.prod(variances.shape[2:]) * beta_u + 0.5 * ops.sum(ops.log(variances), axis=entries)


def em_logits(votes, scores, means, variances):
    """What the E-step normalises, (batch, children, parents): log densities of the votes plus log activations."""
    entries = tuple(range(2, len(means.shape)))
    constants = -ops.softplus(-scores) - 0.5 * ops.sum(ops.log(variances), axis=entries)
    return votes.log_density(means, 1 / variances, constants)


def couple(logits, competition=None):
    """Couplings of logits, normalised over all parents or as `competition` does."""
    return softmax(logits, axis=-1) if competition is None else competition(logits)


def uniform_couplings(votes, competition=None):
    """Couplings of the first M-step, (1 or batch, children, 1), the same for all parents that compete."""
    nothing = ops.zeros((1 if competition is None else votes.batch, votes.children, 1), votes.dtype)
    return couple(nothing, competition) / ops.cast(votes.parents, votes.dtype)


def temperatures(inverse_temperature, iterations):
    """The inverse temperature of each iteration, for a number by the authors' schedule."""
    if isinstance(inverse_temperature, numbers.Real):
        return [inverse_temperature * (1 - 0.95**step) for step in range(1, iterations + 1)]
    return list(inverse_temperature)


def cost_factor(normalization, parents, children, dtype):
    """The factor on the cost that a number or "data" means."""
    if normalization != "data":
        return normalization
    return 100 * ops.cast(parents, dtype) / ops.cast(children, dtype)


def _normalize(costs, normalization, votes, epsilon):
    """Costs (batch, parents), scaled or shifted as `normalization` says."""
    if normalization == "min_max":
        low, high = ops.min(costs, axis=-1, keepdims=True), ops.max(costs, axis=-1, keepdims=True)
        return 10 * (costs - low) / (high - low + epsilon) - 5
    return cost_factor(normalization, votes.parents, votes.children, votes.dtype) * costs


def check_em_routing(iterations, inverse_temperature, normalization, gradients, epsilon, variance_floor):
    """Raises a ValueError for arguments that `em_routing` can't work with."""
    if isinstance(iterations, bool) or not isinstance(iterations, int) or iterations < 1:
        raise ValueError(f"`iterations` must be a whole number of at least 1. Received: {iterations!r}")
    several = isinstance(inverse_temperature, (list, tuple))
    if not all(map(_positive, inverse_temperature if several else [inverse_temperature])):
        raise ValueError(f"`inverse_temperature` must be above 0. Received: {inverse_temperature!r}")
    if several and len(inverse_temperature) != iterations:
        raise ValueError(
            f"`inverse_temperature` must be a number, or one for each of the {iterations} iterations. "
            f"Received: {inverse_temperature!r}"
        )
    if normalization not in NORMALIZATIONS and not _positive(normalization):
        raise ValueError(
            f"`normalization` must be a number above 0, {' or '.join(map(repr, NORMALIZATIONS))}. "
            f"Received: {normalization!r}"
        )
    if gradients not in ("all", "last"):
        raise ValueError(f'`gradients` must be "all" or "last". Received: {gradients!r}')
    for name, value in (("epsilon", epsilon), ("variance_floor", variance_floor)):
        if not _positive(value):
            raise ValueError(f"`{name}` must be above 0. Received: {value!r}")


def _positive(value):
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and 0 < value < math.inf
