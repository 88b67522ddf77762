import itertools

import keras
import numpy as np
import pytest

from tf_capsules.datasets.arrays import ArrayBatches

STEPS = (("shift", 2), ("contrast", 0.5, 1.5))


def arrays(n=11):
    images = np.random.default_rng(0).integers(0, 256, (n, 5, 6, 2), dtype=np.uint8)
    images[:, 0, 0, 0] = np.arange(n)
    return images, np.arange(n) % 3


def numbers(batches):
    return [np.rint(batches[i][0][:, 0, 0, 0] * 255).astype(int).tolist() for i in range(len(batches))]


def test_evaluation_goes_in_order():
    x, y = arrays()
    batches = ArrayBatches(x, y, 4)
    assert numbers(batches) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]
    images, labels = batches[2]
    assert images.dtype == np.float32 and labels.dtype == np.int32
    np.testing.assert_allclose(images, x[8:] / 255, rtol=1e-6)
    np.testing.assert_array_equal(labels, [2, 0, 1])


def test_an_epoch_holds_every_example_once_in_its_own_order():
    batches = numbers(ArrayBatches(*arrays(), 4, training=True, seed=5, epochs=3))
    epochs = [sum(batches[3 * e : 3 * e + 3], []) for e in range(3)]
    assert all(sorted(epoch) == list(range(11)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs + [list(range(11))]}) == 4


def test_the_order_of_a_pass_is_drawn_once(monkeypatch):
    drawn, draw = [], np.random.default_rng
    monkeypatch.setattr(np.random, "default_rng", lambda key: drawn.append(key) or draw(key))
    numbers(ArrayBatches(*arrays(), 4, training=True, seed=50_123, epochs=3))
    assert [key for key in drawn if np.size(key) == 2] == [(50_123, 0), (50_123, 1), (50_123, 2)]


def test_starting_later_gives_the_same_batches():
    options = {"preprocess": STEPS, "training": True, "seed": 7, "epochs": 5, "pad": True}
    whole, rest = ArrayBatches(*arrays(), 4, **options), ArrayBatches(*arrays(), 4, initial_epoch=3, **options)
    assert len(rest) == 6
    for i in range(6):
        for part, other in zip(whole[9 + i], rest[i], strict=True):
            np.testing.assert_array_equal(part, other)
    assert not np.array_equal(whole[0][0], whole[3][0])
    with pytest.raises(IndexError):
        rest[6]


def test_augmentation_is_of_the_example_not_of_its_batch():
    small, large = (ArrayBatches(*arrays(), size, preprocess=STEPS, training=True, seed=3) for size in (2, 7))
    np.testing.assert_array_equal(*(np.concatenate([b[i][0] for i in range(len(b))]) for b in (small, large)))


def test_random_crops_in_evaluation_are_windows_of_the_number_and_the_example():
    x, y = arrays()
    options = {"preprocess": (("crop", 3), ("shift", 1))}
    small, large = (ArrayBatches(x, y, size, crop=2, **options) for size in (4, 11))
    crops = np.concatenate([small[i][0] for i in range(3)])
    np.testing.assert_array_equal(crops, large[0][0])
    assert not np.array_equal(crops, ArrayBatches(x, y, 11, crop=1, **options)[0][0])
    windows = np.lib.stride_tricks.sliding_window_view(x, (1, 3, 3, 2)).reshape(11, 12, 3, 3, 2)
    found = (windows == np.rint(crops * 255)[:, None]).all((2, 3, 4))
    assert (found.sum(1) == 1).all() and len(set(found.argmax(1))) > 4


@pytest.mark.parametrize("training", [True, False])
def test_padded_batches_weigh_like_those_of_a_split(training):
    pytest.importorskip("tensorflow")
    from tf_capsules.datasets.pipeline import Split

    x, y = arrays()
    batches = ArrayBatches(x, y, 4, training=training, pad=True)
    split = Split({"image": x, "label": y}).batches(4, training=training, pad=True)
    for i, (image, label, weights) in enumerate(split):
        np.testing.assert_allclose(batches[i][2], weights, rtol=1e-6)
        assert batches[i][0].shape == image.shape
        if not training:
            np.testing.assert_allclose(batches[i][0], image, rtol=1e-6)
            np.testing.assert_array_equal(batches[i][1], label)


