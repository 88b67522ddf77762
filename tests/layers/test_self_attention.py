import keras
import numpy as np
import pytest
from backend import array

from tf_capsules.layers import SelfAttentionRouting


def test_a_layer_routes_with_its_kernel_and_prior():
    layer = SelfAttentionRouting(3, 6, prior_initializer="random_normal")
    poses = np.random.default_rng(0).normal(size=(2, 2, 1, 3, 4)).astype("float32")
    found, couplings = layer(poses, return_couplings=True)
    assert found.shape == (2, 3, 6) and couplings.shape == (2, 6, 3)
    assert layer.kernel.shape == (6, 3, 4, 6) and layer.prior.shape == (6, 3)
    # The softmax over the parents sums to 1; the layer adds the prior after it.
    sums = array(couplings).sum(axis=-1) - array(layer.prior.value).sum(axis=-1)
    np.testing.assert_allclose(sums, 1, atol=1e-5)
    np.testing.assert_allclose(array(layer(poses)), array(found), atol=1e-6)
    flat = poses.reshape(2, 6, 4)
    again = SelfAttentionRouting(3, 6)
    again.build(flat.shape)
    again.set_weights(layer.get_weights())
    np.testing.assert_allclose(array(again(flat)), array(found), atol=1e-6)


@pytest.mark.parametrize("sharing", ["none", "positions", "all"])
def test_stored_votes_give_the_same(sharing):
    poses = np.random.default_rng(1).normal(size=(2, 3, 2, 4, 5)).astype("float32")
    free = SelfAttentionRouting(3, 6, sharing, votes_memory="recompute")
    held = SelfAttentionRouting(3, 6, sharing, votes_memory="store")
    first = array(free(poses))
    held.build(poses.shape)
    held.set_weights(free.get_weights())
    np.testing.assert_allclose(array(held(poses)), first, atol=1e-5)
    assert (free.stores_votes, held.stores_votes) == (False, True)


def test_the_kernel_has_the_spread_of_the_released_code():
    layer = SelfAttentionRouting(5, 16)
    layer.build((None, 16, 8))
    # he_normal of a tensor (5, 16, 8, 16) there: fan-in 5 * 16 * 8.
    assert np.std(array(layer.kernel.value)) == pytest.approx(np.sqrt(2 / 640), rel=0.05)


def test_without_a_prior_children_that_share_may_be_of_any_number():
    layer = SelfAttentionRouting(3, 6, sharing="all", use_prior=False)
    model = keras.Sequential([keras.Input((None, 4)), layer])
    assert layer.prior is None
    assert [model(np.ones((2, count, 4))).shape for count in (3, 7)] == [(2, 3, 6)] * 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SelfAttentionRouting(0, 4), "`capsules` must be a whole number of at least 1. Received: 0"),
        (lambda: SelfAttentionRouting(2, 4, sharing="some"), "`sharing` must be one of .* Received: 'some'"),
        (
            lambda: SelfAttentionRouting(2, 4, votes_memory="maybe"),
            "`votes_memory` must be one of .* Received: 'maybe'",
        ),
        (lambda: SelfAttentionRouting(2, 4)(keras.Input((None, 3))), "needs to know the number of children"),
        (lambda: SelfAttentionRouting(2, 4, "all")(keras.Input((None, 3))), "needs to know the number of children"),
        (lambda: SelfAttentionRouting(2, 4)(np.ones((1, 5, 3)), mask=np.ones((1, 4))), "`mask` must be shaped like"),
    ],
)
def test_what_does_not_fit_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_shares_are_known_before_the_layer_is_built():
    assert SelfAttentionRouting(2, 4, use_prior=False).couplings_are_shares
    assert not SelfAttentionRouting(2, 4).couplings_are_shares
