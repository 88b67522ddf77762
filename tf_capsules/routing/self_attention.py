"""Self-attention routing (Mazzia, Salvetti, Chiaberge 2021): no iterations."""

import math

from keras import ops

from tf_capsules.argument_types import Tensor
from tf_capsules.routing.couplings import couple
from tf_capsules.routing.squash import squash_exponential
from tf_capsules.routing.votes import Votes


def self_attention_routing(
    votes: Votes, *, prior: Tensor | None = None, mask: Tensor | None = None, return_couplings: bool = False
):
    """Routes once, by the agreement of each vote with the sum of all votes for the same parent.

    Source: Mazzia et al. 2021, section 3.2. With votes `V_ij` of D numbers, `a_ij = <V_ij, sum_k V_kj> / sqrt(D)`; the
    couplings are a softmax of `a_ij` over the parents, plus the prior; a parent is the squashed sum of its coupled
    votes. The sum runs over all children, i included, as in the released code.

    Args:
        votes: `tf_capsules.routing.votes.Votes`.
        prior: added to the couplings, (children, parents); or None.
        mask: (batch, children), true for the children that take part; or None for all.
        return_couplings: also return the couplings.

    Returns:
        The parents' poses (batch, parents, *pose), of length below 1; with `return_couplings` also the couplings
        (batch, children, parents), 0 for masked children. Without a prior a child's sum to 1 over the parents; with one
        they sum to anything, and may be negative.
    """
    kept = ops.ones((1, votes.children, 1), votes.dtype) if mask is None else ops.cast(mask, votes.dtype)[:, :, None]
    logits = votes.agreement(votes.weighted_sum(kept)) / math.sqrt(math.prod(votes.pose_shape))
    couplings = couple(logits) if prior is None else couple(logits) + ops.cast(prior, votes.dtype)
    couplings = couplings if mask is None else couplings * kept
    poses = squash_exponential(votes.weighted_sum(couplings), tuple(range(2, 2 + len(votes.pose_shape))))
    return (poses, couplings) if return_couplings else poses
