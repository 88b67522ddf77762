import numpy as np
import pytest
from backend import array, as_one_program, float64, gradients_of, way
from keras import ops

from tf_capsules import routing
from tf_capsules.routing import DistinctVotes, SharedVotes, StoredVotes, squash_exponential

self_attention_routing = as_one_program(routing.self_attention_routing)


def problem(seed=0, groups=5, pose=(4,), dtype="float32"):
    """Poses of 2 examples and 5 children, a kernel to 3 parents of 6 columns, a prior and a mask."""
    random = np.random.default_rng(seed)
    poses = random.normal(size=(2, 5, *pose)).astype(dtype)
    kernel = random.normal(size=(groups, 3, pose[-1], 6)).astype(dtype)
    prior = random.normal(size=(5, 3)).astype(dtype)
    mask = np.array([[1, 0, 1, 1, 1], [0, 1, 1, 0, 1]], bool)
    return poses, kernel, prior, mask


def stored(poses, kernel):
    kernel = np.broadcast_to(kernel, (5, *kernel.shape[1:]))
    return np.einsum("bi...d,ijde->bij...e", poses, kernel)


def reference(votes, prior=None, mask=None):
    """The paper's equations in NumPy, sample by sample, from votes (batch, children, parents, *pose)."""
    batch, children, parents, *pose = votes.shape
    all_poses, all_couplings = [], []
    for sample in range(batch):
        present = [i for i in range(children) if mask is None or mask[sample, i]]
        couplings = np.zeros((children, parents))
        for i in present:
            logits = [
                np.sum(votes[sample, i, j] * sum(votes[sample, k, j] for k in present)) / np.sqrt(np.prod(pose))
                for j in range(parents)
            ]
            logits = np.exp(np.array(logits) - max(logits))
            couplings[i] = logits / logits.sum() + (0 if prior is None else prior[i])
        poses = np.zeros((parents, *pose))
        for j in range(parents):
            s = sum(couplings[i, j] * votes[sample, i, j] for i in present)
            norm = np.sqrt(np.sum(s * s))
            poses[j] = (1 - np.exp(-norm)) * s / norm
        all_poses.append(poses)
        all_couplings.append(couplings)
    return np.array(all_poses), np.array(all_couplings)


@pytest.mark.parametrize("pose", [(4,), (2, 4)])
@pytest.mark.parametrize("with_prior", [False, True])
@pytest.mark.parametrize("with_mask", [False, True])
def test_every_form_of_votes_follows_the_equations(pose, with_prior, with_mask):
    for groups, of in ((5, DistinctVotes), (1, SharedVotes)):
        poses, kernel, prior, mask = problem(groups=groups, pose=pose)
        options = dict(prior=prior if with_prior else None, mask=mask if with_mask else None)
        wanted = reference(stored(poses, kernel), **options)
        for votes in (of(poses, kernel), StoredVotes(stored(poses, kernel))):
            found = self_attention_routing(votes, **options, return_couplings=True)
            for one, other in zip(found, wanted, strict=True):
                np.testing.assert_allclose(array(one), other, atol=2e-5)
            np.testing.assert_array_equal(array(self_attention_routing(votes, **options)), array(found[0]))


def test_votes_that_are_not_stored_have_the_same_gradients():
    poses, kernel, prior, _ = problem(dtype="float64")
    with float64():

        def loss(form):
            def of(poses, kernel, prior):
                votes = DistinctVotes(poses, kernel)
                votes = votes.store() if form == "stored" else votes
                return ops.sum(self_attention_routing(votes, prior=prior) ** 3)

            value, gradients = gradients_of(of)(poses, kernel, prior)
            return [value, *gradients]

        for one, other in zip(loss("stored"), loss("distinct"), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("jit", [False, True], ids=way)
def test_capsules_of_zeros_have_finite_gradients(jit):
    poses, kernel, prior, _ = problem()
    value, gradients = gradients_of(
        lambda poses, kernel: ops.sum(self_attention_routing(DistinctVotes(poses, kernel), prior=prior)), jit
    )(0 * poses, kernel)
    assert np.isfinite(value) and all(np.isfinite(gradient).all() for gradient in gradients)
    assert np.abs(gradients[0]).max() > 0


def test_the_squash_keeps_short_capsules_and_ends_below_one():
    x = np.array([[0.0, 0.0], [3e-4, 4e-4], [0.6, 0.8], [30.0, 40.0]], "float32")
    norm = np.array([1e-6, 5e-4, 1.0, 50.0])
    wanted = x * ((1 - np.exp(-norm)) / norm)[:, None]
    np.testing.assert_allclose(array(squash_exponential(x)), wanted, rtol=1e-4)
    # Also over the axes of a matrix.
    np.testing.assert_allclose(
        array(squash_exponential(x[None], (1, 2)))[0],
        x * (1 - np.exp(-np.linalg.norm(x))) / np.linalg.norm(x),
        rtol=1e-5,
    )
