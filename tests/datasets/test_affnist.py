import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from tf_capsules import datasets  # noqa: E402
from tf_capsules.datasets.affnist import affine, random_map  # noqa: E402
from tf_capsules.datasets.draws import TensorDraw  # noqa: E402

STILL = {"angle": 0.0, "shear": 0.0, "scale": (1.0, 1.0), "place": (0.5, 0.5)}


def bar():
    """An image of 9x7 pixels with a column of 5 pixels at its centre, whose lower end is brighter."""
    image = np.zeros((9, 7, 1), "uint8")
    image[2:7, 3] = 100
    image[6, 3] = 250
    return image


def test_the_identity_map_gives_the_padded_image():
    found = affine(tf.constant(bar()), 3, **STILL)
    np.testing.assert_allclose(found, np.pad(bar(), ((3, 3), (3, 3), (0, 0))) / 255, atol=1e-6)


def test_a_quarter_turn_is_clockwise():
    found = np.asarray(affine(tf.constant(bar()), 3, **STILL | {"angle": 90.0}))[..., 0]
    expected = np.zeros((15, 13))
    expected[7, 4:9] = [250, 100, 100, 100, 100]
    np.testing.assert_allclose(found * 255, expected, atol=1e-3)


def test_shear_moves_lower_rows_right():
    found = np.asarray(affine(tf.constant(bar()), 3, **STILL | {"shear": 1.0}))[..., 0]
    np.testing.assert_allclose(np.diag(found[5:10, 4:9]) * 255, [100, 100, 100, 100, 250], atol=1e-3)


def test_scale_is_down_then_right():
    rows, columns = np.nonzero(affine(tf.constant(bar()), 3, **STILL | {"scale": (2.0, 1.0)})[..., 0])
    assert set(columns) == {6} and np.ptp(rows) >= 8


def test_places_are_from_edge_to_edge():
    for place, row, column in (((0.0, 0.0), 1, 1), ((1.0, 1.0), 9, 11), ((0.0, 1.0), 1, 11)):
        rows, columns, _ = np.nonzero(affine(tf.constant(bar()), 3, **STILL | {"place": place}))
        assert (rows.min(), columns.min()) == (row, column)


def test_random_maps_keep_the_whole_digit():
    from scipy import ndimage

    image = bar()
    for index in range(50):
        options = {name: np.array(value) for name, value in random_map(TensorDraw(0, index)).items()}
        assert abs(options["angle"]) <= 20 and abs(options["shear"]) <= 0.2
        assert (0.8 <= options["scale"]).all() and (options["scale"] <= 1.2).all()
        found = np.asarray(affine(tf.constant(image), 3, **options))[..., 0]
        assert found[[0, -1]].max() < 0.15 and found[:, [0, -1]].max() < 0.15  # interpolation may leave a faint fringe
        # SciPy agrees on the same map
        turn = np.deg2rad(options["angle"])
        matrix = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
        matrix = np.linalg.inv(matrix @ [[1, 0], [options["shear"], 1]] @ np.diag(options["scale"]))
        still = affine(tf.constant(image), 3, **options | {"place": (0.5, 0.5)})[..., 0]
        middle = np.array(ndimage.center_of_mass(np.asarray(still)))
        expected = ndimage.affine_transform(image[..., 0] / 255, matrix, (4, 3) - matrix @ (7, 6), (15, 13), order=1)
        moved = middle - ndimage.center_of_mass(expected)
        expected = ndimage.affine_transform(
            image[..., 0] / 255, matrix, (4, 3) - matrix @ ((7, 6) + moved), (15, 13), order=1
        )
        np.testing.assert_allclose(still, expected, atol=0.03)


def test_standin_from_digits():
    standin = datasets.load("affnist_standin", source="digits", maps_per_digit=3)
    assert standin.test.size == 3 * 360 and standin.image_shape == (20, 20, 1) and "stand-in" in standin.note
    x, y = next(iter(standin.test.batches(720)))
    np.testing.assert_array_equal(y[:360], y[360:])
    assert (np.abs(x[:360] - x[360:]).max((1, 2, 3)) > 0).all()
    again, _ = next(iter(standin.test.batches(720, seed=3)))
    np.testing.assert_array_equal(x, again)


