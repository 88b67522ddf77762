import numpy as np
import pytest

from tf_capsules.datasets.rendering import FLOOR, Lighting, ball, bar, block, stereo_pairs

DARK = Lighting(1.0, ())  # no lamp: the floor is bright all over, and what is painted 0 is black


def camera(azimuth, elevation):
    """The matrix that turns points into the camera's axes (right, up, towards the camera), as two rotations."""
    a, e = np.radians(azimuth + 90), np.radians(elevation)
    turn = np.array([[np.cos(a), np.sin(a), 0], [-np.sin(a), np.cos(a), 0], [0, 0, 1]])
    tilt = np.array([[1, 0, 0], [0, np.sin(e), np.cos(e)], [0, -np.cos(e), np.sin(e)]])
    return tilt @ turn


def within(solid, points):
    places = np.linalg.solve(solid.matrix, (points - solid.centre[:, None]))
    return (solid.planes[:, :3] @ places <= solid.planes[:, 3:]).all(0) & (np.array(solid.curved) @ places**2 <= 1)


SOLIDS = {
    "ball": ball((0.1, -0.2, 0.5), (0.6, 0.2, 0.3), paint=0),
    "bar": bar((-0.3, 0.2, 0.1), (0.5, -0.1, 0.7), 0.15, paint=0),
    "upright bar": bar((0.2, 0.1, 0.0), (0.2, 0.1, 0.8), 0.25, paint=0),
    "block": block((-0.5, -0.2, 0.1), (0.3, 0.4, 0.5), paint=0),
    "wing": block((-0.5, -0.4, 0.3), (0.4, 0.4, 0.5), {(0, 1): -0.3, (2, 1): 0.1}, [(1, 0.3, 0, 0.7)], paint=0),
}


@pytest.mark.parametrize("name", SOLIDS)
def test_outlines_are_those_of_the_points_within(name):
    solid, size, reach = SOLIDS[name], 40, 1.2
    azimuths, elevations = np.array([-70, 35, 200]), np.array([30, 55, 70])
    seen = stereo_pairs([solid], azimuths, elevations, DARK, size, (0.1, 0, 0.3), reach, stereo=10)
    points = np.random.default_rng(0).uniform(-1, 1, (3, 200_000))
    points = (solid.corners().mean(0) + points.T * np.ptp(solid.corners(), axis=0) / 2).T
    points = points[:, within(solid, points)]
    for view, (azimuth, elevation) in enumerate(zip(azimuths, elevations, strict=True)):
        for side, aside in enumerate((-5, 5)):
            right, up, _ = camera(azimuth + aside, elevation) @ (points - np.array([[0.1], [0], [0.3]]))
            columns, rows = ((1 + right / reach) * size / 2).astype(int), ((1 - up / reach) * size / 2).astype(int)
            inside = np.zeros((size, size), bool)
            inside[rows, columns] = True
            black = seen[view, ..., side] < FLOOR * 255 / 2
            assert (black & ~inside).sum() <= 2 and 30 < black.sum() < 800
            amid = inside[1:-1, 1:-1] & inside[:-2, 1:-1] & inside[2:, 1:-1] & inside[1:-1, :-2] & inside[1:-1, 2:]
            assert amid.sum() > 10 and black[1:-1, 1:-1][amid].all()


def test_the_nearer_solid_hides_the_other():
    near, far = block((-0.3, -0.5, 0.2), (0.3, -0.4, 0.6), paint=0), block((-0.3, 0.4, 0.2), (0.3, 0.5, 0.6), paint=0.5)
    for solids in ([near, far], [far, near]):
        front, back = stereo_pairs(solids, [-90, 90], [10, 10], DARK, 32, (0, 0, 0.4), stereo=0)[..., 0]
        assert front[16, 16] == 0 and back[16, 16] > 50


def test_light_falls_by_lambert():
    top = block((-0.5, -0.5, 0), (0.5, 0.5, 0.4), paint=0.6)
    strength, height = 0.5, 65
    (image,) = stereo_pairs([top], [-90], [80], Lighting(0.4, ((strength, 30, height),)), 32, (0, 0, 0.4))
    lamp, sky = np.sin(np.radians(height)), np.sin(np.radians(50))
    np.testing.assert_allclose(image[16, 16], 0.6 * (0.4 * (0.65 + 0.35 * sky) + strength * lamp) * 255, atol=1)
    np.testing.assert_allclose(image[0, 31], FLOOR * (0.4 + strength * lamp) * 255, atol=1)


def test_the_shadow_falls_away_from_the_lamp():
    above = ball((0, 0, 1.0), 0.15, paint=1)

    def shadow(turn):
        (image,) = stereo_pairs([above], [20], [70], Lighting(0.5, ((0.4, turn, 60),)), 64, reach=1.3, stereo=0)
        dark = image[..., 0] < FLOOR * 0.6 * 255
        dark[18:29, 26:38] = False  # the ball itself
        rows, columns = np.nonzero(dark)
        return columns.mean() - 31.5, rows.mean() - 31.5

    far = 1.0 / np.tan(np.radians(60)) / 1.3 * 32  # distance of the shadow from the point under the ball, in pixels
    for turn, direction in ((0, (-1, 0)), (180, (1, 0)), (90, (0, np.sin(np.radians(70))))):
        np.testing.assert_allclose(shadow(turn), far * np.array(direction), atol=0.7)


def test_what_is_near_moves_to_the_left_from_the_left_to_the_right_camera():
    near = ball((0, -0.6, 0.2), 0.15, paint=0)
    (image,) = stereo_pairs([near], [-90], [30], DARK, 64, (0, 0, 0.2), stereo=12)
    left, right = (np.nonzero(image[..., side] < 100)[1].mean() for side in (0, 1))
    np.testing.assert_allclose(left - right, 2 * 0.6 * np.sin(np.radians(6)) * 32, atol=0.3)


def test_a_camera_turns_round_the_scene():
    nose = ball((0.7, 0, 0), 0.1, paint=0)
    images = stereo_pairs([nose], [-90, 0, 90, 180], [45] * 4, DARK, 32, stereo=0)[..., 0]
    places = [np.argwhere(image < 100).mean(0) for image in images]
    expected = [(15.5, 26.7), (23.4, 15.5), (15.5, 4.3), (7.6, 15.5)]  # right, front, left, behind
    np.testing.assert_allclose(places, expected, atol=0.5)


def test_solids_out_of_the_picture_leave_no_trace():
    floor = stereo_pairs([], [0], [40], DARK, 16)
    np.testing.assert_array_equal(stereo_pairs([ball((9, 0, 0), 0.2, paint=0)], [0], [40], DARK, 16), floor)
    half = stereo_pairs([ball((0, 1.0, 0.2), 0.3, paint=0)], [0], [40], DARK, 16)
    assert (half[..., -1, :] == 0).any() and (half[..., 0, :] == floor[..., 0, :]).all()
