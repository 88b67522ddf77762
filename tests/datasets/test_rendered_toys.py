import itertools

import numpy as np
import pytest

from tf_capsules import datasets
from tf_capsules.datasets.rendered_toys import CLASS_NAMES, render


@pytest.fixture(scope="module")
def toys():
    return datasets.load("rendered_toys", size=16, train_pairs=400, test_pairs=150)


def test_the_set_is_like_smallnorb(toys):
    assert (toys.train.size, toys.test.size, toys.image_shape) == (400, 150, (16, 16, 2))
    assert toys.class_names == CLASS_NAMES and len(CLASS_NAMES) == 5
    assert "synthetic" in toys.note and "not smallNORB" in toys.note
    for split, instances in ((toys.train, {4, 6, 7, 8, 9}), (toys.test, {0, 1, 2, 3, 5})):
        assert set(split.arrays) == {"image", "label", "instance", "elevation", "azimuth", "lighting"}
        found = {name: set(split.arrays[name]) for name in split.arrays if name != "image"}
        assert found == {
            "label": set(range(5)),
            "instance": instances,
            "elevation": set(range(9)),
            "azimuth": set(range(18)),
            "lighting": set(range(6)),
        }
        rows = list(zip(*(split.arrays[name] for name in found), strict=True))
        assert len(set(rows)) == split.size and rows != sorted(rows)


def test_the_pairs_of_each_split_are_drawn_for_themselves(toys):
    train, test = (
        np.stack([split.arrays[name][:150] for name in ("label", "elevation", "azimuth", "lighting")], 1)
        for split in (toys.train, toys.test)
    )
    assert (train == test).all(1).mean() < 0.05


def test_toys_are_trained_on_as_in_heinsen_2019(toys):
    pytest.importorskip("tensorflow")
    x, y = next(iter(toys.train.batches(7, training=True, preprocess=(("pad_crop", 2, "edge"),), mixup=(0.2, 5))))
    assert x.shape == (7, 16, 16, 2) and y["label"].shape == (7, 5)


def test_images_are_those_of_their_factors(toys):
    arrays = toys.test.arrays
    for i in range(0, 150, 30):
        factors = {name: arrays[name][i] for name in arrays if name != "image"}
        np.testing.assert_array_equal(arrays["image"][i], render(**factors, size=16)[0])


def test_all_views_of_a_toy():
    elevation, azimuth = np.array(list(itertools.product(range(9), range(18)))).T
    images = render(3, 2, elevation, azimuth, 0, size=12)
    assert images.shape == (162, 12, 12, 2) and images.dtype == np.uint8
    assert len(np.unique(images.reshape(162, -1), axis=0)) == 162
    assert (images[..., 0] != images[..., 1]).any((1, 2)).all()


def test_every_toy_and_lighting_is_its_own():
    label, instance = np.array(list(itertools.product(range(5), range(10)))).T
    assert len(np.unique(render(label, instance, 2, 3, 1, size=24).reshape(50, -1), axis=0)) == 50
    lightings = render(1, 4, 3, 5, range(6), size=24).astype(int)
    for one, other in itertools.combinations(lightings, 2):
        assert abs(one - other).mean() > 5


def test_toys_fill_the_picture_and_stay_in_it():
    label, instance = np.array(list(itertools.product(range(5), range(10)))).T
    images = render(label, instance, 8, 7, 3, size=32)[..., 0].astype(int)  # from high above: the shadow is small
    floor = images[:, 0, 0]
    assert (np.abs(images[:, [0, -1]] - floor[:, None, None]) < 3).all()
    assert (np.abs(images[:, :, [0, -1]] - floor[:, None, None]) < 3).all()
    size = [np.ptp(np.argwhere(np.abs(image - image[0, 0]) > 20), axis=0).max() for image in images]
    assert min(size) >= 11 and max(size) <= 28


def test_a_toy_faces_right_then_away_then_left_then_to_the_camera():
    giraffes = render(0, 2, 0, [0, 4, 9, 13], 5, size=48)[..., 0].astype(int)
    places = [np.argwhere(image < image[0, 0] - 50) for image in giraffes]
    top = [place[:, 0].min() for place in places]
    heads = [place[place[:, 0] < first + 6, 1].mean() for place, first in zip(places, top, strict=True)]
    right, away, left, near = heads
    assert right > 26 > away > 21 and left < 21 < near < 26
    assert top[1] < min(top[0], top[2]) and max(top[0], top[2]) < top[3]  # seen from above, what is far is higher up


def test_categories_can_be_told_apart(toys):
    """Nearest neighbours on 16x16 pixels know the categories of new toys far better than chance, 20%."""
    from sklearn.neighbors import KNeighborsClassifier

    (x, y), (z, t) = (
        (split.arrays["image"].reshape(split.size, -1) / 255, split.arrays["label"])
        for split in (toys.train, toys.test)
    )
    x, z = ((v - v.mean(1, keepdims=True)) / v.std(1, keepdims=True) for v in (x, z))
    assert KNeighborsClassifier(3).fit(x, y).score(z, t) > 0.5


def test_factors_can_be_chosen():
    options = {"size": 8, "train_pairs": 10, "test_pairs": None}
    test = datasets.load("rendered_toys", **options, elevations=[0.0, 8.0], azimuths=range(0, 18, 6), lightings=2).test
    assert test.size == 5 * 5 * 2 * 3 and set(test.arrays["lighting"]) == {2}
    assert set(test.arrays["elevation"]) == {0, 8} and set(test.arrays["azimuth"]) == {0, 6, 12}


@pytest.mark.parametrize("factor, familiar", [("azimuth", {0, 1, 2, 15, 16, 17}), ("elevation", {0, 1, 2})])
def test_novel_viewpoints(factor, familiar):
    name, options = f"rendered_toys_novel_{factor}", {"size": 8, "lightings": 2}
    toys = datasets.load(name, **options, train_pairs=60, test_pairs=50)
    assert (toys.train.size, toys.familiar.size, toys.test.size) == (60, 50, 50) and toys.name == name
    assert set(toys.train.arrays[factor]) == set(toys.familiar.arrays[factor]) == familiar
    assert not set(toys.test.arrays[factor]) & familiar
    for split, instances in ((toys.train, {4, 6, 7, 8, 9}), (toys.familiar, {0, 1, 2, 3, 5})):
        assert set(split.arrays["instance"]) == instances and set(split.arrays["lighting"]) == {2}
    with pytest.raises(ValueError, match="test_pairs must be a whole number from 1 to 1,350, .* not 1351"):
        datasets.load(name, **options, train_pairs=None, test_pairs=1351)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"test_pairs": 24301}, "test_pairs must be a whole number from 1 to 24,300, .* not 24301"),
        ({"train_pairs": 0}, "train_pairs .* not 0"),
        ({"train_pairs": 2.5}, "train_pairs .* not 2.5"),
        ({"lightings": (*range(6), 77), "train_pairs": 1, "test_pairs": 1}, "lighting is a whole number .* not 77"),
        ({"lightings": (0, 6)}, "lighting is a whole number from 0 to 5, not 6"),
        ({"azimuths": ()}, "from 1 to 0"),
        ({"elevations": -1}, "elevation is a whole number from 0 to 8, not -1"),
        ({"size": 4}, "size .* not 4"),
    ],
)
def test_bad_options_are_named_at_once(options, words):
    with pytest.raises(ValueError, match=words):
        datasets.load("rendered_toys", **options)
