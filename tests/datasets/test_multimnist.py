import json
import pathlib

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from tf_capsules import datasets  # noqa: E402
from tf_capsules.datasets.multimnist import overlay, overlay_split  # noqa: E402

ORACLE = pathlib.Path(__file__).parents[1] / "oracles" / "dynamic_routing.json"


def test_overlay_oracle():
    case = next(case for case in json.loads(ORACLE.read_text())["cases"] if case["name"] == "E_overlay")
    digits = [np.array(case[name], "uint8")[..., None] for name in ("digit1", "digit2")]
    merged, parts = overlay(digits, (case["shift1_dy_dx"], case["shift2_dy_dx"]), case["pad"])
    np.testing.assert_array_equal(merged[..., 0], case["merged"])
    np.testing.assert_array_equal(parts[0, ..., 0], case["shifted1"])
    np.testing.assert_array_equal(parts[1, ..., 0], case["shifted2"])


def test_overlay_clips_at_255():
    bright = np.full((1, 2, 1), 200, "uint8")
    merged, _ = overlay((bright, bright), ((0, 0), (0, 1)), 1)
    np.testing.assert_array_equal(merged[1, :, 0], [0, 200, 255, 200])


@pytest.fixture(scope="module")
def digits():
    """Twelve digits of four classes; each has a uniform brightness of its own."""
    labels = np.array([0, 2, 1, 2, 2, 3, 0, 2, 2, 1, 2, 2])
    images = np.broadcast_to(np.arange(1, 13, dtype="uint8")[:, None, None, None] * 10, (12, 3, 5, 1))
    return {"image": images.copy(), "label": labels}


def read(stream):
    batches = [tf.nest.map_structure(np.asarray, batch) for batch in stream]
    return tf.nest.map_structure(lambda *parts: np.concatenate(parts), *batches)


def test_pairs(digits):
    split = overlay_split(digits, 5, pairs_per_digit=300, max_shift=2, pad=2)
    assert split.size == 3600 and split.image_shape == (7, 9, 1)
    x, y = read(split.batches(400))
    np.testing.assert_allclose(x, np.minimum(y["parts"].sum(1), 1), atol=1e-6)
    brightest = np.rint(y["parts"].max((2, 3, 4)) * 25.5).astype(int) - 1  # back to the digits' numbers
    np.testing.assert_array_equal(brightest[:, 0], np.tile(np.arange(12), 300))
    np.testing.assert_array_equal(y["part_labels"], digits["label"][brightest])
    assert (y["part_labels"][:, 0] != y["part_labels"][:, 1]).all()
    np.testing.assert_array_equal(y["label"], np.eye(5)[y["part_labels"]].sum(1))
    # every digit of another class is a partner equally often
    for base in range(12):
        partners = np.bincount(brightest[base::12, 1], minlength=12)
        others = digits["label"] != digits["label"][base]
        assert (partners[~others] == 0).all()
        np.testing.assert_allclose(partners[others], 300 / others.sum(), atol=5 * np.sqrt(300 / others.sum()))


def test_shifts_are_independent_and_reach_both_ends(digits):
    split = overlay_split(digits, 4, pairs_per_digit=100, max_shift=1, pad=2)
    _, y = read(split.batches(400))
    seen = y["parts"][..., 0] > 0
    top, left = seen.any(3).argmax(2) - 2, seen.any(2).argmax(2) - 2
    moves = np.stack([top[:, 0], left[:, 0], top[:, 1], left[:, 1]], axis=1)
    assert len({tuple(move) for move in moves}) == 3**4
    assert (seen.sum((2, 3)) == 15).all()  # nothing is cut off


@pytest.mark.long
def test_evaluation_is_fixed_and_training_is_fresh(digits):
    split = overlay_split(digits, 4, pairs_per_digit=5, max_shift=2, pad=2)
    one, two = (read(split.batches(size, seed=seed))[0] for size, seed in ((7, 0), (60, 1)))
    np.testing.assert_array_equal(one, two)
    epochs = [
        read(split.batches(60, training=True, epochs=epoch + 1, initial_epoch=epoch, seed=1))[0] for epoch in (0, 1, 0)
    ]
    np.testing.assert_array_equal(epochs[0], epochs[2])
    images = [{image.tobytes() for image in epoch} for epoch in epochs]
    assert len(images[0] & images[1]) < 6


def test_diverse(digits):
    split = overlay_split(digits, 4, pairs_per_digit=300, max_shift=2, pad=2, single=1 / 6)
    x, y = read(split.batches(600))
    alone = y["part_labels"][:, 1] == -1
    assert abs(alone.mean() - 1 / 6) < 0.02
    assert (y["parts"][alone, 1] == 0).all() and (y["parts"][~alone, 1].max((1, 2, 3)) > 0).all()
    np.testing.assert_array_equal(y["label"].sum(1), np.where(alone, 1, 2))
    np.testing.assert_allclose(x[alone], y["parts"][alone, 0])


def test_sets():
    pairs = datasets.load("multimnist", source="digits", pairs_per_digit=50)
    assert pairs.multi_label and pairs.train.size == 1437 * 50 and pairs.image_shape == (16, 16, 1)
    assert pairs.note == datasets.load("expanded_mnist", source="digits").note == "made of digits"
    diverse = datasets.load("diverse_multimnist", source="digits")
    assert diverse.multi_label and diverse.test.size == 360
    x, y = next(iter(diverse.train.batches(3, training=True)))
    assert x.shape == (3, 16, 16, 1) and y["parts"].shape == (3, 2, 16, 16, 1) and y["label"].shape == (3, 10)


@pytest.mark.long
def test_published_sizes(mnist_at_hand):
    pairs = datasets.load("multimnist", mnist_at_hand)
    assert (pairs.train.size, pairs.test.size, pairs.image_shape) == (60_000_000, 10_000_000, (36, 36, 1))
    x, y = next(iter(pairs.train.batches(8, training=True, seed=1)))
    assert x.shape == (8, 36, 36, 1) and float(x.numpy().max()) <= 1
    with pytest.raises(ValueError, match="one label each, not 'multimnist'"):
        datasets.load("diverse_multimnist", mnist_at_hand, source="multimnist")
    with pytest.raises(ValueError, match="one label each, not 'sst_fine'"):
        datasets.load("affnist_standin", source="sst_fine")
    with pytest.raises(ValueError, match="stored images .*, not 'affnist_standin'"):
        datasets.load("multimnist", mnist_at_hand, source="affnist_standin")


@pytest.mark.parametrize(
    "options, words",
    [
        ({"pairs_per_digit": 0}, "pairs_per_digit .* not 0"),
        ({"max_shift": 1.5}, "max_shift .* not 1.5"),
        ({"pad": True}, "pad .* not True"),
        ({"max_shift": 6}, "max_shift 6 .* pad 4"),
    ],
)
def test_bad_options_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        datasets.load("multimnist", **options)


def test_one_class_is_refused(digits):
    with pytest.raises(ValueError, match="two classes"):
        overlay_split({"image": digits["image"], "label": np.zeros(12, int)}, 4, 1, 1, 1)