def test_mixup_is_that_of_a_split():
    x, _ = arrays()
    y = np.arange(11)  # distinct labels show which examples were mixed
    options = {"training": True, "seed": 7, "epochs": 4, "pad": True, "mixup": (0.5, 11)}
    whole, rest = ArrayBatches(x, y, 4, **options), ArrayBatches(x, y, 4, initial_epoch=2, **options)
    plain = ArrayBatches(x, y, 4, **options | {"mixup": None})
    mixed = 0
    for i in range(12):
        images, targets, weights = whole[i]
        assert images.dtype == targets["label"].dtype == np.float32 and targets["unmixed"].dtype == np.int32
        np.testing.assert_array_equal(targets["unmixed"], plain[i][1])
        np.testing.assert_array_equal(weights, plain[i][2])
        np.testing.assert_allclose(np.einsum("bn,nhwc->bhwc", targets["label"], x / 255), images, atol=1e-6)
        fill = weights == 0
        np.testing.assert_allclose(targets["label"][fill], np.eye(11)[targets["unmixed"][fill]], atol=1e-6)
        assert not targets["label"][~fill][:, np.setdiff1d(targets["unmixed"][fill], targets["unmixed"][~fill])].any()
        mixed += (targets["label"].max(-1) < 1).sum()
        if i >= 6:
            np.testing.assert_array_equal(images, rest[i - 6][0])
            np.testing.assert_array_equal(targets["label"], rest[i - 6][1]["label"])
    assert mixed > 20


def test_mixup_draws_from_beta():
    x, y = np.zeros((1000, 2, 3, 1), np.uint8), np.arange(1000)
    batches = ArrayBatches(x, y, 1000, training=True, epochs=5, mixup=(0.2, 1000))
    targets = [batches[i][1] for i in range(5)]
    r = 1 - np.concatenate([target["label"][np.arange(1000), target["unmixed"]] for target in targets])
    np.testing.assert_allclose(r.mean(), 0.5, atol=0.02)
    np.testing.assert_allclose(r.var(), 1 / (4 * 1.4), atol=0.005)
    assert len(np.unique(r)) > 4000  # one for each sample


@pytest.mark.parametrize("options", [{}, {"training": True, "mixup": (0.5, 3)}, {"training": True, "epoch_size": 7}])
def test_parts_make_up_the_batch(options):
    options = {"preprocess": STEPS, "epochs": 2, "pad": True} | options
    whole, *parts = (ArrayBatches(*arrays(), 6, part=part, **options) for part in (None, (0, 3), (1, 3), (2, 3)))
    assert {len(part) for part in parts} == {len(whole)} == {4}
    for item in range(len(whole)):
        together = keras.tree.map_structure(lambda *rows: np.concatenate(rows), *(part[item] for part in parts))
        assert len(parts[1][item][0]) == 2
        for a, b in zip(keras.tree.flatten(together), keras.tree.flatten(whole[item]), strict=True):
            np.testing.assert_array_equal(a, b)


def test_labels_may_be_a_list():
    x, y = arrays()
    np.testing.assert_array_equal(ArrayBatches(x, y.tolist(), 4)[1][1], y[4:8])


def test_limit_and_floats():
    x, y = arrays()
    batches = ArrayBatches((x / 255).astype("float32"), y, 4, limit=6)
    assert batches.steps == 2 and numbers(batches) == [[0, 1, 2, 3], [4, 5]]


def test_epochs_of_a_part_go_on_where_the_last_one_stopped():
    options = dict(preprocess=(("flip",),), training=True, seed=5)
    whole = ArrayBatches(*arrays(), 1, epochs=2, **options)
    parts = ArrayBatches(*arrays(), 3, epochs=4, epoch_size=5, **options)
    assert parts.steps == 2 and len(parts) == 8 and [len(parts[i][1]) for i in range(3)] == [3, 2, 3]
    images = np.concatenate([parts[i][0] for i in range(8)])
    np.testing.assert_array_equal(images, np.concatenate([whole[i][0] for i in range(len(whole))])[:20])


def test_keras_fits_all_epochs():
    import keras

    seen = []

    class Recorder(ArrayBatches):
        def __getitem__(self, item):
            seen.append(item)
            return super().__getitem__(item)

    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(3, activation="softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy")
    batches = Recorder(*arrays(), 4, training=True, epochs=3, pad=True)
    history = model.fit(batches, steps_per_epoch=batches.steps, epochs=3, shuffle=False, verbose=0)
    assert len(history.history["loss"]) == 3
    assert [item for item, _ in itertools.groupby(seen[seen.index(8) - 8 :])] == list(range(9))


@pytest.mark.parametrize(
    "options, words",
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 2, "preprocess": (("crop", 9),)}, "'crop' 9"),
        ({"batch_size": 2, "training": True, "mixup": (0.2, 2)}, "mixup of 2 classes .* Received: 0 to 2"),
        ({"batch_size": 2, "training": True, "y": np.arange(11) % 3 - 1}, r"labels .* int64 \(11,\): \[-1, +0"),
        ({"batch_size": 2, "y": [1]}, r"\(11, 5, 6, 2\) and \(1,\)"),
        ({"batch_size": 2, "x": np.full((11, 5, 6, 2), 255)}, "uint8 or floats .* int64 from 255 to 255"),
        ({"batch_size": 2, "x": np.full((11, 5, 6, 2), 1.5)}, "floats in .* float64 from 1.5 to 1.5"),
    ],
)
def test_bad_arguments_are_named(options, words):
    x, y = arrays()
    with pytest.raises(ValueError, match=words):
        ArrayBatches(**{"x": x, "y": y} | options)
