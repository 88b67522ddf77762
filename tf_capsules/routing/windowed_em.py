"""EM routing on a grid that keeps no votes for the backward pass: there they are made again, a few examples at a time.

The gradient is written out (see `windowed_votes.py`). What is kept of the forward pass are the parents after each
iteration. The backward pass makes votes V and couplings R again and goes through the iterations from the last to
the first. Each adds to the gradient of the votes an outer product, of what it finds for the entries of a parent
(`left`) and for its children (`right`); all of them are one matrix product at the end.
"""

import math

from keras import ops

from tf_capsules.routing.chunks import by_examples
from tf_capsules.routing.em import cost_factor, couple, em_logits, em_routing, temperatures, uniform_couplings
from tf_capsules.routing.precision import at_least_float32
from tf_capsules.routing.windowed_votes import make_votes, over_children, over_entries, transposed_votes

# Axis legend as in `windowed_votes.py`; t iteration.


def windowed_em_routing(
    poses, activations, kernel, bias=None, *, beta_u, beta_a, windows, competes, chunk, gradients="all", **options
):
    """`em_routing` in windows, with its gradient (of first order only) in the memory of a chunk of examples.

    Source: Hinton et al. 2018, procedure 1.

    Args:
        poses: (batch, height, width, types, d) or (batch, height, width, types, rows, d).
        activations: (batch, height, width, types).
        kernel: (children of a window, parents, d, e).
        bias: (children of a window, parents, e) or (children of a window, parents, rows, e), or None.
        beta_u, beta_a: (parents,).
        windows: `tf_capsules.routing.windows.Windows`.
        competes: whether parents at all positions compete for a child, or only those at one.
        chunk: examples whose votes exist at a time.
        gradients, options: arguments of `em_routing`; its `normalization` can't be "min_max".

    Returns:
        Means (batch * positions, parents, *pose) and scores (batch * positions, parents).
    """
    given = (poses, activations, kernel, beta_u, beta_a) + (() if bias is None else (bias,))
    # The reshape makes an array of a variable: TensorFlow's custom gradients treat variables apart.
    given = tuple(ops.reshape(at_least_float32(x), ops.shape(x)) for x in given)
    children, parents, _, out = kernel.shape
    rows = tuple(poses.shape[4:-1])
    entries = math.prod((*rows, out))
    positions, iterations = windows.positions, options["iterations"]
    lambdas = temperatures(options["inverse_temperature"], iterations)
    competition = windows.couple if competes else None

    def forward(poses, activations, kernel, beta_u, beta_a, bias=None):
        votes = make_votes(windows, poses, kernel, bias, activations)
        states = em_routing(votes, beta_u=beta_u, beta_a=beta_a, competition=competition, return_states=True, **options)
        flat = [
            ops.concatenate(
                [*(ops.reshape(x, (-1, parents, entries)) for x in (means, variances)), scores[..., None]], axis=-1
            )
            for scores, means, variances in states
        ]
        return (ops.reshape(ops.stack(flat, axis=1), (-1, positions, iterations, parents, 2 * entries + 1)),)

    def backward(poses, activations, states, upstream, kernel, beta_u, beta_a, bias=None):
        votes = make_votes(windows, poses, kernel, bias, activations)
        upstream = ops.reshape(upstream, (-1, parents, entries + 1))
        states = ops.reshape(states, (-1, iterations, parents, 2 * entries + 1))
        # Never below the floor, unless they are what fills up a chunk.
        variances = ops.maximum(states[..., entries:-1], options["variance_floor"])
        states = [(states[:, t, :, -1], states[:, t, :, :entries], variances[:, t]) for t in range(iterations)]
        weights = ops.expand_dims(votes.activations, 1)  # (B, 1, i)
        factor, epsilon = cost_factor(options["normalization"], votes), options["epsilon"]

        # Parents first, as the votes are: couplings and all that belongs to them are (B, j, i) from here on.
        couplings = [uniform_couplings(votes, competition)]
        couplings += [couple(em_logits(votes, *state), competition) for state in states[:-1]]
        couplings = [ops.transpose(x, (0, 2, 1)) for x in couplings]
        d_means, d_scores = upstream[..., :-1], upstream[..., -1]
        d_variances = ops.zeros_like(d_means)
        d_activations, d_beta_u, d_beta_a = 0.0, 0.0, 0.0
        left, right = [], []
        for t in reversed(range(iterations)):
            scores, means, variances = states[t]
            shares = couplings[t] * weights
            masses = ops.broadcast_to(ops.sum(shares, axis=-1), ops.shape(scores))
            divisor = masses + epsilon
            # scores = temperature * (beta_a - factor * masses * unit_costs)
            unit_costs = entries * beta_u + 0.5 * ops.sum(ops.log(variances), axis=-1)
            d_score = lambdas[t] * d_scores
            d_unit_costs = -factor * masses * d_score
            d_masses = -factor * unit_costs * d_score
            d_beta_a += ops.sum(d_score, axis=0)
            d_beta_u += entries * ops.sum(d_unit_costs, axis=0)
            d_variances = d_variances + 0.5 * d_unit_costs[..., None] / variances
            # variances = sum_i shares (V - means)^2 / divisor + floor; means = sum_i shares V / divisor
            d_squares = d_variances / divisor[..., None]
            d_means = d_means - 2 * epsilon * d_squares * means
            d_sums = d_means / divisor[..., None]
            d_masses -= ops.sum(d_squares * (variances - options["variance_floor"]) + d_sums * means, axis=-1)
            squares = votes.squares(means)
            d_shares = d_masses[..., None] + over_entries(d_sums, votes.votes) + over_entries(d_squares, squares)
            left.append(ops.stack([2 * d_squares, d_sums - 2 * d_squares * means], axis=2))
            right.append(ops.broadcast_to(shares, ops.shape(d_shares)))
            d_activations += ops.sum(d_shares * couplings[t], axis=1)
            if t == 0 or gradients == "last":
                break
            # couplings = softmax of logits over those that compete
            d_couplings = d_shares * weights
            common = ops.sum(d_couplings * couplings[t], axis=1)
            if competes:
                common = windows.gather(windows.scatter(common))
            d_logits = couplings[t] * (d_couplings - common[:, None])
            # logits = log sigmoid(scores) - sum_k log(variances) / 2 - sum_k (V - means)^2 / (2 variances)
            scores, means, variances = states[t - 1]
            precisions, total = 1 / variances, ops.sum(d_logits, axis=-1)
            d_precisions = -0.5 * over_children(votes.squares(means), d_logits)
            d_variances = -precisions * (d_precisions * precisions + 0.5 * total[..., None])
            d_means = precisions * (over_children(votes.votes, d_logits) - means * total[..., None])
            d_scores = total * ops.sigmoid(-scores)
            left.append(ops.stack([-precisions, means * precisions], axis=2))
            right.append(d_logits)

        # Of each pair (slope, offset) on the left: slope * V + offset.
        left = ops.reshape(ops.stack(left, axis=-1), (-1, parents, 2 * entries, len(left)))
        slopes, offsets = ops.split(ops.matmul(left, ops.stack(right, axis=2)), 2, axis=2)
        d_poses, d_kernel, d_bias = transposed_votes(slopes * votes.votes + offsets, windows, poses, kernel)
        d_activations = windows.scatter(d_activations)
        return d_poses, d_activations, d_kernel, d_beta_u, d_beta_a, *(() if bias is None else (d_bias,))

    @ops.custom_gradient
    def route(poses, activations, *shared):
        shape = (positions, iterations, parents, 2 * entries + 1)
        (states,) = by_examples(lambda *x: forward(*x, *shared), chunk, (poses, activations), [shape])
        last = states[:, :, -1]

        def gradient(*args, upstream=None):
            arrays = (poses, activations, states, args[0] if upstream is None else upstream)
            shapes = [x.shape[1:] for x in (poses, activations)]
            sums = [*(x.shape for x in shared[:3])]
            if bias is not None:
                sums.append((children, parents, *(rows or (1,)), out))
            found = by_examples(lambda *x: backward(*x, *shared), chunk, arrays, shapes, sums)
            if bias is None:
                return found
            return *found[:-1], ops.reshape(found[-1], bias.shape)

        return ops.concatenate([last[..., :entries], last[..., 2 * entries :]], axis=-1), gradient

    results = ops.reshape(route(*given), (-1, parents, entries + 1))
    return ops.reshape(results[..., :-1], (-1, parents, *rows, out)), results[..., -1]
