"""EM routing in windows.

The gradient is written out, as `votes.py` says. The forward pass keeps the parents after each iteration.
"""

import math
from collections.abc import Sequence

from keras import ops

from tf_capsules.argument_types import Tensor
from tf_capsules.routing.chunks import recomputed_by_examples
from tf_capsules.routing.couplings import softmax
from tf_capsules.routing.em import cost_factor, costs_of_a_unit, e_step, em_states, temperatures, uniform_couplings
from tf_capsules.routing.precision import at_least_float32
from tf_capsules.routing.votes import StoredVotes
from tf_capsules.routing.windowed.votes import make_votes, over_children, over_entries, transposed_votes
from tf_capsules.routing.windowed.windows import Windows

# Axis legend as in `votes.py`; t iteration.


def windowed_em_routing(
    poses: Tensor,
    activations: Tensor,
    kernel: Tensor,
    bias: Tensor | None = None,
    *,
    beta_u: Tensor,
    beta_a: Tensor,
    windows: Windows,
    competes: bool,
    examples_per_chunk: int | None,
    iterations: int = 3,
    inverse_temperature: float | Sequence[float] = 0.01,
    normalization: float | str = 1.0,
    gradients: str = "all",
    epsilon: float = 1e-9,
    variance_floor: float = 1e-9,
):
    """`em_routing` in windows. Its gradient needs the memory of some examples' votes.

    Args:
        poses, kernel, windows, examples_per_chunk: see `windowed_inverted_attention`.
        activations: (batch, height, width, types).
        bias: (children of a window, parents, [rows,] e), or None.
        competes: true: a child's couplings sum to 1 over the parents at all positions; false: at each position.
        others: see `em_routing`; `normalization` is not "min_max".

    Returns:
        As `em_routing` without couplings, for a batch of parent positions.
    """
    shared = [at_least_float32(x) for x in (kernel, beta_u, beta_a, *(() if bias is None else (bias,)))]
    children, parents, _, out = kernel.shape
    rows = tuple(poses.shape[4:-1])
    entries, positions = math.prod((*rows, out)), windows.positions
    lambdas = temperatures(inverse_temperature, iterations)
    factor = cost_factor(normalization, parents, children, shared[0].dtype)
    competition = windows.couple if competes else softmax

    def joined(*arrays):
        """What is known of each parent, (batch, positions, parents, entries of all arrays)."""
        flat = [ops.reshape(x, (-1, positions, parents, math.prod(x.shape[2:]))) for x in arrays]
        return ops.concatenate(flat, axis=-1)

    def split(state):
        """Logits, means and variances of what `joined` returns, each for a batch of parent positions."""
        state = ops.reshape(state, (-1, parents, 2 * entries + 1))
        return state[..., -1], state[..., :entries], state[..., entries:-1]

    def forward(poses, activations, shared):
        kernel, beta_u, beta_a, *bias = shared
        votes = make_votes(windows, poses, kernel, *bias, activations=activations)
        options = dict(normalization=factor, epsilon=epsilon, variance_floor=variance_floor)
        states = em_states(votes, lambdas, beta_u=beta_u, beta_a=beta_a, competition=competition, **options)
        states = [joined(means, variances, logits) for logits, means, variances in states]
        return states[-1], ops.stack(states, axis=1)

    def backward(poses, activations, states, upstream, shared):
        kernel, beta_u, _, *bias = shared
        votes = make_votes(windows, poses, kernel, *bias, activations=activations)
        d_logits, d_means, d_variances = split(upstream)
        states = [split(states[:, t]) for t in range(iterations)]
        # Relative to the last means: multiplied by 1 / variance, far votes and means would cancel and leave rounding.
        origin = states[-1][1]
        votes = StoredVotes(votes.votes - origin[..., None], votes.activations, origin=origin, children_last=True)
        # The padding of a chunk has variances of 0.
        states = [(logits, means - origin, ops.maximum(x, variance_floor)) for logits, means, x in states]
        weights = ops.expand_dims(votes.activations, 1)  # (B, 1, i)

        # Parents first, as in the stored votes: couplings and the like are (B, j, i) from here on.
        couplings = [uniform_couplings(votes, competition)]
        couplings += [e_step(votes, *state, competition=competition) for state in states[:-1]]
        couplings = [ops.transpose(x, (0, 2, 1)) for x in couplings]
        d_activations, d_beta_u, d_beta_a = 0.0, 0.0, 0.0
        left, right = [], []
        for t in reversed(range(iterations)):
            _, means, variances = states[t]
            shares = couplings[t] * weights
            masses = ops.sum(shares, axis=-1)
            # logits = temperature * (beta_a - factor * masses * unit_costs)
            d_benefit = lambdas[t] * d_logits
            d_unit_costs = -factor * masses * d_benefit
            d_masses = -factor * costs_of_a_unit(beta_u, variances) * d_benefit
            d_beta_a += ops.sum(d_benefit, axis=0)
            d_beta_u += entries * ops.sum(d_unit_costs, axis=0)
            d_variances = d_variances + 0.5 * d_unit_costs[..., None] / variances
            upstream = d_masses, d_means, d_variances
            d_shares, pair = _moments_gradient(votes, shares, means, variances - variance_floor, upstream, epsilon)
            left.append(pair)
            right.append(ops.broadcast_to(shares, ops.shape(d_shares)))
            d_activations += ops.sum(d_shares * couplings[t], axis=1)
            if t == 0 or gradients == "last":
                break
            # couplings = softmax of coupling logits over the parents that compete
            d_couplings = d_shares * weights
            common = ops.sum(d_couplings * couplings[t], axis=1)
            if competes:
                common = windows.gather(windows.scatter(common))
            d_coupling_logits = couplings[t] * (d_couplings - common[:, None])
            d_logits, d_means, d_variances, pair = _e_step_gradient(votes, *states[t - 1], d_coupling_logits)
            left.append(pair)
            right.append(d_coupling_logits)

        # The gradient of a vote V, relative to the origin, is slope * V + offset.
        stacked = ops.stack(right, axis=2)
        slopes, offsets = (ops.matmul(ops.stack(x, axis=-1), stacked) for x in zip(*left, strict=True))
        d_poses, d_kernel, d_bias = transposed_votes(slopes * votes.votes + offsets, windows, poses, kernel)
        d_shared = d_kernel, d_beta_u, d_beta_a, *(ops.reshape(d_bias, x.shape) for x in bias)
        return d_poses, windows.scatter(d_activations), *d_shared

    state = positions, parents, 2 * entries + 1
    arrays, shapes = [at_least_float32(x) for x in (poses, activations)], [state, (iterations, *state)]
    logits, *results = split(recomputed_by_examples(forward, backward, examples_per_chunk, arrays, shared, shapes))
    means, variances = (ops.reshape(x, (-1, parents, *rows, out)) for x in results)
    return means, ops.sigmoid(logits), logits, variances


