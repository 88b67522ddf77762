import numpy as np
import pytest

from tf_capsules.arguments import is_number, is_positive, is_whole, positive_int, positive_number


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3)])
def test_whole_numbers_of_python_and_numpy_become_an_int(value):
    number = positive_int("units", value)
    assert number == 3 and type(number) is int


@pytest.mark.parametrize("value", [0, -2, 2.0, np.float32(2), True, np.True_, "2", None, np.array([2, 3])])
def test_all_else_is_refused_and_named(value):
    with pytest.raises(ValueError, match="`units` must be a whole number of at least 1. Received: "):
        positive_int("units", value)


def test_whole_numbers_have_limits():
    assert [is_whole(value, 2, 4) for value in (1, 2, np.int8(4), 5)] == [False, True, True, False]
    assert is_whole(-(10**20)) and not is_whole(True) and not is_whole("2") and not is_whole(3.0, 2)


def test_numbers_are_finite():
    assert is_number(0) and is_number(-2.5) and is_number(np.float32(3)) and is_number(10**400)
    assert not any(map(is_number, (float("inf"), -np.inf, float("nan"), True, "2", None, 1j)))
    assert is_positive(1e-9) and not is_positive(0)
    with pytest.raises(ValueError, match="`epsilon` must be from 1.2e-38 to 3.4e.38. Received: 1000"):
        positive_number("epsilon", 10**400)
