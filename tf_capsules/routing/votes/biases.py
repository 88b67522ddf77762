"""What the biases of votes add to sums and agreements. Axis legend as in `transformed.py`."""

from keras import ops


def bias_sum(masses, bias):
    """`sum_i w_ij B_ij`, (b, j, r, e). The masses are sums of w_ij over each group's children, (b, g, j or 1)."""
    if masses.shape[-1] == 1:
        return ops.einsum("bg,gjre->bjre", masses[..., 0], bias)
    return ops.einsum("bgj,gjre->bjre", masses, bias)


def bias_agreement(poses, bias):
    """`<B_ij, v_j>`, (b, g, j), with poses (b, j, r, e)."""
    return ops.einsum("gjre,bjre->bgj", bias, poses)