def test_expanded_mnist_keeps_the_digits_and_reaches_the_edges():
    expanded = datasets.load("expanded_mnist", source="digits")
    assert expanded.image_shape == (20, 20, 1) and expanded.train.size == 1437
    x, _ = next(iter(expanded.test.batches(360)))
    original = expanded.test.arrays["image"] / 255
    np.testing.assert_allclose(np.sum(x, (1, 2, 3)), original.sum((1, 2, 3)), rtol=1e-5)
    used = np.asarray(x).max((0, 3)) > 0
    assert used[0].any() and used[-1].any() and used[:, 1].any() and used[:, -2].any()
    first, second = (
        next(iter(expanded.train.batches(1437, training=True, epochs=e + 1, initial_epoch=e)))[0] for e in (0, 1)
    )
    assert len({image.tobytes() for image in first.numpy()} & {image.tobytes() for image in second.numpy()}) < 100


@pytest.mark.long
def test_published_sizes(mnist_at_hand):
    standin = datasets.load("affnist_standin", mnist_at_hand)
    assert (standin.train.size, standin.test.size, standin.image_shape) == (60_000, 320_000, (40, 40, 1))
    x, _ = next(iter(standin.test.batches(64)))
    sums = standin.test.arrays["image"][:64].sum((1, 2, 3)) / 255
    assert 0.6 < float(np.sum(x)) / sums.sum() < 1.5  # scales from 0.8 to 1.2 per axis


@pytest.mark.long
@pytest.mark.parametrize("transposed, batches", [(False, True), (True, False)])
def test_official_files(mnist_at_hand, tmp_path, transposed, batches):
    from scipy.io import savemat

    mnist = datasets.load("mnist", mnist_at_hand).test.arrays
    images = np.pad(mnist["image"][:60], ((0, 0), (6, 6), (6, 6), (0, 0)))
    stored = images.transpose(0, 2, 1, 3) if transposed else images

    def save(path, part):
        path.parent.mkdir(exist_ok=True)
        data = {"image": stored[part].reshape(-1, 1600).T, "label_int": mnist["label"][:60][part].astype("uint8")}
        savemat(path, {"affNISTdata": data})

    if batches:
        save(tmp_path / "test_batches" / "1.mat", slice(0, 40))
        save(tmp_path / "test_batches" / "2.mat", slice(40, 60))
    else:
        save(tmp_path / "test.mat", slice(0, 60))
    affnist = datasets.load("affnist", tmp_path, mnist_dir=mnist_at_hand)
    np.testing.assert_array_equal(affnist.test.arrays["image"], images)
    np.testing.assert_array_equal(affnist.test.arrays["label"], mnist["label"][:60])
    assert (
        affnist.note == "60 of the 320,000 official test images"
        and affnist.train.size == 60000
        and affnist.image_shape == (40, 40, 1)
    )


def test_absent_or_wrong_files(tmp_path):
    from scipy.io import savemat

    with pytest.raises(FileNotFoundError, match=f"{tmp_path}.*affnist_standin"):
        datasets.load("affnist", tmp_path)
    savemat(tmp_path / "test.mat", {"affNISTdata": {"image": np.zeros((1600, 3), "uint8"), "label_int": [1, 2]}})
    with pytest.raises(ValueError, match=r"test.mat is no affNIST file .*\(1600, 3\)"):
        datasets.load("affnist", tmp_path)
    (tmp_path / "test.mat").write_text("hello")
    with pytest.raises(ValueError, match="test.mat is no affNIST file"):
        datasets.load("affnist", tmp_path)


def test_bad_options_are_named():
    with pytest.raises(ValueError, match="`maps_per_digit` must be .* Received: 0"):
        datasets.load("affnist_standin", maps_per_digit=0)
