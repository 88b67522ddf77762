import numpy as np
import pytest
from backend import array, as_one_program, compiled, float64, gradients_of, results_and_gradients, slow_on_jax, way
from keras import ops
from oracle import expand, read

from tf_capsules import routing
from tf_capsules.routing import SharedVotes, StoredVotes, Windows
from tf_capsules.routing.votes import TransformedVotes

em_routing = as_one_program(routing.em_routing)
ORACLE = read("em_routing")
CASE = ORACLE["A_fc"]
# Activations are near 0.5, since lambda is small, so they must match in 8 digits, the other results in 6.
ATOL = {"mean": 1e-6, "variance": 1e-6, "R": 1e-6, "activation": 1e-8}


def fully_connected(dtype, **options):
    """Results for case A by the oracle's names, and the votes."""
    x = {name: expand(**value, dtype=dtype) for name, value in CASE["params"].items()}
    votes = TransformedVotes(x["poses"], x["W"], activations=x["activations"])
    results = em_routing(votes, beta_u=x["beta_u"], beta_a=x["beta_a"], return_couplings=True, **options)
    return dict(zip(("mean", "activation", "logit", "variance", "R"), map(array, results), strict=True)), votes


def check(results, expected, atol):
    for name in {"mean", "activation", "variance", "R"} & set(expected):
        wanted = np.array(expected[name])
        np.testing.assert_allclose(results[name].reshape(wanted.shape), wanted, atol=atol[name], rtol=0, err_msg=name)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_oracle(dtype):
    atol = ATOL if dtype == "float64" else {name: 10 * value for name, value in ATOL.items()}
    with float64():
        for expected in CASE["iterations"]:
            results, votes = fully_connected(dtype, iterations=expected["iteration"])
            check(results, expected, atol)
        first = array(votes.tensor())[0, 0].reshape(3, 4)
        np.testing.assert_allclose(first, CASE["votes_sample0_child0"], atol=1e-6)
        results, _ = fully_connected(dtype, inverse_temperature=1.0)
        check(results, CASE["final_lambda_1_iteration3"], atol | {"activation": 2e-6})
        for normalization in (60, "data"):
            results, _ = fully_connected(dtype, normalization=normalization)
            check(results, CASE["ibm_data_normalisation_iteration3"], atol | {"activation": 2e-7})


def test_oracle_of_competition_over_positions():
    case = ORACLE["B_conv_k3_s1_spatial_competition"]
    with float64():
        x = {name: expand(**value, dtype="float64") for name, value in case["params"].items()}
        windows = Windows(4, 4, (3, 3))
        poses, activations = windows.gather(x["poses"][None]), windows.gather(x["activations"][None])

        def route(iterations):
            votes = TransformedVotes(poses, x["W"].reshape(18, 2, 2, 2), activations=activations)
            betas = {"beta_u": x["beta_u"], "beta_a": x["beta_a"]}
            results = em_routing(votes, iterations, **betas, competition=windows.couple, return_couplings=True)
            return dict(zip(("mean", "activation", "logit", "variance", "R"), map(array, results), strict=True))

        for expected in case["iterations"]:
            results = route(expected["iteration"])
            check(results, expected, ATOL)
        # A window lists its children by (row, column, type): the child at (1, 1) is the fifth place of the first.
        seen = results["R"].reshape(4, 9, 2, 2)
        np.testing.assert_allclose(seen[0, 4], case["R_iteration3_parent00_child_row1_col1"], atol=1e-6)
        cover = np.array(case["parents_reached_per_child_position"])
        totals = array(windows.scatter(results["R"].sum(-1)))
        np.testing.assert_allclose(totals, np.ones((1, 4, 4, 2)))
        first = route(1)["R"].reshape(4, 9, 2, 2)
        np.testing.assert_allclose(first[0, 0], case["initial_R_position00_child_row_col_00"])
        np.testing.assert_allclose(first[0, 4], case["initial_R_position00_child_11"])
        np.testing.assert_allclose(first[0, :, 0, 0], 1 / (2 * cover[:3, :3].reshape(9)))


