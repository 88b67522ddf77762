"""EM routing: parents are Gaussians that are fitted to the votes (Hinton, Sabour, Frosst 2018)."""

import math
import numbers
from collections.abc import Callable, Sequence

from keras import ops

from tf_capsules.argument_types import Tensor
from tf_capsules.arguments import is_positive, one_of, positive_int, positive_number
from tf_capsules.routing.couplings import softmax
from tf_capsules.routing.votes import Votes


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
    children: Tensor | None = None,
    return_couplings: bool = False,
):
    """Routes by expectation-maximization: a parent is active if describing its votes costs less than `beta_a`.

    A parent takes the mass `S_j = sum_i R_ij a_i` of its children. Its cost is
    `sum_k (beta_u_j + log(variance_jk) / 2) S_j`, over the entries k of a pose, times the `normalization`. Its
    activation logit is `lambda (beta_a_j - cost_j)`. The E-step is computed in the log domain. No E-step follows the
    last M-step.

    Source: Hinton et al. 2018, procedure 1; the schedule of the inverse temperature: the authors' answers to readers;
    "data": the open implementation of Gritzman 2019 (IBM); "min_max", which goes with inverse temperatures
    (1, 2, 3, ...): Li et al. 2018, released code.

    Args:
        votes: `tf_capsules.routing.votes.Votes` with the children's activations, not negative; 0 where masked.
        beta_u, beta_a: cost of a unit of mass for each entry of a pose, benefit of being active, (parents,); None: 0.
        iterations, inverse_temperature (lambda), normalization, gradients, epsilon, variance_floor: see
            `tf_capsules.layers.EMRouting`. In windows the parents that "data" counts are the types at one position,
            and the children those of one window.
        competition: from logits to couplings, both (batch, children, parents or 1), such as `Windows.couple` for a
            batch of parent positions; None: all parents compete for a child.
        children: the number that `normalization="data"` divides by, (batch, 1), where some are masked; None: all.
        return_couplings: also return the couplings R of the last M-step.

    Returns:
        Means, which are the parents' poses, (batch, parents, *pose); activations and activation logits, (batch,
        parents); variances, shaped like the poses; with `return_couplings` also the couplings (batch, children,
        parents), which sum to 1 over the parents that compete.

    Raises:
        ValueError: an argument out of its range.
    """
    check_em_routing(iterations, inverse_temperature, normalization, gradients, epsilon, variance_floor)
    competition = competition or softmax
    children = votes.children if children is None else children
    normalization = cost_factor(normalization, votes.parents, children, votes.dtype)
    options = dict(normalization=normalization, gradients=gradients, epsilon=epsilon, variance_floor=variance_floor)
    lambdas = temperatures(inverse_temperature, iterations)
    states = em_states(votes, lambdas, beta_u=beta_u, beta_a=beta_a, competition=competition, **options)
    logits, means, variances = states[-1]
    results = means + votes.origin, ops.sigmoid(logits), logits, variances
    if not return_couplings:
        return results
    before = states[-2:-1]  # none before the first iteration
    couplings = e_step(votes, *before[0], competition=competition) if before else uniform_couplings(votes, competition)
    return *results, ops.broadcast_to(couplings, (votes.batch, votes.children, votes.parents))


def em_states(votes, lambdas, *, beta_u, beta_a, normalization, epsilon, variance_floor, competition, gradients="all"):
    """The parents after each M-step: activation logits, means relative to the origin of the votes, and variances.

    Arguments: see `em_routing`. `lambdas`: inverse temperatures; `normalization`: "min_max" or a factor.
    """
    beta_u, beta_a = (0.0 if x is None else ops.cast(x, votes.dtype) for x in (beta_u, beta_a))

    def couplings_of(votes, *state):
        """The E-step, which `votes.moments` calls: for all votes, or for the votes of one chunk after the other."""
        found = e_step(votes, *state, competition=competition)
        return found if gradients == "all" else ops.stop_gradient(found)

    def m_step(inverse_temperature, couplings, *state):
        near = state[1] if state else None
        masses, means, variances = votes.moments(couplings, *state, epsilon=epsilon, near=near, masses_by_group=False)
        variances = variances + variance_floor
        costs = masses[:, 0] * costs_of_a_unit(beta_u, variances)
        if isinstance(normalization, str):
            # Without initial values Keras refuses the extremes of an empty batch.
            low = ops.min(costs, axis=-1, keepdims=True, initial=math.inf)
            high = ops.max(costs, axis=-1, keepdims=True, initial=-math.inf)
            costs = 10 * (costs - low) / (high - low + epsilon) - 5
        else:
            costs = normalization * costs
        return inverse_temperature * (beta_a - costs), means, variances

    states = [m_step(lambdas[0], uniform_couplings(votes, competition))]
    for inverse_temperature in lambdas[1:]:
        states.append(m_step(inverse_temperature, couplings_of, *states[-1]))
    return states


def e_step(votes, logits, means, variances, *, competition):
    """The couplings for these parents, (batch, children, parents), of log activation plus log density."""
    constants = -ops.softplus(-logits) - half_log_determinant(variances)
    return competition(votes.log_density(means, 1 / variances, constants))


def costs_of_a_unit(beta_u, variances):
    """A parent's cost of a unit of mass, over all entries of its pose, (batch, parents)."""
    return math.prod(variances.shape[2:]) * beta_u + half_log_determinant(variances)


def half_log_determinant(variances):
    """`sum_k log(variance_k) / 2` over the entries of a pose, (batch, parents)."""
    return 0.5 * ops.sum(ops.log(variances), axis=tuple(range(2, len(variances.shape))))


def uniform_couplings(votes, competition):
    """Couplings of the first M-step, (batch, children, 1), equal for all parents that compete."""
    return competition(ops.zeros((votes.batch, votes.children, 1), votes.dtype)) / ops.cast(votes.parents, votes.dtype)


def temperatures(inverse_temperature, iterations):
    """The inverse temperature of each iteration."""
    if isinstance(inverse_temperature, numbers.Real):
        return [inverse_temperature * (1 - 0.95**step) for step in range(1, iterations + 1)]
    return list(inverse_temperature)


def cost_factor(normalization, parents, children, dtype):
    """The factor on the cost, for a `normalization` that is a number or "data"; "min_max" stays."""
    if normalization != "data":
        return normalization
    return 100 * ops.cast(parents, dtype) / ops.cast(children, dtype)


def check_em_routing(iterations, inverse_temperature, normalization, gradients, epsilon, variance_floor):
    """Raises a ValueError for arguments that `em_routing` can't work with."""
    positive_int("iterations", iterations)
    several = isinstance(inverse_temperature, (list, tuple))
    lambdas = inverse_temperature if several else [inverse_temperature] * iterations
    form = f"a number, or one for each of the {iterations} iterations, above 0"
    if len(lambdas) != iterations or not all(map(is_positive, lambdas)):
        raise ValueError(f"`inverse_temperature` must be {form}. Received: {inverse_temperature!r}")
    for value in lambdas:
        positive_number("inverse_temperature", value)
    if normalization not in ("data", "min_max"):
        positive_number("normalization", normalization, "a number above 0, 'data' or 'min_max'")
    one_of("gradients", gradients, ("all", "last"))
    positive_number("epsilon", epsilon)
    positive_number("variance_floor", variance_floor)
