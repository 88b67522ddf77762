import numpy as np
import pytest
from analysis.toys import TOYS, arrays

from tf_capsules.analysis import viewpoints
from tf_capsules.analysis.viewpoints import compare_poses, find_views, measure_view_poses
from tf_capsules.datasets.pipeline import Split


@pytest.fixture(scope="module")
def split():
    return Split(arrays())


@pytest.mark.parametrize("factor, degrees", [("azimuth", range(0, 360, 20)), ("elevation", range(30, 75, 5))])
@pytest.mark.parametrize("fixed", [{}, {"lighting": 1, "elevation": 4, "azimuth": 7}])
def test_views_follow_one_factor_while_the_others_stay(split, factor, degrees, fixed):
    views = find_views(split.arrays, factor, **fixed)
    assert views.factor == factor and list(views.degrees) == list(degrees)
    assert list(zip(views.labels, views.instances, strict=True)) == TOYS
    for name in ("label", "instance", "elevation", "azimuth", "lighting"):
        found = split.arrays[name][views.index]
        if name == factor:
            np.testing.assert_array_equal(found, [range(len(degrees))] * 3)
        else:
            expected = {"label": views.labels[:, None], "instance": views.instances[:, None]}
            assert (found == expected.get(name, fixed.get(name, 0))).all()


def test_what_cannot_be_looked_up_is_named():
    whole = arrays(2, 3, 1)
    with pytest.raises(ValueError, match="'lighting'"):
        find_views(whole, "lighting")
    with pytest.raises(ValueError, match="lacks: elevation, lighting[.]"):
        find_views({name: whole[name] for name in ("label", "instance", "azimuth")}, "azimuth")
    with pytest.raises(ValueError, match="lacks: azimuth[.]"):
        find_views(whole | {"azimuth": whole["azimuth"] - 1}, "azimuth")
    gap = np.flatnonzero((whole["label"] == 2) & (whole["azimuth"] == 1) & (whole["elevation"] == 0))
    part = {name: np.delete(column, gap, axis=0) for name, column in whole.items()}
    message = "1 of 3 toys lack views by azimuth at elevation 0 and lighting 0, such as instance 1 of category 2"
    with pytest.raises(ValueError, match=message):
        find_views(part, "azimuth")
    assert find_views(part, "azimuth", elevation=1).index.shape == (3, 3)
    with pytest.raises(ValueError, match="3 of 3 toys lack views by elevation at azimuth 17"):
        find_views(whole, "elevation", azimuth=17)


def predict(images):
    """Poses that hold an image's factors and the class. Images activate their class, except airplanes from behind."""
    factors = np.rint(images[:, 0, :5, 0] * 255)
    poses = np.zeros((len(images), 4, 3, 2))
    poses[..., 0] = factors[:, None, 1:4] + 1
    poses[..., 1] = np.arange(4)[:, None]
    activated = np.where((factors[:, 0] == 2) & (factors[:, 3] == 9), 3, factors[:, 0]).astype(int)
    return {"activations": np.eye(4)[activated], "poses": poses}


def test_poses_are_those_of_the_true_category_view_by_view(split):
    measured = measure_view_poses(predict, split, "azimuth", elevation=2)
    assert measured.poses.shape == (3, 18, 3, 2) and measured.activated.shape == (3, 18)
    for toy, (label, instance) in enumerate(TOYS):
        assert (measured.poses[toy, ..., 1] == label).all()
        np.testing.assert_array_equal(measured.poses[toy, :, 0, 0], instance + 1)
        np.testing.assert_array_equal(measured.poses[toy, :, 1, 0], 3)
        np.testing.assert_array_equal(measured.poses[toy, :, 2, 0], np.arange(18) + 1)
    assert measured.differing == 1 and measured.activated[2, 9] == 3


def test_images_are_preprocessed_as_in_evaluation_and_vectors_are_single_rows(split):
    shapes = []

    def vectors(images):
        shapes.append(images.shape)
        assert images.dtype == np.float32 and images.max() <= 1
        return {"activations": np.ones((len(images), 3)), "poses": np.ones((len(images), 3, 8))}

    measured = measure_view_poses(vectors, split, "elevation", preprocess=(("shift", 2), ("crop", 4)))
    assert shapes == [(27, 4, 4, 2)] and measured.poses.shape == (3, 9, 1, 8)


def test_changes_of_turned_and_stretched_vectors():
    t = np.radians(np.arange(0, 360, 45))
    turned = np.stack([3 * np.cos(t), 3 * np.sin(t)], axis=-1)
    stretched = np.stack([np.zeros_like(t), 2 + t], axis=-1)
    changes = compare_poses(np.stack([turned, stretched], axis=1)[None])
    assert all(values.shape == (1, 8, 2) for values in changes)
    np.testing.assert_allclose(changes.change[0], np.stack([2 * np.sin(t / 2), t / 2], -1), atol=1e-12)
    np.testing.assert_allclose(changes.norm_ratio[0], np.stack([t * 0 + 1, 1 + t / 2], -1), atol=1e-12)
    np.testing.assert_allclose(changes.cosine[0], np.stack([np.cos(t), t * 0 + 1], -1), atol=1e-12)


def test_vectors_of_length_zero():
    poses = np.ones((4, 3, 2))
    poses[2, 1] = 0
    changes = compare_poses(poses)
    assert (changes.change[2, 1], changes.norm_ratio[2, 1], changes.cosine[2, 1]) == (1, 0, 0)
    poses[0, 1] = 0
    with pytest.raises(ValueError, match="first view is zero"):
        compare_poses(poses)


def distances(points):
    flat = points.reshape(-1, points.shape[-1])
    return np.linalg.norm(flat[:, None] - flat[None], axis=-1)


def test_vectors_of_a_plane_keep_their_distances():
    random = np.random.default_rng(0)
    plane = random.normal(size=(9, 3, 2))
    axes, _ = np.linalg.qr(random.normal(size=(5, 5)))
    poses = plane @ axes[:2] + random.normal(size=5)
    points = viewpoints.project_poses(poses)
    assert points.shape == (9, 3, 2)
    np.testing.assert_allclose(distances(points), distances(plane), atol=1e-3)
    np.testing.assert_array_equal(points, viewpoints.project_poses(poses))


def test_equal_vectors_are_one_point_without_a_warning():
    assert not viewpoints.project_poses(np.ones((9, 3, 4))).any()


def test_distances_out_of_a_plane_are_kept_better_than_by_the_principal_axes():
    poses = np.random.default_rng(0).normal(size=(9, 4, 4))
    centred = poses.reshape(-1, 4) - poses.reshape(-1, 4).mean(0)
    principal = centred @ np.linalg.svd(centred)[2][:2].T
    errors = [
        ((distances(found) - distances(poses)) ** 2).sum() for found in (viewpoints.project_poses(poses), principal)
    ]
    assert errors[0] < 0.7 * errors[1]


def test_a_flipped_polygon_has_a_negative_area():
    corners = np.array([[0, 0], [3, 0], [3, 1], [0, 2]])
    np.testing.assert_allclose(viewpoints.signed_areas(np.stack([corners, corners * (1, -1)])), [4.5, -4.5])
