import numpy as np
from backend import array
from routing.votes.forms import BATCH, CHILDREN, METHODS, OUT, PARENTS, ROWS, make_arrays, softmax_numpy

from tf_capsules.routing import StoredVotes


def test_stored_votes_against_numpy():
    x = make_arrays(1, True, False, "float32")
    v = np.random.default_rng(3).normal(size=(BATCH, CHILDREN, PARENTS, ROWS, OUT)).astype("float32")
    votes = StoredVotes(v, x["activations"], groups=3)
    w, p, a = x["weights"], x["parents"], x["activations"]
    squares = (v - p[:, None]) ** 2
    shares = a[..., None] * w
    mass = shares.sum(1)[..., None, None] + 0.01
    means = (shares[..., None, None] * v).sum(1) / mass
    couplings = softmax_numpy(x["constants"][:, None] - 0.5 * (squares * x["precisions"][:, None]).sum((-1, -2)), -1)
    routed = (a[..., None] * couplings)[..., None, None]
    routed_means = (routed * v).sum(1) / routed.sum(1)
    expected = {
        "weighted_sum": (w[..., None, None] * v).sum(1),
        "agreement": (v * p[:, None]).sum((-1, -2)),
        "log_density": x["constants"][:, None] - 0.5 * (squares * x["precisions"][:, None]).sum((-1, -2)),
        "masses": shares.reshape(BATCH, CHILDREN // 3, 3, PARENTS).sum(1),
        "means": means,
        "variances": (shares[..., None, None] * (v - means[:, None]) ** 2).sum(1) / mass,
        "variances of a function": (routed * (v - routed_means[:, None]) ** 2).sum(1) / routed.sum(1),
    }
    for method, call in METHODS.items():
        np.testing.assert_allclose(array(call(votes, x)), expected[method], rtol=1e-5, atol=1e-5, err_msg=method)
    np.testing.assert_array_equal(array(votes.tensor()), v)
