import dataclasses

import numpy as np
import pytest
from analysis.toys import TOYS, arrays

from tf_capsules.analysis import plots
from tf_capsules.analysis.viewpoints import ViewPoses, Views, compare_poses, find_views, project_poses


def stereo_sheet(columns, class_names=None, instance=None, **fixed):
    views = find_views(columns, "azimuth", **fixed)
    return plots.draw_stereo_sheet(columns["image"], views, class_names, instance)


def measured(factor="azimuth", views=18):
    degrees = {"azimuth": 20 * np.arange(views), "elevation": 30 + 5 * np.arange(views)}[factor]
    labels, instances = np.array(TOYS).T
    poses = np.random.default_rng(views).normal(size=(3, views, 4, 5)) + 1
    activated = np.repeat(labels[:, None], views, 1)
    activated[1, :3] = 4
    return ViewPoses(Views(factor, degrees, labels, instances, np.zeros((3, views), int)), poses, activated)


@pytest.mark.parametrize("factor, views", [("azimuth", 18), ("elevation", 9)])
def test_curves_show_every_toy_and_the_mean(saved, factor, views):
    poses = measured(factor, views)
    figure = saved(plots.draw_pose_curves(poses))
    grid = np.array(figure.axes).reshape(3, 4)
    for row, values in zip(grid, compare_poses(poses.poses), strict=True):
        for vector, axes in enumerate(row):
            *thin, mean = axes.get_lines()
            assert len(thin) == 3 and mean.get_linewidth() > 3 * thin[0].get_linewidth()
            for toy, line in enumerate(thin):
                np.testing.assert_array_equal(line.get_xdata(), poses.views.degrees)
                np.testing.assert_allclose(line.get_ydata(), values[toy, :, vector])
            np.testing.assert_allclose(mean.get_ydata(), values[:, :, vector].mean(0))
    assert f"3 of {3 * views} images activate another one" in figure.get_supxlabel().replace("\n", " ")
    assert grid[2, 0].get_xlabel() == f"{factor} (degrees)"


def test_trajectories_lead_each_vector_from_view_to_view(saved):
    elevation, azimuth = measured("elevation", 9), measured("azimuth", 18)
    names = ("animals", "humans", "airplanes")
    figure = saved(plots.draw_pose_trajectories([elevation, azimuth], names))
    titles = [f"{name}, by {factor}" for factor in ("elevation", "azimuth") for name in ("animals", "airplanes")]
    assert [axes.get_title() for axes in figure.axes] == titles
    for axes, poses, toy in zip(figure.axes, (elevation, elevation, azimuth, azimuth), (0, 2, 0, 2), strict=True):
        points = project_poses(poses.poses[toy])
        first, last, *others = axes.get_lines()
        for polygon, corners in ((first, points[0]), (last, points[-1])):
            np.testing.assert_allclose(polygon.get_xydata(), np.concatenate([corners, corners[:1]]))
        assert (first.get_linestyle(), last.get_linestyle()) == ("--", "-")
        assert len(others) == 3 * points.shape[1]
        for vector, (path, ring, disc) in enumerate(zip(others[::3], others[1::3], others[2::3], strict=True)):
            np.testing.assert_allclose(path.get_xydata(), points[:, vector])
            np.testing.assert_allclose(ring.get_xydata(), points[:1, vector])
            np.testing.assert_allclose(disc.get_xydata(), points[-1:, vector])
            assert path.get_color() == ring.get_color() == disc.get_color()
            assert ring.get_fillstyle() == "none" and disc.get_fillstyle() == "full"
        assert len({path.get_color() for path in others[::3]}) == points.shape[1]
        assert axes.get_aspect() == 1


def test_trajectories_of_other_toys():
    poses = measured()
    with pytest.raises(ValueError, match="no name for category 2. Received: .'cat', 'dog'."):
        plots.draw_pose_trajectories(poses, class_names=["cat", "dog"])
    with pytest.raises(ValueError, match="no instance 5 of category 2"):
        plots.draw_pose_trajectories(poses, instance=5)
    poses = ViewPoses(find_views(arrays(1, 18, 1), "azimuth"), poses.poses, poses.activated)
    only = ViewPoses(
        Views(
            "azimuth", poses.views.degrees, *(part[:2] for part in (poses.views.labels, poses.views.instances)), None
        ),
        poses.poses[:2],
        poses.activated[:2],
    )
    (axes,) = plots.draw_pose_trajectories(only, instance=5).axes
    np.testing.assert_allclose(axes.get_lines()[-1].get_xydata(), project_poses(poses.poses[1])[-1:, -1])


def test_stereo_sheet_shows_the_left_above_the_right_camera(saved):
    split = arrays()
    figure = saved(stereo_sheet(split, ("animals", "human figures", "airplanes"), lighting=1))
    assert [axes.get_ylabel() for axes in figure.axes] == ["animals", "airplanes"]
    for axes, (label, instance) in zip(figure.axes, (TOYS[0], TOYS[2]), strict=True):
        sheet = np.asarray(axes.get_images()[0].get_array())
        assert sheet.shape == (2 * 5, 18 * 6)
        for azimuth in range(18):
            for camera in (0, 1):
                corner = sheet[5 * camera, 6 * azimuth : 6 * azimuth + 5]
                np.testing.assert_array_equal(corner, np.array([label, instance, 0, azimuth, 1]) + 100 * camera)
    ticks = [text.get_text() for text in figure.axes[-1].get_xticklabels()]
    assert ticks == [str(degrees) for degrees in range(0, 360, 20)]
    assert len(stereo_sheet(arrays(1, 4, 1)).axes) == 2
    with pytest.raises(ValueError, match="no instance 5 of category 2"):
        stereo_sheet(split, instance=5)
    with pytest.raises(ValueError, match=r"two channels. Received: \(972, 5, 6, 1\)"):
        stereo_sheet(split | {"image": split["image"][..., :1]})


def test_vectors_are_single_rows_and_hardly_moving_ones_look_still():
    poses = measured()
    vectors = dataclasses.replace(poses, poses=1 + 1e-3 * poses.poses[:, :, :1])
    figure = plots.draw_pose_curves(vectors)
    assert len(figure.axes) == 3
    for axes in figure.axes:
        assert np.ptp(axes.get_ylim()) > 0.199
