"""Dynamic routing in windows (Sabour et al. 2017)."""

from tf_capsules.argument_types import Tensor
from tf_capsules.routing.dynamic import check_dynamic_routing
from tf_capsules.routing.squash import squash
from tf_capsules.routing.windowed.inverted_attention import windowed_inverted_attention
from tf_capsules.routing.windowed.windows import Windows


def windowed_dynamic_routing(
    poses: Tensor,
    kernel: Tensor,
    iterations: int = 3,
    *,
    windows: Windows,
    examples_per_chunk: int | None,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
):
    """`dynamic_routing` in windows: the parent types at each position compete. No votes are kept.

    A logit sums a vote's agreements with the parent of each earlier iteration. That is the vote's agreement with the
    sum of these parents. So each iteration is an inverted attention to sums of parents.

    Source: Sabour et al. 2017, procedure 1.

    Args:
        poses, kernel, windows, examples_per_chunk: see `windowed_inverted_attention`.
        iterations, bias: see `dynamic_routing`.
        mask: (batch, height, width, types), true for the children that take part; or None for all.

    Returns:
        (batch * positions, parents, *pose).
    """
    check_dynamic_routing(iterations)
    attended, parents = None, None
    for _ in range(iterations):
        if parents is not None:
            attended = parents if attended is None else attended + parents
        sums = windowed_inverted_attention(
            poses, attended, kernel, windows=windows, examples_per_chunk=examples_per_chunk, weights=mask
        )
        parents = squash(sums if bias is None else sums + bias, tuple(range(2, len(sums.shape))))
    return parents