def _moments_gradient(votes, shares, means, variances, upstream, epsilon):
    """Gradients of `votes.moments` with respect to the shares, (B, j, i), and the votes, `share (slope V + offset)`.

    Slopes and offsets are (B, j, k).

    means = sum_i shares V / (mass + epsilon); variances = sum_i shares (V - means)^2 / (mass + epsilon)
    """
    d_masses, d_means, d_variances = upstream
    masses = ops.sum(shares, axis=-1, keepdims=True)
    divisor = masses + epsilon
    d_squares = d_variances / divisor
    # 0 but for epsilon and rounding. It is summed from the votes, so that its rounding is theirs.
    deviations = over_children(votes.votes, shares) - means * masses
    d_sums = (d_means - 2 * d_squares * deviations) / divisor
    d_masses = d_masses - ops.sum(d_squares * variances + d_sums * means, axis=-1)
    d_shares = d_masses[..., None] + over_entries(d_sums, votes.votes) + over_entries(d_squares, votes.squares(means))
    return d_shares, (2 * d_squares, d_sums - 2 * d_squares * means)


def _e_step_gradient(votes, logits, means, variances, upstream):
    """Gradients of coupling logits with respect to logits, means, variances, and votes, `upstream (slope V + offset)`.

    coupling logits = log sigmoid(logits) - sum_k log(variances) / 2 - sum_k (V - means)^2 / (2 variances)
    """
    precisions, total = 1 / variances, ops.sum(upstream, axis=-1, keepdims=True)
    d_precisions = -0.5 * over_children(votes.squares(means), upstream)
    d_variances = -precisions * (d_precisions * precisions + 0.5 * total)
    d_means = precisions * (over_children(votes.votes, upstream) - means * total)
    pair = -precisions, means * precisions
    return total[..., 0] * ops.sigmoid(-logits), d_means, d_variances, pair
