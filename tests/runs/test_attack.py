import pytest

from tf_capsules.runs.attack import RunAttack


def test_an_attack_needs_a_run():
    with pytest.raises(ValueError, match="Give one run or more"):
        RunAttack({})