def test_oracle_of_the_inverse_temperature():
    schedule = dict(ORACLE["E_schedules"]["inverse_temperature"])
    votes = StoredVotes(np.ones((2, 3, 4, 5), "float32"), np.zeros((2, 3), "float32"))
    for step, value in schedule.items():
        for final, factor in ((0.01, 1), (1, 100)):
            logits = array(em_routing(votes, step + 1, beta_a=np.ones(4), inverse_temperature=final)[2])
            np.testing.assert_allclose(logits, factor * value, rtol=1e-5)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def reference(votes, activations, beta_u, beta_a, temperatures, normalization=1.0, epsilon=1e-9, floor=1e-9):
    """The procedure step by step, not in the log domain, on votes (children, parents, entries) of one sample."""
    children, parents = votes.shape[:2]
    couplings = np.full((children, parents), 1 / parents)
    means = variances = active = None
    for iteration, temperature in enumerate(temperatures):
        if iteration:
            density = np.exp(-((votes - means) ** 2) / (2 * variances)) / np.sqrt(2 * np.pi * variances)
            joint = active * density.prod(-1)
            couplings = joint / joint.sum(-1, keepdims=True)
        shares = activations[:, None] * couplings
        mass = shares.sum(0)[:, None]
        means = (shares[..., None] * votes).sum(0) / (mass + epsilon)
        variances = (shares[..., None] * (votes - means) ** 2).sum(0) / (mass + epsilon) + floor
        costs = ((beta_u[:, None] + np.log(np.sqrt(variances))) * mass).sum(-1)
        if normalization == "min_max":
            costs = 10 * (costs - costs.min()) / (costs.max() - costs.min() + epsilon) - 5
        else:
            costs = costs * (100 * parents / children if normalization == "data" else normalization)
        logits = temperature * (beta_a - costs)
        active = sigmoid(logits)
    return means, active, logits, variances, couplings


def test_min_max_against_numbers_by_hand():
    i, j, d = np.ogrid[:12, :3, :2]
    votes = StoredVotes(np.sin(1.0 + i + 2 * j + 3 * d)[None], 1 / (1 + np.arange(12.0))[None])
    means, activations, _, _ = em_routing(
        votes,
        3,
        beta_u=0.1 * np.arange(1, 4),
        beta_a=0.2 * np.arange(1, 4),
        inverse_temperature=(1, 2, 3),
        normalization="min_max",
    )
    expected = [[0.503929, -0.507585], [0.015475, -0.037603], [-0.347320, 0.278424]]
    np.testing.assert_allclose(array(means)[0], expected, atol=1e-5)
    np.testing.assert_allclose(array(activations)[0], [1.0, 0.999986, 2e-6], atol=1e-6)


def make_case(random, children, groups=1, batch=2, parents=3, rows=4, columns=5, out=2):
    """Arrays of float64, and the votes written out, (batch, children, parents, rows, out)."""
    x = {
        "poses": random.normal(size=(batch, children, rows, columns)),
        "kernel": random.normal(size=(groups, parents, columns, out)) / columns,
        "bias": 0.3 * random.normal(size=(groups, parents, rows, out)),
        "activations": random.random((batch, children)),
        "beta_u": random.normal(size=parents),
        "beta_a": random.normal(size=parents),
    }
    each = np.arange(children) % groups
    return x, np.einsum("bird,ijde->bijre", x["poses"], x["kernel"][each]) + x["bias"][each]


def make_votes(form, poses, kernel, bias, activations):
    if form == "stored":
        return SharedVotes(poses, kernel, bias, activations).store()
    return SharedVotes(poses, kernel, bias, activations, {"chunks": 17, "groups": 5}.get(form))


