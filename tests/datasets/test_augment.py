import colorsys

import numpy as np
import pytest

from tf_capsules.datasets import augment

STEPS = {
    "shift": ("shift", 3),
    "crop": ("crop", 4),
    "pad": ("pad", 2),
    "pad_crop": ("pad_crop", 3, "edge"),
    "shift_within": ("shift_within",),
    "rotate": ("rotate", 30),
    "narrow": ("narrow", 0.25),
    "erase": ("erase", 2),
    "flip": ("flip",),
    "brightness": ("brightness", 63),
    "contrast": ("contrast", 0.2, 1.8),
    "jitter": ("jitter", 0.3),
    "standardize": ("standardize",),
    "standardize_each": ("standardize_each",),
    "normalize": ("normalize", (0.1, 0.2, 0.3), (0.5, 1.0, 2.0)),
    "downscale": ("downscale", 2),
    "resize": ("resize", 7),
}


class Replay:
    """Gives the same random numbers to every caller, whichever library its tensors belong to."""

    def __init__(self, seed, integer=int, number=float):
        self.random, self.integer, self.number = np.random.default_rng(seed), integer, number

    def integers(self, low, high):
        return self.integer(self.random.integers(low, high, endpoint=True))

    def uniform(self, low, high):
        return self.number(self.random.uniform(low, high))


def image(height=6, width=8, channels=3):
    return np.random.default_rng(1).random((height, width, channels)).astype("float32")


@pytest.mark.parametrize("step", [*STEPS.values(), ("pad_crop", 9, "zero"), ("pad_crop", 9, "edge")])
@pytest.mark.parametrize("training", [True, False])
def test_tensorflow_equals_numpy(step, training):
    tf = pytest.importorskip("tensorflow")
    import tensorflow.experimental.numpy as tnp

    for seed in range(4):
        tensors = (lambda value: tf.constant(value, tf.int32)), (lambda value: tf.constant(value, tf.float32))
        draw, again = (Replay(seed), Replay(seed, *tensors)) if training else (None, None)
        expected = augment.apply((step,), image(), draw)
        found = augment.apply((step,), tf.constant(image()), again, tnp)
        assert found.dtype == tf.float32 and expected.dtype == np.float32
        np.testing.assert_allclose(found, expected, atol=1e-6)
        assert expected.shape == augment.output_shape((step,), (6, 8, 3))


def test_every_step_is_tested():
    assert set(STEPS) == set(augment._STEPS)


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_in_evaluation_the_steps_that_stay_are_those_that_do_something(step):
    after = augment.apply((step,), image())
    same = after.shape == image().shape and (after == image()).all()
    assert augment.in_evaluation((step,)) == (() if same else (step,))


@pytest.mark.parametrize("down, right", [(0, 0), (2, -1), (-2, 2), (-1, 0)])
def test_shift_fills_with_zeros_and_never_wraps(down, right):
    x = image(5, 4, 1) + 1
    found = augment.shifted(x, down, right, 2)
    expected = np.zeros_like(x)
    for row in range(5):
        for column in range(4):
            if 0 <= row - down < 5 and 0 <= column - right < 4:
                expected[row, column] = x[row - down, column - right]
    np.testing.assert_array_equal(found, expected)


def test_shifts_reach_both_ends():
    x = np.zeros((5, 7, 1), "float32")
    x[2, 3] = 1
    places = {tuple(np.argwhere(augment.apply((("shift", 1),), x, Replay(seed)))[0][:2] - (2, 3)) for seed in range(99)}
    assert places == {(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1)}


def test_evaluation_crops_the_centre_and_draws_nothing():
    x = image(6, 8, 2)
    np.testing.assert_array_equal(augment.apply((("crop", 4),), x), x[1:5, 2:6])
    random_only = (("shift", 2), ("flip",), ("brightness", 63), ("contrast", 0.2, 1.8))
    np.testing.assert_array_equal(augment.apply(random_only, x), x)


