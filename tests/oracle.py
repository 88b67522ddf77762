"""The hand-computed cases of `oracles/dynamic_routing.json`."""

import json
import pathlib

import numpy as np

ATOL = 2e-5
CASES = {
    case["name"]: case
    for case in json.loads((pathlib.Path(__file__).parent / "oracles" / "dynamic_routing.json").read_text())["cases"]
}


def expand(shape, scale, freq, phase, offset=0.0):
    """The array of a generator: `offset + scale * sin(freq * (k + 1) + phase)`, k the flat index."""
    k = np.arange(np.prod(shape))
    return (offset + scale * np.sin(freq * (k + 1) + phase)).reshape(shape).astype("float32")


def routing_case():
    """Case B as (children's poses, kernel in this package's layout (children, parents, d_in, d_out), bias, case)."""
    case = CASES["B_routing"]
    u, w, bias = (expand(**case["params"][name]) for name in ("u", "W", "bias"))
    doubled = 2 * u
    norm = np.linalg.norm(doubled, axis=-1, keepdims=True)
    poses = doubled * norm / (1 + norm**2)
    np.testing.assert_allclose(poses[0], case["primary_values_sample0"], atol=ATOL)
    kernel = w.transpose(0, 1, 3, 2)
    np.testing.assert_allclose(np.einsum("d,jde->je", poses[0, 0], kernel[0]), case["u_hat_sample0_child0"], atol=ATOL)
    return poses, kernel, bias, case