OPTIONS = [
    {},
    {"normalization": "data"},
    {"normalization": 7.0, "inverse_temperature": 0.3},
    {"normalization": "min_max", "inverse_temperature": (1, 2, 3, 4)},
    {"variance_floor": 1e-4, "epsilon": 1e-3, "inverse_temperature": 1.0},
]


@pytest.mark.parametrize("options", OPTIONS, ids=[" ".join(options) or "paper" for options in OPTIONS])
@pytest.mark.parametrize("form", ["stored", "shared"])
def test_equals_the_reference(form, options):
    random = np.random.default_rng(len(form))
    with float64():
        for iterations, groups, parents in ((1, 4, 3), (2, 1, 5), (4, 4, 2)):
            x, votes = make_case(random, 24, groups, parents=parents)
            x["activations"][1, [2, 3, 17]] = 0
            made = make_votes(form, x["poses"], x["kernel"], x["bias"], x["activations"])
            given = dict(options)
            temperatures = given.pop("inverse_temperature", 0.01)
            if isinstance(temperatures, tuple):
                temperatures = given["inverse_temperature"] = temperatures[:iterations]
            else:
                given["inverse_temperature"] = temperatures
                temperatures = [temperatures * (1 - 0.95 ** (step + 1)) for step in range(iterations)]
            betas = {name: x[name] for name in ("beta_u", "beta_a")}
            results = em_routing(made, iterations, **betas, **given, return_couplings=True)
            options_of_reference = {"floor": given.get("variance_floor", 1e-9), "epsilon": given.get("epsilon", 1e-9)}
            for b in range(2):
                expected = reference(
                    votes[b].reshape(24, parents, 8),
                    x["activations"][b],
                    *betas.values(),
                    temperatures,
                    given.get("normalization", 1.0),
                    **options_of_reference,
                )
                for result, wanted in zip(results, expected, strict=True):
                    np.testing.assert_allclose(array(result)[b].reshape(wanted.shape), wanted, atol=1e-8, rtol=1e-8)
            np.testing.assert_allclose(array(results[4]).sum(-1), 1)


def values_and_gradients(form, x, directions, **options):
    """Results and their gradients with respect to all arguments."""

    def results(poses, kernel, bias, activations, beta_u, beta_a):
        votes = make_votes(form, poses, kernel, bias, activations)
        return em_routing(votes, 3, beta_u=beta_u, beta_a=beta_a, inverse_temperature=1.0, **options)

    answers, gradients = results_and_gradients(results, directions)(*x.values())
    return [*answers, *gradients]


@slow_on_jax
@pytest.mark.parametrize(
    "form, groups, offset, options",
    [
        ("shared", 1, 0, {}),
        ("shared", 1, 100, {"normalization": "data"}),
        ("shared", 4, 0, {"normalization": "min_max"}),
        ("chunks", 4, 0, {"gradients": "last"}),
        ("groups", 4, 100, {"normalization": "min_max"}),
    ],
)
def test_routing_without_stored_votes_equals_routing_with_stored_votes(form, groups, offset, options):
    random = np.random.default_rng(1)
    pose = (2, 3, 4, 2)
    directions = [random.normal(size=shape) for shape in (pose, pose[:2], pose[:2], pose)]
    x, _ = make_case(random, 60, groups)
    x["poses"] += offset
    expected = values_and_gradients("stored", x, directions, **options)
    for actual, wanted in zip(values_and_gradients(form, x, directions, **options), expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=0, atol=1e-9 * max(np.abs(wanted).max(), 1e-3))


