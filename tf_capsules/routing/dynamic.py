"""Dynamic routing between capsules (Sabour et al. 2017)."""

from keras import ops

from tf_capsules.argument_types import Tensor
from tf_capsules.arguments import positive_int
from tf_capsules.routing.couplings import check_competition, couple
from tf_capsules.routing.squash import squash
from tf_capsules.routing.votes import Votes


def dynamic_routing(
    votes: Votes,
    iterations: int = 3,
    *,
    bias: Tensor | None = None,
    leaky: bool = False,
    competition: str = "parents",
    initial_logits: Tensor | None = None,
    mask: Tensor | None = None,
    return_couplings: bool = False,
):
    """Routes by agreement: children send more to the parents that their votes agree with.

    Source: Sabour et al. 2017, procedure 1; competition between children: Li et al. 2018; leaky and bias: the released
    code of Sabour et al. Gradients flow through all iterations, the couplings included.

    Args:
        votes: `tf_capsules.routing.votes.Votes`.
        iterations, leaky, competition: see `tf_capsules.layers.DynamicRouting`.
        bias: added to each parent's sum before it is squashed, (parents, *pose); or None.
        initial_logits: of the first couplings, (children, parents); None: zeros.
        mask: (batch, children), true for the children that take part; or None for all.
        return_couplings: also return the couplings of the last iteration.

    Returns:
        The parents' poses (batch, parents, *pose), of length below 1; with `return_couplings` also the couplings
        (batch, children, parents).

    Raises:
        ValueError: iterations below 1, an unknown competition, or leaky competition between children.
    """
    positive_int("iterations", iterations)
    check_competition(competition, leaky)
    pose_axes = tuple(range(2, 2 + len(votes.pose_shape)))

    def parents(couplings):
        sums = votes.weighted_sum(couplings)
        return squash(sums if bias is None else sums + ops.cast(bias, votes.dtype), pose_axes)

    # With logits of zero the couplings are the same for all parents: one column stands for all.
    logits = ops.zeros((1, votes.children, 1), votes.dtype)
    if initial_logits is not None:
        logits = ops.cast(initial_logits, votes.dtype)[None]
        logits = ops.broadcast_to(logits, (votes.batch, votes.children, votes.parents))
    if initial_logits is None and competition == "parents":
        couplings = ops.ones_like(logits) / (votes.parents + int(leaky))
        couplings = couplings if mask is None else couplings * ops.cast(mask, votes.dtype)[:, :, None]
    else:
        couplings = couple(logits, competition, leaky=leaky, mask=mask)
    poses, attended = parents(couplings), 0.0
    for _ in range(iterations - 1):
        # The sum of a vote's agreements with earlier parents is its agreement with their sum.
        attended = attended + poses
        agreement = votes.agreement(attended)
        agreement = agreement if initial_logits is None else logits + agreement
        couplings = couple(agreement, competition, leaky=leaky, mask=mask)
        poses = parents(couplings)
    if return_couplings:
        return poses, ops.broadcast_to(couplings, (votes.batch, votes.children, votes.parents))
    return poses
