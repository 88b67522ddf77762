import numpy as np
import pytest

from tf_capsules.layers.arguments import truth_value


def test_truth_values():
    assert [truth_value("on", value) for value in (True, np.True_, 1, False, 0)] == [True, True, True, False, False]
    with pytest.raises(ValueError, match="`on` must be true or false. Received: 'false'"):
        truth_value("on", "false")
