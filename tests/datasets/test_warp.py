import numpy as np

from tf_capsules.datasets import augment, warp


class Draw:
    """Returns the given numbers one after the other, in place of random ones."""

    def __init__(self, *numbers):
        self.numbers = list(numbers)
        self.asked = []

    def uniform(self, low, high):
        self.asked.append((low, high))
        return np.float32(self.numbers.pop(0))

    integers = uniform


class WholeDraw(Draw):
    def integers(self, low, high):
        self.asked.append((int(low), int(high)))
        return int(self.numbers.pop(0))


def image(height=5, width=7, channels=2):
    return np.random.default_rng(0).random((height, width, channels)).astype("float32")


def test_a_quarter_turn_is_numpy_s_and_none_leaves_the_image():
    square = image(6, 6)
    np.testing.assert_allclose(warp.turned(square, np.float32(np.pi / 2)), np.rot90(square), atol=1e-5)
    np.testing.assert_allclose(warp.turned(image(), np.float32(0)), image(), atol=1e-6)


def test_half_of_the_images_turn_and_none_beyond_the_limit():
    flat = image(6, 6)
    # A uniform number of 1e-7 gives a normal number of 5.7, which is cut at the limit.
    np.testing.assert_allclose(warp.rotate(flat, Draw(1e-7, 0.0, 0.4), np, 90), np.rot90(flat), atol=1e-5)
    np.testing.assert_allclose(warp.rotate(flat, Draw(1e-7, 0.0, 0.6), np, 90), flat, atol=1e-6)


def test_angles_have_a_third_of_the_limit_as_deviation(monkeypatch):
    angles = []
    monkeypatch.setattr(warp, "turned", lambda image, angle, xp: angles.append(float(angle)))
    random = np.random.default_rng(0)
    for _ in range(4000):
        warp.rotate(None, Draw(*random.uniform(size=2), 0.0), np, 30)
    angles = np.degrees(angles)
    assert abs(np.std(angles) - 9.9) < 0.4 and abs(np.mean(angles)) < 0.6 and np.abs(angles).max() <= 30.01


def test_a_narrower_image_keeps_its_middle_and_its_mass():
    row = np.zeros((1, 9, 1), "float32")
    row[0, 2:7] = 1
    half = warp.narrow(row, Draw(0.5), np, 0.5)[0, :, 0]
    np.testing.assert_allclose(half, [0, 0, 0, 1, 1, 1, 0, 0, 0], atol=1e-6)
    np.testing.assert_allclose(warp.narrow(image(), Draw(1.0), np, 0.5), image(), atol=1e-6)


def test_a_shift_stays_within_the_empty_margins():
    digit = np.zeros((6, 9, 1), "float32")
    digit[1:3, 4:6] = 1
    draw = WholeDraw(3, -4)
    moved = warp.shift_within(digit, draw, np)
    assert draw.asked == [(-1, 3), (-4, 3)]
    np.testing.assert_array_equal(np.argwhere(moved[..., 0]).min(axis=0), [4, 0])
    assert moved.sum() == digit.sum()
    negative = WholeDraw(3, -4)
    warp.shift_within(-digit, negative, np)  # standardized values may be negative
    assert negative.asked == draw.asked
    empty = WholeDraw(0, 0)
    assert not warp.shift_within(np.zeros((3, 4, 1), "float32"), empty, np).any() and empty.asked == [(0, 0)] * 2


def test_a_square_is_erased():
    erased = warp.erase(np.ones((5, 7, 2), "float32"), WholeDraw(3, 1), np, 2)
    np.testing.assert_array_equal(np.argwhere(erased[..., 1] == 0), [[3, 1], [3, 2], [4, 1], [4, 2]])


def test_in_evaluation_nothing_is_changed():
    for step in (("rotate", 30), ("narrow", 0.2), ("shift_within",), ("erase", 2)):
        assert augment.apply((step,), digit := image()) is digit