def test_a_turned_hue_is_that_of_hsv():
    x = image(5, 7)
    x[0, 0], x[0, 1] = 0.3, (0.0, 0.0, 0.5)  # a grey pixel, and one without red and green
    for turn in (0.0, 0.1, -0.4, 1 / 3):
        found = augment.turned_hue(x, turn)
        for pixel, turned in zip(x.reshape(-1, 3), found.reshape(-1, 3), strict=True):
            hue, saturation, value = colorsys.rgb_to_hsv(*pixel.tolist())
            expected = colorsys.hsv_to_rgb((hue + turn) % 1, saturation, value)
            np.testing.assert_allclose(turned, expected, atol=2e-6)


def test_jitter_stays_in_the_range_and_near_the_image():
    x = image(9, 9)
    for seed in range(20):
        found = augment.apply((("jitter", 0.2),), x, Replay(seed))
        assert 0 <= found.min() and found.max() <= 1
        assert 0 < np.abs(found - x).mean() < 0.35
    np.testing.assert_allclose(augment.apply((("jitter", 0.0),), x, Replay(0)), x, atol=1e-6)


def test_fixed_crops_are_the_corners_the_centre_and_these_mirrored():
    x = image(6, 8, 2)
    windows = [x[:4, :4], x[:4, 4:], x[2:, :4], x[2:, 4:], x[1:5, 2:6]]
    windows += [window[:, ::-1] for window in windows]
    assert len(augment.FIXED_CROPS) == len(windows)
    for name, window in zip(augment.FIXED_CROPS, windows, strict=True):
        np.testing.assert_array_equal(augment.apply((("crop", 4),), x, augment.FixedCrop(name)), window, err_msg=name)


def test_random_steps_rest_beside_fixed_crops():
    x = image(6, 8, 2)
    found = augment.apply((("shift", 2), ("crop", 4)), x, augment.FixedCrop("centre"))
    np.testing.assert_array_equal(found, x[1:5, 2:6])


def test_crops_reach_both_ends():
    x = np.arange(6 * 8, dtype="float32").reshape(6, 8, 1)
    corners = {augment.apply((("crop", 5),), x, Replay(seed))[0, 0, 0] for seed in range(99)}
    assert corners == {8 * top + left for top in (0, 1) for left in (0, 1, 2, 3)}


@pytest.mark.parametrize("fill, mode", [("edge", "edge"), ("zero", "constant")])
def test_pad_crop_is_a_window_of_the_padded_image(fill, mode):
    x = image(5, 7, 2)
    padded = np.pad(x, ((2, 2), (2, 2), (0, 0)), mode)
    windows = {(top, left): padded[top : top + 5, left : left + 7] for top in range(5) for left in range(5)}
    seen = set()
    for seed in range(200):
        found = augment.apply((("pad_crop", 2, fill),), x, Replay(seed))
        places = [place for place, window in windows.items() if np.array_equal(window, found)]
        assert len(places) == 1  # the same window in both channels
        seen.update(places)
    assert seen == set(windows)
    np.testing.assert_array_equal(augment.apply((("pad_crop", 2, fill),), x), x)


def test_flip_is_horizontal():
    x = image()
    found = [augment.apply((("flip",),), x, Replay(seed)) for seed in range(20)]
    assert {np.array_equal(f, x) for f in found} == {True, False}
    assert all(np.array_equal(f, x) or np.array_equal(f, x[:, ::-1]) for f in found)


def test_brightness_and_contrast_are_not_clipped():
    tf = pytest.importorskip("tensorflow")

    class Fixed:
        def __init__(self, value):
            self.value = value

        def uniform(self, low, high):
            assert low <= self.value <= high
            return self.value

    x = image()
    np.testing.assert_allclose(augment.apply((("brightness", 63),), x, Fixed(51)), x + 0.2, atol=1e-6)
    np.testing.assert_allclose(
        augment.apply((("contrast", 0.2, 1.8),), x, Fixed(1.5)), tf.image.adjust_contrast(x, 1.5), atol=1e-6
    )
    assert augment.apply((("brightness", 63),), x, Fixed(51)).max() > 1


