"""The hand-computed cases of `oracles/`."""

import json
import pathlib

import numpy as np

ATOL = 2e-5


def read(name):
    """Reads a file; returns {name: case}."""
    path = pathlib.Path(__file__).parent / "oracles" / f"{name}.json"
    return {case["name"]: case for case in json.loads(path.read_text())["cases"]}


CASES = read("dynamic_routing")
HEINSEN = read("heinsen")


def expand(shape, scale, freq, phase, offset=0.0, dtype="float32"):
    """The array of a generator: `offset + scale * sin(freq * (k + 1) + phase)`, k the flat index."""
    k = np.arange(np.prod(shape))
    return (offset + scale * np.sin(freq * (k + 1) + phase)).reshape(shape).astype(dtype)


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


def heinsen_case(name, dtype="float64"):
    """Arrays of a case of Heinsen's routing by their names in the file; given scores may be infinite."""
    case = HEINSEN[name]
    arrays = {key: expand(**value, dtype=dtype) for key, value in case["params"].items()}
    if "a_inp" in case:
        arrays["a_inp"] = np.array(case["a_inp"], dtype)
    return arrays, case