def test_masked_children_count_for_nothing():
    random = np.random.default_rng(2)
    x, votes = make_case(random, 9)
    mask = np.array([[1, 0, 1, 1, 0, 1, 1, 0, 1], [0] * 9], bool)
    beta_a = np.array([-4.0, 0.5, 8.0])
    results = em_routing(StoredVotes(votes, x["activations"] * mask), 3, beta_a=beta_a, inverse_temperature=1.0)
    alone = StoredVotes(votes[:1, mask[0]], x["activations"][:1, mask[0]])
    for result, wanted in zip(results, em_routing(alone, 3, beta_a=beta_a, inverse_temperature=1.0), strict=True):
        np.testing.assert_allclose(array(result)[:1], array(wanted), rtol=1e-5, atol=1e-6)
    means, activations, logits, variances = (array(result)[1] for result in results)
    np.testing.assert_array_equal(means, 0)
    np.testing.assert_allclose(variances, 1e-9, rtol=1e-6)
    np.testing.assert_allclose(logits, (1 - 0.95**3) * beta_a, rtol=1e-6)
    np.testing.assert_allclose(activations, sigmoid((1 - 0.95**3) * beta_a), rtol=1e-6)


def test_one_child():
    votes = np.random.default_rng(3).normal(size=(2, 1, 3, 4)).astype("float32")
    means, activations, _, variances = map(array, em_routing(StoredVotes(votes), 3))
    np.testing.assert_allclose(means, votes[:, 0], rtol=1e-6)
    np.testing.assert_allclose(variances, 1e-9, rtol=1e-3)
    assert (activations > 0.5).all()


def test_gradients_of_the_last_iteration_leave_its_couplings_alone():
    with float64():
        random = np.random.default_rng(4)
        x, votes = make_case(random, 6)
        directions = [random.normal(size=shape) for shape in ((2, 3, 4, 2), (2, 3))]

        def scalar_of(**options):
            def scalar(votes, activations):
                means, _, logits, _ = em_routing(StoredVotes(votes, activations), 3, inverse_temperature=1.0, **options)
                return sum(ops.sum(d * r) for d, r in zip(directions, (means, logits), strict=True))

            return gradients_of(scalar)

        arguments = votes, x["activations"]
        value, through_all = scalar_of()(*arguments)
        same, through_last = scalar_of(gradients="last")(*arguments)
        np.testing.assert_array_equal(value, same)
        # The reference is one M-step with fixed couplings and the inverse temperature of the third iteration.
        held = array(em_routing(StoredVotes(*arguments), 3, inverse_temperature=1.0, return_couplings=True)[4])

        def m_step(votes, activations):
            _, means, variances = (made := StoredVotes(votes, activations)).moments(held, epsilon=1e-9)
            mass = ops.sum(held * activations[..., None], axis=1)
            costs = 0.5 * ops.sum(ops.log(variances + 1e-9), axis=(2, 3)) * mass
            return ops.sum(directions[0] * (means + made.origin)) - (1 - 0.95**3) * ops.sum(directions[1] * costs)

        _, expected = gradients_of(m_step)(*arguments)
        for actual, wanted, other in zip(through_last, expected, through_all, strict=True):
            np.testing.assert_allclose(actual, wanted, rtol=1e-9, atol=1e-12)
            assert np.abs(actual - other).max() > 1e-3


def test_gradients_flow_through_all_iterations():
    with float64():
        random = np.random.default_rng(5)
        x, votes = make_case(random, 7, rows=1)
        temperatures = [1 - 0.95**step for step in (1, 2, 3)]
        direction = random.normal(size=3)
        gradients = gradients_of(
            lambda v, a: ops.sum(direction * em_routing(StoredVotes(v, a), 3, inverse_temperature=temperatures)[2])
        )
        _, (gradient, _) = gradients(votes[:1], x["activations"][:1])

        def by_hand(votes):
            zeros = np.zeros(3)
            return np.sum(direction * reference(votes, x["activations"][0], zeros, zeros, temperatures)[2])

        for index in [(0, 0, 0), (3, 2, 1), (6, 1, 0)]:
            step = np.zeros(votes.shape[1:3] + (2,))
            step[index] = 1e-6
            slope = (by_hand(votes[0, :, :, 0] + step) - by_hand(votes[0, :, :, 0] - step)) / 2e-6
            np.testing.assert_allclose(gradient[0, :, :, 0][index], slope, rtol=1e-6)


