import pytest
from keras import ops

from tf_capsules.routing.votes import plan


def test_sums_store_votes_where_a_childs_pose_is_larger():
    assert plan.for_sums("auto", False, (), 17, 16).stored and not plan.for_sums("auto", False, (), 16, 16).stored
    assert not plan.for_sums("auto", True, (), 17, 16).stored
    assert plan.for_sums("store", True, (), 3, 16).stored and not plan.for_sums("recompute", False, (), 17, 16).stored


@pytest.mark.parametrize("rows, parents, stored", [((), 3, True), ((), 4, False), ((4,), 4, False), ((), None, False)])
def test_moments_store_votes_where_features_are_more(rows, parents, stored):
    # A row of 4 has 15 features (4 rows have 57); a vote has 4 numbers for each row and parent.
    assert plan.for_moments("auto", True, rows, 4, 4, parents).stored == stored


def test_few_children_store_votes():
    of_calls = plan.for_moments("auto", True, (), 4, 4, 64, fewest=8)
    assert not of_calls.stored and of_calls.stores(7) and not of_calls.stores(8) and not of_calls.stores(None)
    assert ops.is_tensor(of_calls.stores(ops.convert_to_tensor(7)))
    never = plan.for_moments("recompute", True, (), 4, 4, 64, fewest=8)
    assert never.stores(ops.convert_to_tensor(7)) is False


def test_children_with_matrices_of_their_own_store_votes_for_moments():
    assert plan.for_moments("auto", False, (), 4, 4, 64).stored


def test_bytes():
    batch, children, parents = 3, 11, 5
    pairs = children * parents

    def of(plan, iterates=True):
        return plan.cost(batch, children, pairs, iterates)

    tensor = 4 * batch * pairs * 2 * 6
    assert of(plan.for_sums("store", False, (2,), 7, 6)) == (tensor, tensor)
    assert of(plan.for_sums("recompute", False, (2,), 7, 6)) == (tensor, 4 * batch * pairs * 2 * 7)
    assert of(plan.for_sums("recompute", False, (2,), 7, 6), iterates=False) == (tensor, 0)
    assert of(plan.for_sums("recompute", False, (2,), 7, 6, examples=1)) == (tensor, 4 * pairs * 2 * 7)
    assert of(plan.for_sums("auto", True, (2,), 7, 6)) == (tensor, 0)
    windows = plan.in_windows("auto", (2,), 7, 6, pairs, positions=pairs)
    assert windows.examples == 2_000_000 // (pairs * 12) and of(windows) == (tensor, tensor)
    stored = plan.in_windows("store", (2,), 7, 6, pairs, positions=pairs)
    assert stored.stored and stored.examples is None and of(stored) == (tensor, tensor)
    large = plan.in_windows(
        "auto", (), 600, 500, 9_000, positions=9
    )  # 4.5 million numbers of votes, 300 million weights
    assert large.examples == 900_000_000 // 4_500_000


def test_a_chunk_of_examples_has_at_least_one():
    assert plan.examples_at_a_time(5_000_000) == 1
    assert plan.examples_at_a_time(500_000) == 4 and plan.examples_at_a_time(1_000_000, at_least=9_000_000) == 9
