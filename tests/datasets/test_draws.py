import pytest

pytest.importorskip("tensorflow")

from tf_capsules.datasets.draws import TensorDraw  # noqa: E402


def test_draws_cover_their_range():
    integers = {int(TensorDraw(0, index).integers(-2, 2)) for index in range(99)}
    assert integers == {-2, -1, 0, 1, 2}
    draw = TensorDraw(0, 1)
    numbers = [float(draw.uniform(3.0, 4.0)) for _ in range(64)]
    assert len(set(numbers)) == 64 and 3 <= min(numbers) < 3.2 and 3.8 < max(numbers) < 4
    with pytest.raises(ValueError, match="at most 64"):
        draw.uniform(0.0, 1.0)
