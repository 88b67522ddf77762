import numpy as np
import pytest
from backend import array, as_one_program, float64, gradients_of, results_and_gradients, slow_on_jax, way
from keras import ops
from oracle import ATOL, HEINSEN, heinsen_case

from tf_capsules import routing
from tf_capsules.routing import SharedVotes, StoredVotes, mask_logits
from tf_capsules.routing.votes import TransformedVotes

heinsen_routing = as_one_program(routing.heinsen_routing)
PRECISION = {"float32": ATOL, "float64": 1e-6}


def sigmoid(x):
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def reference(votes, activations, beta_use, beta_ignore, iterations, epsilon=1e-5):
    """Algorithm 1 step by step, on votes (children, parents, rows, columns) of one sample, in float64."""
    children, parents = votes.shape[:2]
    couplings = np.full((children, parents), 1 / parents)
    scores = means = variances = None
    for iteration in range(iterations):
        if iteration:
            log_density = -((votes - means) ** 2 / (2 * variances) + 0.5 * np.log(variances)).sum((-1, -2))
            logits = log_density - np.logaddexp(0, -scores)
            couplings = np.exp(logits - logits.max(-1, keepdims=True))
            couplings /= couplings.sum(-1, keepdims=True)
        used = activations[:, None] * couplings
        ignored = activations[:, None] - used
        scores = (beta_use * used).sum(0) - (beta_ignore * ignored).sum(0)
        mass = used.sum(0)[:, None, None] + epsilon
        means = (used[..., None, None] * votes).sum(0) / mass
        variances = (used[..., None, None] * (votes - means) ** 2).sum(0) / mass + epsilon
    return scores, means, variances, couplings


def check(results, expected, atol, names=("a_out", "mu_out", "sig2_out", "R")):
    for result, name in zip(results, names, strict=False):
        if name in expected:
            np.testing.assert_allclose(array(result), expected[name], atol=atol, rtol=0, err_msg=name)


def route(form, x, activations=None, dtype="float64", **options):
    """Routes a case's arrays with votes of a form."""
    if activations is None and "a_inp" in x:
        activations = sigmoid(x["a_inp"]).astype(dtype)
    votes = (SharedVotes if form != "stored" else TransformedVotes)(x["mu_inp"], x["W"], x["B"], activations)
    if form == "chunks":
        votes.children_per_chunk = 2
    options = {"beta_use": x["beta_use"], "beta_ignore": x["beta_ign"], **options}
    return heinsen_routing(votes.store() if form == "stored" else votes, return_couplings=True, **options)


@pytest.mark.parametrize("dtype", PRECISION)
def test_oracle_of_fixed_inputs(dtype):
    with float64():
        x, case = heinsen_case("A_fixed_inp_fixed_out", dtype)
        votes = array(TransformedVotes(x["mu_inp"], x["W"], x["B"]).tensor())
        np.testing.assert_allclose(votes[0, 0], case["votes_sample0_inp0"], atol=PRECISION[dtype])
        np.testing.assert_allclose([votes.sum(), (votes**2).sum()], case["votes_checksum"], atol=10 * PRECISION[dtype])
        for expected in case["iterations"]:
            results = route("stored", x, dtype=dtype, iterations=expected["iteration"])
            check(results, expected, PRECISION[dtype])


@pytest.mark.parametrize("form", ["stored", "shared", "chunks"])
def test_oracle_of_masks(form):
    with float64():
        x, case = heinsen_case("B_variable_inp_masks")
        for expected in case["iterations"]:
            results = route(form, x, iterations=expected["iteration"])
            check(results[:3], expected, 1e-6)
            check([results[3][:2]], {"R": np.array(expected["R"])[:2]}, 1e-6, ["R"])
        alone = {**x, "mu_inp": x["mu_inp"][1:2, :3], "a_inp": x["a_inp"][1:2, :3]}
        for result, whole in zip(route(form, alone)[:3], route(form, x)[:3], strict=True):
            np.testing.assert_allclose(array(result)[0], array(whole)[1], atol=1e-9)
        for result, empty in zip(results, (0, 0, 1e-5), strict=False):
            np.testing.assert_allclose(array(result)[2], empty, atol=1e-12)


