"""Dynamic routing between capsules (Sabour et al. 2017)."""

from keras import ops

from tf_capsules.routing.inverted_attention import windowed_inverted_attention
from tf_capsules.routing.squash import squash
from tf_capsules.routing.votes import couple


def dynamic_routing(
    votes, iterations=3, *, bias=None, leaky=False, competition="parents", mask=None, return_couplings=False
):
    """Routes by agreement: children send more to the parents that their votes agree with.

    Source: Sabour et al. 2017, procedure 1; competition between children: Li et al. 2018; leaky and bias: the released
    code of Sabour et al. Gradients flow through all iterations, the couplings included.

    Args:
        votes: what answers for the votes (`tf_capsules.routing.votes`).
        iterations: how often couplings are computed, at least 1; 1 leaves them uniform.
        bias: added to each parent's sum before it is squashed, (parents, *pose); or None.
        leaky: whether a child may belong to none of the parents.
        competition: "parents": a child's couplings sum to 1 over the parents; "children": a parent's over the children.
        mask: (batch, children), true for the children that take part; or None for all.
        return_couplings: also return the couplings of the last iteration.

    Returns:
        The parents' poses (batch, parents, *pose), of length below 1; with `return_couplings` a pair of them and
        the couplings (batch, children, parents).

    Raises:
        ValueError: iterations below 1, an unknown competition, or leaky competition between children.
    """
    check_dynamic_routing(iterations, competition, leaky)
    pose_axes = tuple(range(2, 2 + len(votes.pose_shape)))

    def parents(couplings):
        sums = votes.weighted_sum(couplings)
        return squash(sums if bias is None else sums + bias, pose_axes)

    # With logits of zero the couplings are the same for all parents: one column of them says it all.
    logits = ops.zeros((1, votes.children, 1), votes.dtype)
    if competition == "parents":
        couplings = ops.ones_like(logits) / (votes.parents + int(leaky))
        couplings = couplings if mask is None else couplings * ops.cast(mask, votes.dtype)[:, :, None]
    else:
        couplings = couple(logits, "children", mask=mask)
    poses = parents(couplings)
    for _ in range(iterations - 1):
        logits = logits + votes.agreement(poses)
        couplings = couple(logits, competition, leaky=leaky, mask=mask)
        poses = parents(couplings)
    if return_couplings:
        return poses, ops.broadcast_to(couplings, (votes.batch, votes.children, votes.parents))
    return poses


def windowed_dynamic_routing(poses, kernel, iterations=3, *, windows, chunk, bias=None, mask=None):
    """`dynamic_routing` in windows, of whose votes none are kept: the types at each parent position compete.

    A logit is the sum of a vote's agreements with the parent of each iteration, so it is its agreement with the sum of
    these: the routing is by inverted attention to sums of parents.

    Args:
        poses: (batch, height, width, types, d) or (batch, height, width, types, rows, d).
        kernel: (children of a window, parents, d, e).
        windows: `tf_capsules.routing.windows.Windows`.
        chunk: examples whose votes exist at a time.
        iterations, bias: as above.
        mask: (batch, height, width, types), true for the children that take part; or None for all.

    Returns:
        (batch * positions, parents, *pose).
    """
    check_dynamic_routing(iterations)
    attended, parents = None, None
    for _ in range(iterations):
        if parents is not None:
            attended = parents if attended is None else attended + parents
        sums = windowed_inverted_attention(poses, attended, kernel, windows=windows, chunk=chunk, weights=mask)
        parents = squash(sums if bias is None else sums + bias, tuple(range(2, len(sums.shape))))
    return parents


def check_dynamic_routing(iterations, competition="parents", leaky=False):
    """Raises a ValueError for arguments that `dynamic_routing` can't work with."""
    if isinstance(iterations, bool) or not isinstance(iterations, int) or iterations < 1:
        raise ValueError(f"`iterations` must be a whole number of at least 1. Received: {iterations!r}")
    if competition not in ("parents", "children"):
        raise ValueError(f'`competition` must be "parents" or "children". Received: {competition!r}')
    if leaky and competition == "children":
        raise ValueError('`leaky` needs `competition="parents"`: a parent has nothing to withhold from.')
