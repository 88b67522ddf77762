"""Votes of children with matrices of their own; `test_base.py` compares their answers with those of stored votes."""

import numpy as np
import pytest
from routing.votes.forms import COLUMNS, OUT, PARENTS, make_arrays

from tf_capsules.routing import DistinctVotes


def test_children_that_do_not_fit_the_kernel_are_named():
    x = make_arrays(1, False, False, "float32")
    with pytest.raises(ValueError, match=r"(?s)6 children.*kernel.*\(3, 4, 5, 7\)"):
        DistinctVotes(x["poses"], np.ones((3, PARENTS, COLUMNS, OUT), "float32"))
