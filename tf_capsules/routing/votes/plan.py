"""How a layer holds its votes: stored or not, chosen by counting numbers.

Layers ask for a plan when they are built, and make their votes by it. Cost estimates and diagnostics read it off the
layer.
"""

import dataclasses
import math
from typing import NamedTuple

NUMBERS_AT_A_TIME = 2_000_000  # in a chunk of examples: enough work to outweigh the loop, few enough for the cache
BYTES = 4  # of a number: routing runs in float32 under every dtype policy but float64

# With fewer children rounding would decide: only stored votes then give small variances precisely.
FEWEST_FOR_EM = 128  # one child can be nearly all of a parent's mass
FEWEST_FOR_HEINSEN = 8  # variances come close to epsilon


class VotesCost(NamedTuple):
    """The memory for the votes of a call, in bytes."""

    tensor: int  # of the votes, if they were held as a tensor
    held: int  # of what the layer holds: its votes, or what replaces them for each (child, parent) pair


@dataclasses.dataclass(frozen=True)
class Plan:
    """How votes are held."""

    stored: bool  # whether all votes are held as a tensor
    vote: int  # numbers in a vote
    pair: int = 0  # numbers held for each (child, parent) pair where votes are not stored, after the first iteration
    fewest: int = 0  # votes are also stored in calls with fewer children than this
    examples: int | None = None  # for so many the numbers of `pair` exist at a time; None: for the whole batch
    couplings_need_votes: bool = False  # whether a call that returns couplings stores its votes

    def stores(self, children=None, return_couplings=False):
        """Whether a call with so many children stores its votes: a bool, or a tensor where the number is unknown."""
        if self.stored or (return_couplings and self.couplings_need_votes):
            return True
        return children < self.fewest if self.fewest and children is not None else False

    def cost(self, batch, children, pairs, iterates, return_couplings=False):
        """The `VotesCost` of a call with so many children and pairs an example; `iterates`: whether more than once."""
        tensor = BYTES * batch * pairs * self.vote
        if self.stores(children, return_couplings):
            return VotesCost(tensor, tensor)
        at_once = self.examples is None or return_couplings
        examples = batch if at_once else min(batch, self.examples)
        return VotesCost(tensor, BYTES * examples * pairs * self.pair if iterates else 0)


def for_sums(memory, shared, rows, columns, dim, examples=None):
    """The plan of an algorithm that asks for sums and agreements.

    `memory`: "auto" stores votes if every other form is larger; "store" always does, "recompute" never. `shared`:
    whether children share transformations. `rows`, `columns`: of a child's pose; those of a vector are () and its
    entries. `dim`: columns of a parent's pose. `examples`: number of examples at a time; None: all.
    """
    smaller, rows = shared or columns <= dim, math.prod(rows)
    return Plan(_stored(memory, smaller), rows * dim, pair=0 if shared else rows * columns, examples=examples)


def for_moments(memory, shared, rows, columns, dim, parents, fewest=0):
    """The plan of an algorithm that asks for densities and moments. Without shared matrices it always stores votes.

    `parents`: their number; None where it is unknown: votes are then not stored. `fewest`: "auto" stores votes in each
    call with fewer children, such as `FEWEST_FOR_EM`. Other arguments: see `for_sums`.
    """
    rows = math.prod(rows)
    smaller = parents is None or numbers_per_child(rows, columns) <= rows * dim * parents
    return Plan(not shared or _stored(memory, smaller), rows * dim, fewest=fewest if memory == "auto" else 0)


def numbers_per_child(rows, columns):
    """How many numbers replace the votes of a child with shared transformations: 1, its pose, and products of these."""
    return 1 + rows * (columns + columns * (columns + 1) // 2)


def in_windows(memory, rows, columns, dim, pairs, positions):
    """The plan for windows at so many positions, with so many (child, parent) pairs in all.

    Votes that are not stored exist for some examples at a time.
    """
    size, kernel = math.prod(rows) * dim, pairs // positions * columns * dim
    # A chunk reads the kernel twice and writes its gradient: it has three times as many numbers at the least.
    examples = None if memory == "store" else examples_at_a_time(size * pairs, at_least=3 * kernel)
    return Plan(memory == "store", size, pair=size, examples=examples, couplings_need_votes=True)


def examples_at_a_time(numbers, at_least=0):
    """How many examples, of `numbers` numbers each, fit in a chunk. Its limit is raised to `at_least` numbers."""
    return max(1, max(NUMBERS_AT_A_TIME, at_least) // numbers)


def _stored(memory, smaller):
    return memory == "store" or (memory == "auto" and not smaller)
