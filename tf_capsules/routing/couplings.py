"""Couplings: routing logits become coupling coefficients, by a softmax over the capsules that compete."""

import math

from keras import ops

from tf_capsules.argument_types import Tensor
from tf_capsules.arguments import one_of
from tf_capsules.routing.precision import at_least_float32

_LONG = 32  # a last axis from this size on is long, see `softmax`


def couple(logits: Tensor, competition: str = "parents", *, leaky: bool = False, mask: Tensor | None = None):
    """Coupling coefficients of routing logits.

    Source: Sabour et al. 2017, eq. 3 (`"parents"`: every child distributes 1 over the parents); Li et al. 2018, section
    2.2 (`"children"`: every parent collects 1 from the children); leaky: the released code of Sabour et al., which adds
    a constant logit of zero for "none of the parents".

    Args:
        logits: (batch, children, parents).
        competition: "parents" or "children".
        leaky: whether a child may withhold a part; with competition "parents" only.
        mask: (batch, children), true for the children that take part; the others get couplings of 0.

    Returns:
        Couplings of the shape of `logits`, in at least float32.

    Raises:
        ValueError: another competition, or `leaky` with "children".
    """
    check_competition(competition, leaky)
    logits = at_least_float32(logits)
    keep = None if mask is None else ops.cast(mask, logits.dtype)[:, :, None]
    if competition == "children":
        if keep is not None:
            logits = ops.where(keep > 0, logits, ops.cast(-1e30, logits.dtype))
        couplings = softmax(logits, axis=1)
    elif leaky:
        couplings = softmax(ops.pad(logits, [[0, 0], [0, 0], [0, 1]]))[:, :, :-1]
    else:
        couplings = softmax(logits)
    return couplings if keep is None else couplings * keep


def check_competition(competition, leaky):
    """Raises a ValueError for an unknown competition, or leaky couplings where children compete."""
    one_of("competition", competition, ("parents", "children"))
    if leaky and competition == "children":
        raise ValueError('`leaky=True` needs `competition="parents"`. Received: competition="children"')


def softmax(logits, axis=-1):
    """Softmax. An axis of size 1, as in a network with one class, gives ones, without the warning that Keras gives.

    Along another axis than the last one, TensorFlow's softmax transposes its argument and its result. Where the last
    axis is long, the formula written out is faster.
    """
    if logits.shape[axis] == 1:
        return ops.ones_like(logits)
    if axis % len(logits.shape) == len(logits.shape) - 1 or (logits.shape[-1] or _LONG) < _LONG:
        return ops.softmax(logits, axis=axis)
    powers = unscaled_softmax(logits, axis)
    return powers * (1 / ops.sum(powers, axis=axis, keepdims=True))


def unscaled_softmax(logits, axis):
    """Numbers from 0 to 1 that, divided by their sum, are the softmax; `axis`: one, or a tuple."""
    # Without an initial value Keras refuses the maximum of an empty batch.
    highest = ops.max(logits, axis=axis, keepdims=True, initial=-math.inf)
    return ops.exp(logits - ops.stop_gradient(highest))


def softmax_gradient(couplings, upstream, axis):
    """The gradient of `softmax` with respect to the logits; `couplings`: its result, `upstream`: their gradient."""
    return couplings * (upstream - ops.sum(upstream * couplings, axis=axis, keepdims=True))
