"""The results of a routing layer by name."""

from typing import NamedTuple

from tf_capsules.argument_types import Tensor


class Routed(NamedTuple):
    """The results of a routing layer, by name; None for what the layer does not compute or the call did not ask for.

    Attributes:
        poses: of the parents, (batch, capsules, *pose), on a grid (batch, rows, columns, capsules, *pose).
        activations: in [0, 1], shaped like the poses without their pose axes.
        logits: activation logits, shaped like the activations.
        variances: of a parent's votes, weighted by the children's activations times couplings, shaped like the poses.
        couplings: coupling coefficients, (batch, children, capsules), on a grid (batch, rows, columns, children of a
            window, capsules). Each layer says what they contain, and over what they sum to 1.
    """

    poses: Tensor
    activations: Tensor | None = None
    logits: Tensor | None = None
    variances: Tensor | None = None
    couplings: Tensor | None = None
