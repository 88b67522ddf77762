import numpy as np
import oracle
import pytest
from backend import array, as_one_program, float64, gradients_of
from keras import ops

from tf_capsules import routing
from tf_capsules.routing import DistinctVotes
from tf_capsules.routing.inverted_attention import distinct_inverted_attention
from tf_capsules.routing.votes import TransformedVotes

inverted_attention = as_one_program(routing.inverted_attention)
CASES = oracle.read("inverted_attention")


def case_arrays(name):
    """The case; children (batch, n, rows, q) or vectors; kernel (n, m, d, e) in this package's order; gain; offset."""
    case = CASES[name]
    child, w, gamma, beta = (oracle.expand(**case["params"][key]) for key in ("child", "W", "gamma", "beta"))
    if w.shape[2:] == (2, 2):
        child = child.reshape(*child.shape[:-1], 2, 2)
    else:
        w = w.transpose(0, 1, 3, 2)
    return case, child, w, gamma, beta


def normalized(sums, gamma, beta):
    """Layer normalization over the entries of each pose, flat."""
    x = array(sums).reshape(*sums.shape[:2], -1)
    x = x - x.mean(-1, keepdims=True)
    return gamma * x / np.sqrt(np.square(x).mean(-1, keepdims=True) + 1e-5) + beta


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("name", ["A_fc_matrix", "A2_fc_vector"])
def test_the_hand_computed_cases(name, stored):
    case, child, kernel, gamma, beta = case_arrays(name)
    votes = DistinctVotes(child, kernel)
    votes = votes.store() if stored else votes
    if "votes_sample0_child0" in case:
        own = array(votes.tensor())[0, 0].reshape(kernel.shape[1], -1)
        np.testing.assert_allclose(own, case["votes_sample0_child0"], atol=oracle.ATOL)
    parents = None
    for wanted in case["iterations"]:
        sums, couplings = inverted_attention(votes, parents, scale=len(gamma) ** -0.5, return_couplings=True)
        poses = normalized(sums, gamma, beta)
        np.testing.assert_allclose(array(couplings), wanted["R"], atol=oracle.ATOL)
        np.testing.assert_allclose(poses, wanted["pose"], atol=oracle.ATOL)
        parents = poses.reshape(sums.shape)


def test_without_scale_and_without_normalization():
    case, child, kernel, gamma, beta = case_arrays("A_fc_matrix")
    votes, plain, poses = DistinctVotes(child, kernel), None, None
    for _ in range(3):
        plain = inverted_attention(votes, plain, scale=0.5)
        sums = inverted_attention(votes, poses)
        poses = normalized(sums, gamma, beta).reshape(sums.shape)
    wanted = np.array(case["pose_iter3_without_layer_norm"])
    np.testing.assert_allclose(array(plain).reshape(wanted.shape), wanted, atol=oracle.ATOL)
    np.testing.assert_allclose(poses.reshape(wanted.shape), case["pose_iter3_without_scale"], atol=oracle.ATOL)


def distinct_forms(mask, dtype):
    """The form without memory for pairs, in chunks of two of the five examples, and the form over stored votes."""
    mask = None if mask is None else ops.cast(ops.convert_to_tensor(mask), dtype)
    options = dict(scale=0.3, weights=mask)

    def free(poses, kernel, parents):
        sums = distinct_inverted_attention(poses, parents, kernel, examples_per_chunk=2, **options)
        return ops.sum(ops.square(sums) * sums)

    def stored(poses, kernel, parents):
        sums = inverted_attention(TransformedVotes(poses, kernel).store(), parents, **options)
        return ops.sum(ops.square(sums) * sums) + 0 * ops.sum(parents)  # a gradient also if there is one parent

    return free, stored


@pytest.mark.parametrize("dtype, tolerance", [("float64", 1e-9), ("float32", 2e-5)])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("parents", [1, 3])
@pytest.mark.parametrize("rows", [(), (2,)])
def test_routing_without_memory_for_pairs_equals_stored_votes(rows, parents, masked, dtype, tolerance):
    random = np.random.default_rng(0)
    shapes = (5, 7, *rows, 4), (7, parents, 4, 3), (5, parents, *rows, 3)
    arrays = [random.normal(size=shape).astype(dtype) for shape in shapes]
    mask = random.integers(0, 2, size=(5, 7)).astype(bool) if masked else None
    with float64():
        found, wanted = (gradients_of(form)(*arrays) for form in distinct_forms(mask, dtype))
    for a, b in zip([found[0], *found[1]], [wanted[0], *wanted[1]], strict=True):
        assert np.isfinite(a).all() and a.shape == b.shape and a.dtype == dtype
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * np.abs(b).max())


def test_one_parent_takes_all_and_one_child_is_taken():
    random = np.random.default_rng(1)
    poses, kernel = random.normal(size=(2, 6, 3)).astype("float32"), random.normal(size=(6, 1, 3, 5)).astype("float32")
    votes = DistinctVotes(poses, kernel)
    sums, couplings = inverted_attention(votes, random.normal(size=(2, 1, 5)), return_couplings=True)
    np.testing.assert_allclose(array(couplings), 1)
    np.testing.assert_allclose(array(sums), np.einsum("bid,ijde->bje", poses, kernel), rtol=1e-5, atol=1e-5)
    one = DistinctVotes(poses[:, :1], random.normal(size=(1, 4, 3, 5)).astype("float32"))
    couplings = inverted_attention(one, random.normal(size=(2, 4, 5)), return_couplings=True)[1]
    np.testing.assert_allclose(array(couplings).sum(-1), 1, rtol=1e-6)