@pytest.mark.parametrize("scale", [1, 1e-5])
def test_standardize_is_that_of_tensorflow_on_0_to_255(scale):
    tf = pytest.importorskip("tensorflow")
    x = image() * np.float32(scale)  # the small scale reaches the floor under the deviation
    expected = tf.image.per_image_standardization(x * 255)
    np.testing.assert_allclose(augment.apply((("standardize",),), x), expected, atol=1e-5)


def test_each_image_of_a_stereo_pair_is_standardized_by_itself():
    pair = image(channels=2) * np.array([1.0, 0.2], "float32") + np.array([0.0, 0.5], "float32")
    found = augment.apply((("standardize_each",),), pair)
    for channel in range(2):
        alone = augment.apply((("standardize",),), pair[..., channel : channel + 1])
        np.testing.assert_allclose(found[..., channel : channel + 1], alone, atol=1e-6)
        np.testing.assert_allclose([found[..., channel].mean(), found[..., channel].std()], [0, 1], atol=1e-5)


def test_downscale_is_the_mean_of_blocks():
    x = image(4, 6, 2)
    found = augment.apply((("downscale", 2),), x)
    np.testing.assert_allclose(found[1, 2], x[2:4, 4:6].mean((0, 1)), atol=1e-6)


def test_shapes_through_a_chain():
    steps = [["pad", 4], ["crop", 32], ["downscale", 4]]
    assert augment.check(steps) == (("pad", 4), ("crop", 32), ("downscale", 4))
    assert augment.output_shape(steps, (30, 28, 3)) == (8, 8, 3)


def test_normalize_takes_each_channel_s_own_numbers():
    x = image()
    found = augment.apply((("normalize", (0.5, 0, -1), (2, 1, 0.5)),), x)
    expected = np.stack([(x[..., 0] - 0.5) / 2, x[..., 1], (x[..., 2] + 1) / 0.5], axis=-1)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "steps, words",
    [
        ("flip", "sequence"),
        ((("blur", 2),), "unknown preprocess step 'blur'"),
        ((("shift", -1),), r"'shift' takes .* not \(-1,\)"),
        ((("shift", 1.5),), "'shift' takes"),
        ((("crop",),), "'crop' takes"),
        ((("flip", 1),), "'flip' takes no value"),
        ((("pad_crop", 16),), "'pad_crop' takes"),
        ((("pad_crop", 16, "mirror"),), """'pad_crop' takes .* "edge" or "zero", not .*'mirror'"""),
        ((("contrast", 1.8, 0.2),), "'contrast' takes"),
        ((("brightness", True),), "'brightness' takes"),
        (("flip",), "a name and its values"),
        ((("crop", 9),), "'crop' 9 is larger than the image of 6x8"),
        ((("normalize", 0.5, 0.2),), "'normalize' takes"),
        ((("normalize", (0.5,), (0.0,)),), "'normalize' takes a mean and a deviation above 0"),
        ((("normalize", (0.5,), (0.2,)),), "'normalize' .*the image has 3 channels"),
        ((("downscale", 4),), "'downscale' 4 does not divide 6x8"),
        ((("jitter", 0.6),), "'jitter' takes a number from 0 to 0.5"),
    ],
)
def test_bad_steps_are_named(steps, words):
    with pytest.raises(ValueError, match=words):
        augment.apply(steps, image())


def test_resize_is_bilinear():
    given = image()
    np.testing.assert_allclose(augment.apply((("resize", 6),), given[:, :6]), given[:, :6], atol=1e-7)
    twice = augment.apply((("resize", 4),), np.array([[0, 4], [8, 16]], "float32")[..., None])[..., 0]
    row = np.array([0, 1, 3, 4])  # centers at -1/4, 1/4, 3/4 and 5/4 of the way, the ends held
    np.testing.assert_allclose(twice[0], row)
    np.testing.assert_allclose(twice[-1], 8 + 2 * row)
    np.testing.assert_allclose(twice[:, 0], 2 * row)


def test_colours_need_three_channels():
    with pytest.raises(ValueError, match="'jitter' 0.2 is for colours: the image has 1 channels"):
        augment.output_shape((("jitter", 0.2),), (6, 8, 1))