@pytest.mark.parametrize(
    "form, jit, options",
    [
        ("stored", False, {}),
        ("stored", True, {"normalization": "min_max", "inverse_temperature": (1, 2)}),
        ("shared", False, {"normalization": "min_max", "inverse_temperature": (1, 2, 3)}),
        ("shared", False, {"normalization": "data"}),
        ("shared", True, {"normalization": "data"}),
    ],
    ids=way,
)
def test_finite_for_extreme_input(form, jit, options):
    x, _ = make_case(np.random.default_rng(6), 9, batch=16)
    ordinary = x["poses"][:4]
    some, eye = ordinary.copy(), np.eye(9)[[0, 3, 5, 8]]
    some[:, 2:5] *= 1e4
    # The batch combines four kinds of poses with four kinds of activations.
    x["poses"] = np.concatenate([0 * ordinary, np.ones_like(ordinary), some, 1e4 * ordinary])
    x["activations"][1::4], x["activations"][2::4], x["activations"][3::4] = 1, 0, eye

    def scalar(poses, kernel, bias, activations, beta_u, beta_a):
        votes = make_votes(form, poses, kernel, bias, activations)
        # A longer program takes longer to compile.
        results = em_routing(votes, 2 if jit else 3, beta_u=beta_u, beta_a=beta_a, **options)
        return sum(d * ops.sum(r) for d, r in zip((1.0, 2.0, 0.5, 0.25), results, strict=True))

    value, slopes = gradients_of(scalar, jit)(*(value.astype("float32") for value in x.values()))
    assert np.isfinite(value) and all(np.isfinite(slope).all() for slope in slopes)


@pytest.mark.parametrize("form, dtype, jit", [("stored", "bfloat16", True), ("shared", "float16", False)], ids=way)
def test_half_precision_is_routed_in_float32(form, dtype, jit):
    x, _ = make_case(np.random.default_rng(7), 24)
    half = [ops.cast(x[name].astype("float32"), dtype) for name in ("poses", "kernel", "activations")]

    def route(poses, kernel, activations):
        return em_routing(make_votes(form, poses, kernel, None, activations), 2)

    results = (compiled(route) if jit else route)(*half)
    for result, wanted in zip(results, route(*(ops.cast(a, "float32") for a in half)), strict=True):
        assert array(result).dtype == "float32"
        np.testing.assert_allclose(array(result), array(wanted), atol=1e-4)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"iterations": 0}, "`iterations`.*Received: 0"),
        ({"iterations": True}, "`iterations`.*Received: True"),
        ({"iterations": 2.0}, "`iterations`.*Received: 2.0"),
        ({"inverse_temperature": 0}, "`inverse_temperature`.*above 0. Received: 0"),
        ({"inverse_temperature": "hot"}, "`inverse_temperature`.*above 0. Received: 'hot'"),
        ({"inverse_temperature": (1, 2, -3)}, r"`inverse_temperature`.*above 0. Received: \(1, 2, -3\)"),
        ({"inverse_temperature": (1, 2)}, r"`inverse_temperature`.*each of the 3.*Received: \(1, 2\)"),
        ({"normalization": 0}, "`normalization`.*'data' or 'min_max'. Received: 0"),
        ({"normalization": "max"}, "`normalization`.*Received: 'max'"),
        ({"normalization": None}, "`normalization`.*Received: None"),
        ({"gradients": "first"}, "`gradients`.*Received: 'first'"),
        ({"epsilon": 0}, "`epsilon`.*Received: 0"),
        ({"variance_floor": -1e-9}, "`variance_floor`.*Received: -1e-09"),
        ({"variance_floor": 1e-50}, "`variance_floor` must be from 1.2e-38 to 3.4e\\+38. Received: 1e-50"),
    ],
)
def test_arguments_out_of_range_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        em_routing(StoredVotes(np.ones((1, 2, 3, 4), "float32")), **options)
