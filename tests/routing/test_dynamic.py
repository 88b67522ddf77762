import numpy as np
import pytest
from backend import array, as_one_program, gradients_of, results_and_gradients, way
from keras import ops
from oracle import ATOL, routing_case

from tf_capsules import routing
from tf_capsules.routing import DistinctVotes, SharedVotes, StoredVotes

dynamic_routing = as_one_program(routing.dynamic_routing)


def votes_of_case(form):
    poses, kernel, bias, case = routing_case()
    votes = (
        StoredVotes(np.einsum("bid,ijde->bije", poses, kernel)) if form == "stored" else DistinctVotes(poses, kernel)
    )
    return votes, bias, case


@pytest.mark.parametrize("form", ["stored", "distinct"])
def test_oracle(form):
    votes, bias, case = votes_of_case(form)
    assert len(case["iterations"]) == 3
    for expected in case["iterations"]:
        poses, couplings = dynamic_routing(votes, expected["iteration"], return_couplings=True)
        np.testing.assert_allclose(array(couplings), expected["c"], atol=ATOL)
        np.testing.assert_allclose(array(poses), expected["v"], atol=ATOL)
        np.testing.assert_allclose(np.linalg.norm(array(poses), axis=-1), expected["length"], atol=ATOL)
    np.testing.assert_allclose(array(dynamic_routing(votes, 3, bias=bias)), case["with_bias_iteration3_v"], atol=ATOL)
    poses, couplings = dynamic_routing(votes, 3, leaky=True, return_couplings=True)
    np.testing.assert_allclose(array(couplings), case["leaky_iteration3"]["c"], atol=ATOL)
    np.testing.assert_allclose(array(poses), case["leaky_iteration3"]["v"], atol=ATOL)
    lengths = np.linalg.norm(array(dynamic_routing(votes, 5)), axis=-1)
    np.testing.assert_allclose(lengths, case["iteration5_length"], atol=ATOL)


def reference(votes, iterations, bias=None, leaky=False, competition="parents", mask=None):
    """Procedure 1 of the paper in NumPy, sample by sample, from votes (batch, children, parents, *pose)."""
    batch, children, parents, *pose = votes.shape
    all_poses, all_couplings = [], []
    for sample in range(batch):
        present = np.ones(children, bool) if mask is None else mask[sample]
        logits = np.zeros((children, parents))
        for _ in range(iterations):
            couplings = np.zeros((children, parents))
            if competition == "parents":
                for i in np.flatnonzero(present):
                    couplings[i] = np.exp(logits[i]) / (np.exp(logits[i]).sum() + leaky)
            elif present.any():
                for j in range(parents):
                    couplings[present, j] = np.exp(logits[present, j]) / np.exp(logits[present, j]).sum()
            poses = np.zeros((parents, *pose))
            for j in range(parents):
                s = sum(couplings[i, j] * votes[sample, i, j] for i in range(children))
                s = s if bias is None else s + bias[j]
                square = np.sum(s * s)
                poses[j] = square / (1 + square) * s / np.sqrt(square) if square else 0
            logits = logits + (votes[sample] * poses).reshape(children, parents, -1).sum(-1)
        all_poses.append(poses)
        all_couplings.append(couplings)
    return np.array(all_poses), np.array(all_couplings)