def test_oracle_of_options():
    with float64():
        x, _ = heinsen_case("A_fixed_inp_fixed_out")
        check(route("stored", x, density="soft_k_means"), HEINSEN["G_soft_k_means"], 1e-6)
        check(route("stored", x, beta_ignore=x["beta_use"]), HEINSEN["H_single_beta"], 1e-6)
        one = {**x, "W": x["W"][:, :1], "B": x["B"][:, :1], "beta_use": x["beta_use"][:, :1]}
        one["beta_ign"] = x["beta_ign"][:, :1]
        check(route("stored", one), HEINSEN["I_one_output"], 1e-6)
        single = {name: value[:1] for name, value in x.items()}
        single["mu_inp"], single["a_inp"] = x["mu_inp"][:1, :1], np.array([[np.inf]])
        check(route("stored", single), HEINSEN["J_single_input_F1"], 1e-6)


def test_oracle_of_a_mixed_mask():
    case = HEINSEN["F_mixup_mask"]
    mixed = (1 - case["r"]) * np.array(case["own_mask"]) + case["r"] * np.array(case["other_mask"])
    np.testing.assert_allclose(mixed, case["mixed_mask"])
    np.testing.assert_allclose(array(mask_logits(mixed)), np.array(case["a_inp"], float), atol=1e-6)
    np.testing.assert_array_equal(array(mask_logits(np.array([True, False]))), [np.inf, -np.inf])


def make_case(random, children, groups=1, batch=2, parents=3, rows=4, columns=5, out=2):
    """Arrays of float64: poses, kernel, bias, activations, both betas, and the votes written out."""
    x = {
        "poses": random.normal(size=(batch, children, rows, columns)),
        "kernel": random.normal(size=(groups, parents, columns, out)) / columns,
        "bias": 0.3 * random.normal(size=(groups, parents, rows, out)),
        "activations": random.random((batch, children)),
        "beta_use": random.normal(size=(groups, parents)),
        "beta_ignore": random.normal(size=(groups, parents)),
    }
    each = np.arange(children) % groups
    votes = np.einsum("bird,ijde->bijre", x["poses"], x["kernel"][each]) + x["bias"][each]
    return x, votes, each


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("form", ["stored", "shared", "chunks"])
def test_equals_the_reference_and_keeps_the_invariants(form, groups):
    random = np.random.default_rng(groups)
    with float64():
        for iterations in (1, 2, 4):
            x, votes, each = make_case(random, 12, groups)
            made = TransformedVotes(x["poses"], x["kernel"], x["bias"], x["activations"]).store()
            if form != "stored":
                chunk = 5 if form == "chunks" else None
                made = SharedVotes(x["poses"], x["kernel"], x["bias"], x["activations"], chunk)
            betas = {name: x[name] for name in ("beta_use", "beta_ignore")}
            results = heinsen_routing(made, iterations, **betas, return_couplings=True)
            for b in range(2):
                expected = reference(
                    votes[b], x["activations"][b], x["beta_use"][each], x["beta_ignore"][each], iterations
                )
                for result, wanted in zip(results, expected, strict=True):
                    np.testing.assert_allclose(array(result)[b], wanted, atol=1e-8)
            # Paper, section 2.4: the used share, the ignored share and 1 - activation sum to 1.
            couplings, activations = array(results[3]), x["activations"][..., None]
            used = activations * couplings
            ignored = activations - used
            assert (used >= 0).all() and (used <= activations).all() and (activations <= 1).all()
            np.testing.assert_allclose(used + ignored + (1 - activations), 1)
            np.testing.assert_allclose(used.sum(-1, keepdims=True), activations)
            np.testing.assert_allclose(ignored.sum(-1, keepdims=True), (3 - 1) * activations)


