import itertools

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from tf_capsules.analysis import viewpoints
from tf_capsules.analysis.viewpoints import ViewPoses, Views, compare_poses, find_views, measure_view_poses
from tf_capsules.datasets.pipeline import Split

TOYS = [(0, 3), (0, 5), (2, 1)]  # category and instance


def arrays(elevations=9, azimuths=18, lightings=2):
    """Every view of three toys, in random order; an image's first pixels tell its factors, its channels differ."""
    rows = [(*toy, *rest) for toy, *rest in itertools.product(TOYS, *map(range, (elevations, azimuths, lightings)))]
    rows = np.random.default_rng(0).permutation(np.array(rows))
    image = np.zeros((len(rows), 5, 6, 2), np.uint8)
    image[:, 0, :5, 0] = rows
    image[..., 1] = image[..., 0] + 100
    return dict(zip(("label", "instance", "elevation", "azimuth", "lighting"), rows.T, strict=True)) | {"image": image}


@pytest.fixture(scope="module")
def split():
    return Split(arrays())


@pytest.fixture
def saved(tmp_path):
    """Saves a figure and checks that a picture came out."""

    def save(figure):
        assert isinstance(figure, Figure)
        figure.savefig(tmp_path / "figure.png")
        assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
        return figure

    return save


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
    with pytest.raises(ValueError, match="not tell elevation, lighting of"):
        find_views({name: whole[name] for name in ("label", "instance", "azimuth")}, "azimuth")
    with pytest.raises(ValueError, match="not tell azimuth of"):
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
    """Poses that tell the image's factors and the class; all but the airplanes from behind activate the right one."""
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
    assert len(viewpoints.pose_curves(measured).axes) == 3


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
    figure = saved(viewpoints.pose_curves(poses))
    grid = np.array(figure.axes).reshape(3, 4)
    for row, values in zip(grid, compare_poses(poses.poses), strict=True):
        for vector, axes in enumerate(row):
            *thin, mean = axes.get_lines()
            assert len(thin) == 3 and mean.get_linewidth() > 3 * thin[0].get_linewidth()
            for toy, line in enumerate(thin):
                np.testing.assert_array_equal(line.get_xdata(), poses.views.degrees)
                np.testing.assert_allclose(line.get_ydata(), values[toy, :, vector])
            np.testing.assert_allclose(mean.get_ydata(), values[:, :, vector].mean(0))
    assert f"3 of {3 * views} images activate another one" in figure.get_supxlabel()
    assert grid[2, 0].get_xlabel() == f"{factor} (degrees)"


def test_rows_hold_the_mean_curves():
    poses = measured("elevation", 9)
    rows, changes = viewpoints.pose_rows(poses), compare_poses(poses.poses)
    assert len(rows) == 9 * 4
    row = rows[4 * 5 + 2]
    assert row["elevation"] == 55 and row["pose_vector"] == 3
    for name, values in changes._asdict().items():
        np.testing.assert_allclose(row[f"{name}_mean"], values[:, 5, 2].mean(), rtol=1e-5)
        np.testing.assert_allclose(row[f"{name}_std"], values[:, 5, 2].std(), rtol=1e-5)


def test_trajectories_are_closed_polygons_that_become_opaque(saved):
    elevation, azimuth = measured("elevation", 9), measured("azimuth", 18)
    names = ("animals", "humans", "airplanes")
    figure = saved(viewpoints.pose_trajectories([elevation, azimuth], names))
    titles = [f"{name}, by {factor}" for factor in ("elevation", "azimuth") for name in ("animals", "airplanes")]
    assert [axes.get_title() for axes in figure.axes] == titles
    for axes, poses, toy in zip(figure.axes, (elevation, elevation, azimuth, azimuth), (0, 2, 0, 2), strict=True):
        *polygons, ring, disc = axes.get_lines()
        points = viewpoints.project_poses(poses.poses[toy])
        assert len(polygons) == len(points)
        for line, corners in zip(polygons, points, strict=True):
            np.testing.assert_allclose(line.get_xydata(), np.concatenate([corners, corners[:1]]))
        opacities = [line.get_alpha() for line in polygons]
        assert opacities == sorted(opacities) and opacities[0] < 0.3 and opacities[-1] == 1
        np.testing.assert_allclose(ring.get_xydata(), points[0, :1])
        np.testing.assert_allclose(disc.get_xydata(), points[-1, :1])
        assert ring.get_markerfacecolor() == "none" and axes.get_aspect() == 1


def test_trajectories_of_other_toys():
    poses = measured()
    with pytest.raises(ValueError, match="no instance 5 of category 2"):
        viewpoints.pose_trajectories(poses, instance=5)
    poses = ViewPoses(find_views(arrays(1, 18, 1), "azimuth"), poses.poses, poses.activated)
    only = ViewPoses(
        Views(
            "azimuth", poses.views.degrees, *(part[:2] for part in (poses.views.labels, poses.views.instances)), None
        ),
        poses.poses[:2],
        poses.activated[:2],
    )
    (axes,) = viewpoints.pose_trajectories(only, instance=5).axes
    np.testing.assert_allclose(axes.get_lines()[-1].get_xydata(), viewpoints.project_poses(poses.poses[1])[-1, :1])


def test_stereo_sheet_shows_the_left_above_the_right_camera(saved, split):
    figure = saved(viewpoints.stereo_sheet(split, ("animals", "human figures", "airplanes"), lighting=1))
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
    assert len(viewpoints.stereo_sheet(Split(arrays(1, 4, 1))).axes) == 2
    with pytest.raises(ValueError, match="no instance 5 of category 2"):
        viewpoints.stereo_sheet(split, instance=5)
    with pytest.raises(ValueError, match=r"two channels. Received: \(972, 5, 6, 1\)"):
        viewpoints.stereo_sheet(Split(split.arrays | {"image": split.arrays["image"][..., :1]}))


@pytest.mark.parametrize(
    "function, published, own, ticks",
    [
        (viewpoints.accuracy_by_parameters, viewpoints.SMALLNORB, ("mine", 271_688, 98.9), ["500K", "1M", "2M", "5M"]),
        (viewpoints.accuracy_by_year, viewpoints.SST5, ("mine", 2019, 47.1), ["2013", "2014"]),
        (viewpoints.accuracy_by_year, viewpoints.SST5, ("mine", 2031, 53.6), ["2013", "2031"]),
    ],
)
def test_accuracies_are_shown_with_their_names(saved, function, published, own, ticks):
    (axes,) = saved(function([own])).axes
    points = {tuple(line.get_xydata()[0]): line.get_color() for line in axes.get_lines()}
    assert set(points) == {(x, accuracy) for _, x, accuracy in (*published, own)}
    assert len({points[own[1:]], *(points[row[1:]] for row in published)}) == 2
    texts = {text.get_text().replace("\n", " "): text for text in axes.texts}
    assert set(texts) == {name for name, _, _ in (*published, own)}
    assert set(ticks) <= {text.get_text() for text in axes.get_xticklabels()}
    # No name is written over another.
    figure, canvas = axes.figure, FigureCanvasAgg(axes.figure)
    canvas.draw()
    boxes = [text.get_window_extent(canvas.get_renderer()) for text in axes.texts]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    assert all(box.x1 <= figure.bbox.width and box.x0 >= 0 for box in boxes)


def test_published_rows():
    assert max(viewpoints.SMALLNORB, key=lambda row: row[2])[1:] == (273_000, 99.1)
    assert max(viewpoints.SST5, key=lambda row: row[2])[1:] == (2019, 58.5)
    assert len(viewpoints.accuracy_by_year().axes[0].get_lines()) == 12