def build_votes(form, random, batch, children, parents, rows, columns, out):
    """Votes of a form, and the same votes as a float64 tensor."""
    groups = {"stored": children, "distinct": children, "all": 1, "types": children // 2}[form]
    poses = random.normal(size=(batch, children, *rows, columns)).astype("float32")
    kernel = (0.5 * random.normal(size=(groups, parents, columns, out))).astype("float32")
    each = kernel[np.arange(children) % groups].astype("float64")
    written_out = np.einsum("bi...d,ijde->bij...e", poses.astype("float64"), each)
    if form == "stored":
        return StoredVotes(written_out.astype("float32")), written_out
    return (DistinctVotes if form == "distinct" else SharedVotes)(poses, kernel), written_out


SHAPES = [(2, 3, 5, 7), (3, 7, 2, 5), (5, 1, 3, 2), (1, 5, 7, 3)]


@pytest.mark.parametrize("competition, leaky", [("parents", False), ("parents", True), ("children", False)])
@pytest.mark.parametrize("form", ["stored", "distinct", "all", "types"])
def test_equals_the_reference(form, competition, leaky):
    random = np.random.default_rng([len(form), len(competition), leaky])
    for trial in range(8):
        batch, parents, columns, out = SHAPES[trial % 4]
        children, rows = (8, (4,)) if trial % 2 else (6, ())
        children = 1 if (trial, form) == (7, "stored") else children
        votes, written_out = build_votes(form, random, batch, children, parents, rows, columns, out)
        bias = random.normal(size=(parents, *rows, out)).astype("float32") if trial in (2, 3, 6, 7) else None
        mask = None
        if trial >= 4:
            mask = random.integers(0, 2, (batch, children)).astype(bool)
            mask[0] = False
        iterations = 1 + trial % 4
        options = dict(bias=bias, leaky=leaky, competition=competition, mask=mask)
        poses, couplings = dynamic_routing(votes, iterations, **options, return_couplings=True)
        expected, expected_couplings = reference(written_out, iterations, **options)
        assert poses.shape == (batch, parents, *rows, out) and couplings.shape == (batch, children, parents)
        np.testing.assert_allclose(array(couplings), expected_couplings, atol=5e-5, err_msg=str(trial))
        np.testing.assert_allclose(array(poses), expected, atol=5e-5, err_msg=str(trial))
        np.testing.assert_array_equal(array(dynamic_routing(votes, iterations, **options)), array(poses))


@pytest.mark.parametrize("competition", ["parents", "children"])
@pytest.mark.parametrize("form", ["stored", "distinct", "all", "types"])
def test_masked_children_count_for_nothing(form, competition):
    random = np.random.default_rng(5)
    votes, written_out = build_votes(form, random, 2, 6, 3, (), 4, 5)
    mask = np.array([[1, 0, 1, 1, 0, 0], [0] * 6], bool)
    bias = random.normal(size=(3, 5)).astype("float32")
    poses = array(dynamic_routing(votes, 3, competition=competition, mask=mask))
    alone = StoredVotes(written_out[:1, mask[0]].astype("float32"))
    np.testing.assert_allclose(poses[:1], array(dynamic_routing(alone, 3, competition=competition)), atol=1e-5)
    np.testing.assert_array_equal(poses[1], 0)
    poses = array(dynamic_routing(votes, 3, bias=bias, competition=competition, mask=mask))
    square = np.sum(bias**2, axis=-1, keepdims=True)
    np.testing.assert_allclose(poses[1], np.sqrt(square) * bias / (1 + square), atol=1e-6)


def test_competition_of_children_against_numbers_by_hand():
    i, j, d = np.ogrid[:4, :3, :2]
    votes = StoredVotes(np.sin(1.0 + i + 2 * j + 3 * d)[None])
    expected = [[0.236763, -0.253113], [-0.307184, 0.303526], [0.015946, -0.007274]]
    np.testing.assert_allclose(array(dynamic_routing(votes, 3, competition="children"))[0], expected, atol=1e-6)
    first = array(dynamic_routing(votes, 1, competition="children"))[0, 0]
    np.testing.assert_allclose(first, [0.104396, -0.123072], atol=1e-6)


def test_initial_logits_are_those_of_the_first_couplings():
    random = np.random.default_rng(7)
    votes, _ = build_votes("types", random, 2, 6, 3, (), 4, 5)
    logits = random.normal(size=(6, 3))
    for competition, axis in (("parents", 1), ("children", 0)):
        options = dict(competition=competition, initial_logits=logits, return_couplings=True)
        couplings = array(dynamic_routing(votes, 1, **options)[1])
        wanted = np.exp(logits) / np.exp(logits).sum(axis, keepdims=True)
        np.testing.assert_allclose(couplings, np.stack([wanted] * 2), rtol=1e-5)


def make_route(form, jit):
    iterations = 2 if jit else 3  # a longer program takes longer to compile

    def route(poses, kernel, mask=None):
        votes = (SharedVotes if form == "all" else DistinctVotes)(poses, kernel)
        return dynamic_routing(votes.store() if form == "stored" else votes, iterations, mask=mask)

    return route


@pytest.mark.parametrize("jit", [False, True], ids=way)
@pytest.mark.parametrize("form", ["stored", "distinct", "all"])
def test_finite_for_extreme_poses(form, jit):
    random = np.random.default_rng(6)
    ordinary = random.normal(size=(2, 6, 4)).astype("float32")
    kernel = random.normal(size=(1 if form == "all" else 6, 3, 4, 5)).astype("float32")
    direction = random.normal(size=(2, 3, 5)).astype("float32")
    everyone, nobody = np.ones((2, 6), "float32"), np.zeros((2, 6), "float32")
    route = make_route(form, jit)

    def scalar(poses, kernel, mask):
        return ops.sum(direction * route(poses, kernel, mask))

    gradients = gradients_of(scalar, jit)
    for size in (0.0, 1e-20, 1e20):
        some = ordinary.copy()
        some[:, 1:3] *= size
        for poses in (some, (ordinary * size).astype("float32")):
            for mask in (everyone, nobody):
                value, slopes = gradients(poses, kernel, mask)
                assert np.isfinite(value), size
                assert value == 0 if mask is nobody else abs(value) > 1e-3 or poses is not some
                assert all(np.isfinite(slope).all() for slope in slopes), size


@pytest.mark.parametrize("jit", [False, True], ids=way)
@pytest.mark.parametrize("form, dtype", [("stored", "bfloat16"), ("distinct", "float16"), ("all", "bfloat16")])
def test_half_precision_is_routed_in_float32(form, dtype, jit):
    random = np.random.default_rng(7)
    poses = 100 * random.normal(size=(2, 6, 4)).astype("float32")
    poses[0, 0] = 0
    poses = ops.cast(poses, dtype)
    kernel = ops.cast(random.normal(size=(1 if form == "all" else 6, 3, 4, 5)).astype("float32"), dtype)
    route = make_route(form, jit)
    values, gradients = results_and_gradients(route, [np.ones((2, 3, 5))], jit)(poses, kernel)
    assert values.dtype == "float32"
    exact = array(route(ops.cast(poses, "float32"), ops.cast(kernel, "float32")))
    np.testing.assert_allclose(values, exact, atol=1e-5)
    assert all(np.isfinite(gradient.astype("float32")).all() for gradient in gradients)


def test_gradients_flow_through_the_couplings():
    random = np.random.default_rng(8)
    written_out = random.normal(size=(1, 4, 3, 2))
    direction = random.normal(size=(1, 3, 2)).astype("float32")
    gradients = gradients_of(lambda x: ops.sum(direction * dynamic_routing(StoredVotes(x), 3)))
    _, (gradient,) = gradients(written_out.astype("float32"))
    for index in [(0, 0, 0, 0), (0, 1, 2, 1), (0, 3, 1, 0)]:
        step = np.zeros(written_out.shape)
        step[index] = 1e-5
        above, below = (np.sum(direction * reference(written_out + sign * step, 3)[0]) for sign in (1, -1))
        np.testing.assert_allclose(gradient[index], (above - below) / 2e-5, atol=2e-5)


def test_arguments_out_of_range_are_named():
    votes = StoredVotes(np.ones((1, 2, 3, 4), "float32"))
    for iterations in (0, -1, 2.0, True, None):
        with pytest.raises(ValueError, match=f"`iterations`.*Received: {iterations}"):
            dynamic_routing(votes, iterations)
    with pytest.raises(ValueError, match="`competition`.*Received: 'cousins'"):
        dynamic_routing(votes, competition="cousins")
    with pytest.raises(ValueError, match="`leaky=True` needs"):
        dynamic_routing(votes, competition="children", leaky=True)
