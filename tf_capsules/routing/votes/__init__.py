"""Votes: what each child predicts for each parent's pose, and the ways to hold them.

Child capsule i with pose x_i (a matrix of `rows` x `columns`, or a vector, which is one row) predicts the pose of
parent j by its vote `V_ij = x_i W_ij + B_ij`. A routing algorithm asks four things of the votes:

- `weighted_sum(weights)`: `sum_i w_ij V_ij`;
- `agreement(poses)`: the inner products `<V_ij, v_j>`;
- `log_density(means, precisions, constants)`: `c_j - 1/2 sum_k p_jk (V_ijk - m_jk)^2`, over the entries k of the pose;
- `moments(couplings)`: mass, mean and variance of the votes that each parent takes.

An algorithm is written once, against these four methods. Three classes answer them; `TransformedVotes`, the base of the
last two, is made of poses and transformations and becomes stored votes by `store`:

| class | when | numbers held for each (child, parent) pair |
| --- | --- | --- |
| `StoredVotes` | always possible | the size of a parent's pose |
| `SharedVotes` | children share their transformations | none beyond the weight or the coupling itself |
| `DistinctVotes` | each pair has its own matrix | the size of a child's pose; densities and moments store the votes |

`plan` chooses between them, by counting numbers.

Poses are (batch, parents, *pose). Weights, couplings and agreements are (batch, children, parents). Weights that are
equal for all parents may be given as (batch, children, 1): one matrix product then serves all parents. A batch axis of
1 stands for the whole batch.

Votes far from zero keep their digits by three references, which affect rounding alone: children's poses are relative to
the `center` of their group; means are relative to an `origin`, a pose for each parent in the midst of its votes; and
`near` is a pose near the mean that is asked for, such as that of the iteration before.
"""

from tf_capsules.routing.votes.base import Votes
from tf_capsules.routing.votes.distinct import DistinctVotes
from tf_capsules.routing.votes.shared import SharedVotes
from tf_capsules.routing.votes.stored import StoredVotes
from tf_capsules.routing.votes.transformed import TransformedVotes

__all__ = ["DistinctVotes", "SharedVotes", "StoredVotes", "TransformedVotes", "Votes"]
