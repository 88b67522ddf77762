import typing
from collections.abc import Sequence

import pytest

from tf_capsules.argument_types import is_of


@pytest.mark.parametrize(
    ("value", "hint", "fits"),
    [
        (3, int, True),
        (3, float, True),
        (3.0, int, False),
        (True, int, False),
        (True, bool, True),
        (None, int | None, True),
        ("3", int | None, False),
        ((1, 2), tuple[int, int], True),
        ((1, 2), tuple[int, int, int], False),
        ((1, "2"), tuple[int, ...], False),
        ([1], tuple[int, ...], False),
        ((), tuple[str, ...], True),
        ({}, dict, True),
        ((1, 2), Sequence[int], True),
        ("12", Sequence[str], False),
        (((1, 2), (3,)), Sequence[Sequence[int]], True),
        ((1, "2"), list[int], False),
        (object(), typing.Any, True),
    ],
)
def test_is_of_checks_values_against_type_hints(value, hint, fits):
    assert is_of(value, hint) is fits
