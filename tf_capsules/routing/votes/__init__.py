"""Votes: each child's prediction of each parent's pose, and the forms in which votes are held.

Child capsule i with pose x_i (a matrix of `rows` x `columns`, or a vector, which is one row) predicts the pose of
parent j by its vote `V_ij = x_i W_ij + B_ij`. A routing algorithm asks four things of the votes: `weighted_sum`,
`agreement`, `log_density` and `moments`. `Votes` describes them. An algorithm is written once, with these methods.

`TransformedVotes`, the base of the last two classes, holds poses and transformations; its `store` makes stored votes.

| class | when | numbers held for each (child, parent) pair |
| --- | --- | --- |
| `StoredVotes` | always possible | the size of a parent's pose |
| `SharedVotes` | children share their transformations | none beyond the weight or the coupling itself |
| `DistinctVotes` | each pair has its own matrix | the size of a child's pose; densities and moments store the votes |

`plan` chooses the form by counting numbers, unless the user has chosen it; EM routing and `HeinsenRouting` store the
votes of few children.

Poses are (batch, parents, *pose). Weights, couplings and agreements are (batch, children, parents). Weights that are
equal for all parents may be given as (batch, children, 1): one matrix product then serves all parents. A batch axis of
1 stands for the whole batch.

`EMRouting` without sharing takes the shortest way: `TransformedVotes.store` gives `StoredVotes`, whose origin is 0. The
class capsules of `MatrixCapsNet` share transformations, and take `SharedVotes`.

In float32, votes far from zero would lose digits. So three references are subtracted, which affect rounding only:

- `center`: the mean pose of a group of children, subtracted from their poses;
- `origin`: for each parent the mean vote of the centers; means of votes are relative to it;
- `near`: a guess of the mean to be computed, such as the mean of the previous iteration.
"""

from tf_capsules.routing.votes.base import Votes
from tf_capsules.routing.votes.distinct import DistinctVotes
from tf_capsules.routing.votes.shared import SharedVotes
from tf_capsules.routing.votes.stored import StoredVotes
from tf_capsules.routing.votes.transformed import TransformedVotes

__all__ = ["DistinctVotes", "SharedVotes", "StoredVotes", "TransformedVotes", "Votes"]