def values_and_gradients(form, x, directions, dtype):
    """Results and their gradients with respect to all arguments."""
    values = [value.astype(dtype) for value in x.values()]

    def results(poses, kernel, bias, activations, beta_use, beta_ignore):
        if form == "stored":
            votes = SharedVotes(poses, kernel, bias, activations).store()
        else:
            votes = SharedVotes(poses, kernel, bias, activations, 3 * poses.shape[1] // 7 if form == "chunks" else None)
        return heinsen_routing(votes, 3, beta_use=beta_use, beta_ignore=beta_ignore)

    answers, gradients = results_and_gradients(results, directions)(*values)
    return [*answers, *gradients]


def largest_difference(actual, expected):
    """The largest difference of arrays, relative to the largest entry of each."""
    assert all(np.isfinite(x).all() for x in actual)
    return max(np.abs(a - e).max() / max(np.abs(e).max(), 1e-3) for a, e in zip(actual, expected, strict=True))


@slow_on_jax
@pytest.mark.parametrize(
    "children, groups, offset", [(8, 4, 0), (8, 1, 100), (40, 4, 0), (40, 1, 100), (300, 1, 0), (300, 1, 100)]
)
def test_routing_without_stored_votes_equals_routing_with_stored_votes(children, groups, offset):
    forms = ("shared", "chunks") if children == 40 else ("shared",)
    with float64():
        random = np.random.default_rng([groups, children])
        parents, rows, columns, out = (int(n) for n in random.integers((2, 1, 1, 1), (9, 5, 6, 5)))
        x, _, _ = make_case(random, children, groups, 2, parents, rows, columns, out)
        x["poses"] += offset
        x["beta_use"] /= children**0.5
        x["beta_ignore"] /= children**0.5
        x = {name: value.astype("float32") for name, value in x.items()}  # inputs that both types hold
        pose = (2, parents, rows, out)
        directions = [random.normal(size=shape) for shape in (pose[:2], pose, pose)]
        expected = values_and_gradients("stored", x, directions, "float64")
        for form in forms:
            actual = values_and_gradients(form, x, directions, "float64")
            assert largest_difference(actual, expected) < 1e-9, form
        # With few children variances are near epsilon and amplify the rounding of float32.
        for form in ("stored", *forms):
            actual = values_and_gradients(form, x, directions, "float32")
            tolerance = 3e-5 if not offset else 1e-4 if children > 8 else 2e-4
            assert largest_difference(actual[:3], expected[:3]) < tolerance, form
            assert largest_difference(actual[3:], expected[3:]) < 2 * tolerance, form


def test_a_density_may_be_a_function():
    with float64():
        x, votes, _ = make_case(np.random.default_rng(3), 9)
        made = SharedVotes(x["poses"] + 5, x["kernel"], x["bias"], x["activations"]).store()

        def gaussian(votes, means, variances):
            squares = ops.square(votes - means[:, None]) / variances[:, None] + ops.log(variances)[:, None]
            return -0.5 * ops.sum(squares, axis=(-2, -1))

        betas = {name: x[name] for name in ("beta_use", "beta_ignore")}
        results = heinsen_routing(made, 3, density=gaussian, **betas)
        expected = heinsen_routing(made, 3, **betas)
        for a, b in zip(results, expected, strict=True):
            np.testing.assert_allclose(array(a), array(b), atol=1e-9)


@slow_on_jax
@pytest.mark.parametrize(
    "form, jit",
    [("stored", False), ("stored", True), ("shared", False), ("shared", True), ("chunks", False)],
    ids=way,
)
def test_finite_for_extreme_input(form, jit):
    x, _, _ = make_case(np.random.default_rng(4), 9)
    directions = [1.0, 0.5, 0.25]
    some = x["poses"].copy()
    some[:, 2:5] *= 1e4
    scores = np.random.default_rng(5).normal(size=(2, 9))
    infinite = np.where(scores > 0, np.inf, -np.inf)
    # The batch combines four kinds of poses with four kinds of scores.
    x["poses"] = np.repeat([0 * some, np.ones_like(some), some, x["poses"]], 4, axis=0).reshape(-1, *some.shape[1:])
    x["activations"] = np.concatenate(4 * [scores, infinite, np.full_like(scores, -np.inf), 1e4 * scores])

    def scalar(poses, kernel, bias, scores, beta_use, beta_ignore):
        activations = ops.sigmoid(scores)
        if form == "stored":
            votes = SharedVotes(poses, kernel, bias, activations).store()
        else:
            votes = SharedVotes(poses, kernel, bias, activations, 4 if form == "chunks" else None)
        results = heinsen_routing(votes, 2 if jit else 4, beta_use=beta_use, beta_ignore=beta_ignore)
        return sum(d * ops.sum(r) for d, r in zip(directions, results, strict=True))

    value, slopes = gradients_of(scalar, jit)(*(value.astype("float32") for value in x.values()))
    assert np.isfinite(value) and all(np.isfinite(slope).all() for slope in slopes)


def test_arguments_out_of_range_are_named():
    votes = StoredVotes(np.ones((1, 2, 3, 4), "float32"))
    for iterations in (0, -1, 2.0, True, None):
        with pytest.raises(ValueError, match=f"`iterations`.*Received: {iterations}"):
            heinsen_routing(votes, iterations)
    with pytest.raises(ValueError, match="`density`.*Received: 'laplace'"):
        heinsen_routing(votes, density="laplace")
    with pytest.raises(ValueError, match="`epsilon`.*Received: 0"):
        heinsen_routing(votes, epsilon=0)
