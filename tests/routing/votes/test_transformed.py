"""Votes made of poses and matrices, with no form of their own."""

import numpy as np
from backend import array
from routing.votes.forms import make_arrays

from tf_capsules.routing.votes import TransformedVotes


def test_votes_without_a_smaller_form_answer_as_stored_ones():
    x = make_arrays(3, True, True, "float32")
    votes = TransformedVotes(x["poses"], x["kernel"], x["bias"])
    stored = votes.store()
    poses = array(stored.weighted_sum(x["weights"]))
    np.testing.assert_allclose(array(votes.weighted_sum(x["weights"])), poses, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(array(votes.agreement(poses)), array(stored.agreement(poses)), rtol=1e-4, atol=1e-4)
