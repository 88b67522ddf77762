import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from tf_capsules.datasets.pipeline import Split  # noqa: E402

STEPS = (("shift", 2), ("brightness", 20))


def split(n=11, height=5, width=6, channels=2):
    images = np.random.default_rng(0).integers(0, 256, (n, height, width, channels), dtype=np.uint8)
    images[:, 0, 0, 0] = np.arange(n)  # the example's number, to be read back
    return Split({"image": images, "label": np.arange(n) % 3})


def read(stream):
    return [tuple(np.asarray(part) for part in batch) for batch in stream]


def numbers(batches):
    return [np.rint(batch[0][:, 0, 0, 0] * 255).astype(int).tolist() for batch in batches]


def test_evaluation_goes_in_order():
    source = split()
    batches = read(source.batches(4))
    assert numbers(batches) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]
    x, y = batches[2]
    assert x.dtype == np.float32 and y.dtype == np.int32
    np.testing.assert_allclose(x, source.arrays["image"][8:].astype("float32") / 255)
    np.testing.assert_array_equal(y, [2, 0, 1])


def test_a_stream_has_no_thread_that_tunes_it():
    """`fit` would wait for such a thread at the end of every stream, up to as long as the stream was read."""
    assert not split().batches(4).options().autotune.enabled


def test_an_epoch_holds_every_example_once_in_its_own_order():
    batches = numbers(read(split().batches(4, training=True, seed=5, epochs=3)))
    assert [len(batch) for batch in batches] == [4, 4, 3] * 3
    epochs = [sum(batches[3 * e : 3 * e + 3], []) for e in range(3)]
    assert all(sorted(epoch) == list(range(11)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs + [list(range(11))]}) == 4


@pytest.mark.parametrize("pad", [False, True])
def test_starting_later_gives_the_same_batches(pad):
    options = {"preprocess": STEPS, "training": True, "seed": 7, "pad": pad}
    whole = read(split().batches(4, epochs=5, **options))
    rest = read(split().batches(4, epochs=5, initial_epoch=3, **options))
    assert len(rest) == 2 * 3
    for a, b in zip(whole[9:], rest, strict=True):
        for part, other in zip(a, b, strict=True):
            np.testing.assert_array_equal(part, other)


def test_seeds_differ():
    first, second = (numbers(read(split().batches(11, training=True, seed=seed))) for seed in (1, 2))
    assert first != second


def test_augmentation_is_of_the_example_not_of_its_batch():
    source = split()
    options = {"preprocess": STEPS, "training": True, "seed": 3}
    small = np.concatenate([x for x, _ in read(source.batches(2, **options))])
    large = np.concatenate([x for x, _ in read(source.batches(7, **options))])
    np.testing.assert_array_equal(small, large)
    other = read(source.batches(11, epochs=2, initial_epoch=1, **options))[0][0]
    assert not np.allclose(np.sort(large.ravel()), np.sort(other.ravel()))


def test_preprocess_in_evaluation_is_fixed():
    a, b = (read(split().batches(3, preprocess=(("crop", 3), ("shift", 1)), seed=seed)) for seed in (0, 1))
    for (x, _), (z, _) in zip(a, b, strict=True):
        assert x.shape[1:] == (3, 3, 2)
        np.testing.assert_array_equal(x, z)


def test_random_crops_in_evaluation():
    images = np.arange(11 * 7 * 9, dtype="int64").reshape(11, 7, 9, 1) % 251
    source = Split({"image": images.astype("uint8"), "label": np.arange(11) % 3})
    options = {"preprocess": (("flip",), ("crop", 4), ("brightness", 9))}
    crops = [np.concatenate([x for x, _ in read(source.batches(4, crop=k, **options))]) for k in range(3)]
    again = np.concatenate([x for x, _ in read(source.batches(7, crop=1, seed=5, **options))])
    np.testing.assert_array_equal(crops[1], again)  # a crop depends only on its number and the example
    places = set()
    for crop in crops:
        for image, window in zip(images, np.rint(crop * 255).astype(int), strict=True):
            windows = np.lib.stride_tricks.sliding_window_view(image, (4, 4, 1))[:, :, 0]
            found = np.argwhere((windows == window).all((-3, -2, -1)))
            assert len(found) == 1
            places.add(tuple(found[0]))
    assert len(places) > 10 and {y for y, _ in places} == set(range(4)) and {x for _, x in places} == set(range(6))
    assert not np.array_equal(crops[0], crops[1])


def test_fixed_crops_in_evaluation_are_the_same_from_tensors_and_from_arrays():
    from tf_capsules.datasets import augment
    from tf_capsules.datasets.arrays import ArrayBatches

    source, options = split(), {"preprocess": (("crop", 3),)}
    images = source.arrays["image"]
    for name in augment.FIXED_CROPS:
        ours = np.concatenate([x for x, _ in read(source.batches(4, crop=name, **options))])
        other = ArrayBatches(images, source.arrays["label"], len(images), crop=name, **options)[0][0]
        np.testing.assert_array_equal(ours, other)
    np.testing.assert_array_equal(ours, np.float32(images[:, 1:4, 1:4, :][:, :, ::-1] / np.float32(255)))


@pytest.mark.parametrize(
    "options, words",
    [
        ({"crop": 1, "training": True}, "crop 1 is for evaluation"),
        ({"crop": 1, "preprocess": (("pad", 2), ("shift", 1))}, r"need one preprocess step \"crop\"; there are .*pad"),
        ({"crop": "centre, mirrored", "preprocess": (("crop", 4), ("crop", 3))}, "need one preprocess step"),
    ],
)
def test_random_crops_that_cannot_be(options, words):
    from tf_capsules.datasets.arrays import ArrayBatches

    source, options = split(), {"preprocess": (("crop", 4),), **options}
    for make in (source.batches, lambda *a, **k: ArrayBatches(source.arrays["image"], source.arrays["label"], *a, **k)):
        with pytest.raises(ValueError, match=words):
            make(4, **options)


@pytest.mark.parametrize("training", [True, False])
def test_padded_batches_keep_the_mean(training):
    stream = split().batches(4, training=training, pad=True)
    assert stream.element_spec[0].shape == (4, 5, 6, 2)
    batches = read(stream)
    assert [batch[0].shape[0] for batch in batches] == [4, 4, 4]
    np.testing.assert_allclose(batches[0][2], np.ones(4) * (1 if training else 12 / 11), rtol=1e-6)
    np.testing.assert_allclose(batches[2][2], np.array([1, 1, 1, 0]) * (4 / 3 if training else 12 / 11), rtol=1e-6)
    plain = read(split().batches(4, training=training))
    for (x, y, weights), (z, t) in zip(batches, plain, strict=True):
        np.testing.assert_array_equal(x[weights > 0], z)
        np.testing.assert_array_equal(y[weights > 0], t)


def test_padding_a_split_smaller_than_the_batch_repeats_it():
    x, _, weights = read(split(n=3).batches(8, pad=True))[0]
    assert numbers([(x,)]) == [[0, 1, 2, 0, 1, 2, 0, 1]]
    np.testing.assert_allclose(weights, np.array([1, 1, 1, 0, 0, 0, 0, 0]) * 8 / 3, rtol=1e-6)


@pytest.mark.parametrize("options", [{}, {"training": True, "mixup": (0.5, 3)}, {"training": True, "epoch_size": 7}])
def test_parts_make_up_the_batch(options):
    options = {"preprocess": STEPS, "epochs": 2, "pad": True} | options
    streams = (split().batches(6, part=part, **options) for part in (None, (0, 3), (1, 3), (2, 3)))
    for whole, *parts in zip(*streams, strict=True):
        together = tf.nest.map_structure(lambda *rows: np.concatenate(rows), *parts)
        assert parts[1][0].shape[0] == 2
        for a, b in zip(tf.nest.flatten(together), tf.nest.flatten(whole), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6)


def test_limit_uses_the_first_examples():
    source = split()
    assert source.steps(4, limit=6) == 2 and source.steps(4, limit=99) == 3
    batches = numbers(read(source.batches(4, limit=6, training=True)))
    assert [len(batch) for batch in batches] == [4, 2]
    assert sorted(sum(batches, [])) == list(range(6))


def test_epochs_of_a_part_go_on_where_the_last_one_stopped():
    options = dict(preprocess=(("flip",),), training=True, seed=5)
    whole = read(split().batches(1, epochs=2, **options))  # two passes over 11 examples
    parts = read(split().batches(3, epochs=4, epoch_size=5, **options))  # four epochs of 5
    assert [len(batch[1]) for batch in parts] == [3, 2] * 4
    images = np.concatenate([batch[0] for batch in parts])
    np.testing.assert_array_equal(images, np.concatenate([batch[0] for batch in whole])[:20])
    later = read(split().batches(3, epochs=4, initial_epoch=2, epoch_size=5, pad=True, **options))
    np.testing.assert_array_equal(later[0][0], parts[4][0])
    assert [weights.tolist() for _, _, weights in later] == [[1, 1, 1], [1.5, 1.5, 0]] * 2


def test_length_is_known():
    assert split().batches(4, epochs=5, initial_epoch=2).cardinality() == 9


def test_generated_examples():
    def example(tensors, index, draw):
        image = tf.gather(tensors["image"], index % 11)
        noise = draw.integers(0, 10**6)
        target = {"label": tf.one_hot(index % 3, 3), "parts": tf.stack([image, image]), "part_labels": noise[None]}
        return image, target

    source = Split(split().arrays, size=25, image_shape=(5, 6, 2), example=example)
    (x, y), *_ = source.batches(7, training=True, seed=2, epochs=3, initial_epoch=2)
    assert x.shape == (7, 5, 6, 2) and y["parts"].shape == (7, 2, 5, 6, 2) and y["label"].shape == (7, 3)
    np.testing.assert_array_equal(y["parts"][:, 1], x)

    def noise(**options):
        return np.concatenate([y["part_labels"] for _, y in source.batches(7, **options)])[:, 0]

    np.testing.assert_array_equal(noise(seed=1), noise(seed=2))  # evaluation is fixed
    assert len(set(noise(training=True, epochs=2))) == 50  # fresh in each epoch
    with pytest.raises(ValueError, match="single digits"):
        source.batches(7, preprocess=(("pad", 1),))


def test_columns_of_floats_stay_floats_and_labels_become_whole_numbers():
    def example(tensors, index, draw):
        assert tensors["number"].dtype == tf.int32 and tensors["share"].dtype == tf.float64
        return tf.fill((1, 1, 1), tf.cast(tensors["share"][index], tf.float32)), tensors["label"][index]

    arrays = {"number": np.arange(11), "share": np.linspace(0, 1, 11), "label": np.arange(11.0)}
    x, y = next(iter(Split(arrays, image_shape=(1, 1, 1), example=example).batches(11)))
    np.testing.assert_allclose(x[:, 0, 0, 0], arrays["share"], rtol=1e-6)
    assert y.dtype == tf.int32 and y.numpy().tolist() == list(range(11))


def test_labels_that_are_no_class_numbers_are_named():
    with pytest.raises(
        ValueError, match=r"labels are whole numbers \(N,\) from 0. .* int64 \(2,\): \[ +0, 2147483648\]"
    ):
        Split({"image": np.zeros((2, 3, 3, 1), "uint8"), "label": np.array([0, 2**31])}).batches(2)


def test_example_of_another_shape_is_refused():
    source = Split(split().arrays, image_shape=(5, 5, 2), example=lambda t, i, d: (t["image"][0], t["label"][0]))
    with pytest.raises(ValueError, match=r"shape \(5, 6, 2\), not \(5, 5, 2\)"):
        source.batches(2)


def distinct(n):
    """A split of n images with distinct labels, so that mixed labels show which images were mixed."""
    images = np.random.default_rng(0).integers(0, 256, (n, 2, 3, 1), dtype=np.uint8)
    return Split({"image": images, "label": np.arange(n)})


def shares(batches):
    """Mixup's r of every sample, to the precision of 1 - r; 0 if a sample is its own partner."""
    own = [y["label"].numpy()[np.arange(len(x)), y["unmixed"].numpy()] for x, y in batches]
    return 1 - np.concatenate(own)


def test_mixup_mixes_images_and_labels_alike():
    source = distinct(11)
    images = source.arrays["image"].astype("float32") / 255
    batches = [(x.numpy(), y) for x, y in source.batches(4, training=True, seed=3, epochs=2, mixup=(0.2, 11))]
    assert [len(x) for x, _ in batches] == [4, 4, 3] * 2
    plain = read(source.batches(4, training=True, seed=3, epochs=2))
    for (x, y), (_, labels) in zip(batches, plain, strict=True):
        assert y["label"].dtype == np.float32 and y["unmixed"].dtype == np.int32
        np.testing.assert_array_equal(y["unmixed"], labels)
        np.testing.assert_allclose(np.einsum("bn,nhwc->bhwc", y["label"], images), x, atol=1e-6)
        np.testing.assert_allclose(np.sum(y["label"], -1), 1, atol=1e-6)
        # Partners are a permutation of the batch: no image is the partner of two samples.
        partners = [np.delete(row, own) for row, own in zip(y["label"].numpy(), labels, strict=True)]
        found = [row.argmax() + (row.argmax() >= own) for row, own in zip(partners, labels, strict=True) if row.any()]
        assert len(set(found)) == len(found) and set(found) <= set(labels)


@pytest.mark.parametrize("alpha", [0.2, 1, 3.5, 0.003])
def test_mixup_draws_from_beta(alpha):
    from scipy.stats import beta

    r, expected = (
        shares(distinct(1000).batches(1000, training=True, seed=1, epochs=5, mixup=(alpha, 1000))),
        beta(alpha, alpha),
    )
    np.testing.assert_allclose(r.mean(), 0.5, atol=0.02)  # not folded to one side
    np.testing.assert_allclose(r.var(), 1 / (4 * (2 * alpha + 1)), atol=0.005)
    for point in (1e-4, 0.1, 0.3, 0.8, 0.999):
        np.testing.assert_allclose((r <= point).mean(), expected.cdf(point), atol=0.02)


@pytest.mark.parametrize("pad", [False, True])
def test_mixup_resumes(pad):
    options = {"preprocess": STEPS, "training": True, "seed": 7, "pad": pad, "mixup": (0.2, 3)}
    whole = list(split().batches(4, epochs=4, **options))
    rest = list(split().batches(4, epochs=4, initial_epoch=2, **options))
    for a, b in zip(whole[6:], rest, strict=True):
        for part, other in zip(tf.nest.flatten(a), tf.nest.flatten(b), strict=True):
            np.testing.assert_array_equal(part, other)
    assert not np.array_equal(whole[0][0], whole[3][0])


def test_mixup_differs_by_batch_epoch_and_seed():
    draws = [
        shares(distinct(20).batches(10, training=True, seed=seed, epochs=2, mixup=(1.0, 20))).reshape(4, 10)
        for seed in (0, 1)
    ]
    assert len(np.unique(np.concatenate(draws), axis=0)) == 8


def test_mixup_leaves_the_fill_out():
    options = {"training": True, "seed": 2, "mixup": (0.5, 11)}
    padded, plain = (list(distinct(11).batches(8, pad=pad, **options)) for pad in (True, False))
    for (x, y, weights), (z, t) in zip(padded, plain, strict=True):
        np.testing.assert_array_equal(x[weights > 0], z)
        np.testing.assert_array_equal(y["label"][weights > 0], t["label"])
    x, y, weights = padded[1]
    np.testing.assert_allclose(y["label"][weights == 0], np.eye(11)[y["unmixed"][weights == 0]], atol=1e-6)
    assert (y["label"].numpy()[weights > 0].max(-1) < 1).any()


def test_mixup_of_generated_examples():
    source = Split(split().arrays, size=25, example=lambda t, i, d: (t["image"][i % 11], t["label"][i % 11]))
    x, y = next(iter(source.batches(7, training=True, mixup=(0.2, 3))))
    assert x.shape == (7, 5, 6, 2) and y["label"].shape == (7, 3)
    several = Split(
        split().arrays,
        example=lambda t, i, d: (t["image"][i], {"label": tf.ones(3), "parts": t["image"][i][None], "part_labels": i}),
    )
    with pytest.raises(ValueError, match="one label an image; here an image has label, parts, part_labels"):
        several.batches(7, training=True, mixup=(0.2, 3))


@pytest.mark.parametrize(
    "options, words",
    [
        ({"batch_size": 0}, "`batch_size` must be a whole number of at least 1. Received: 0"),
        ({"batch_size": 2, "preprocess": (("crop", 9),)}, "'crop' 9"),
        ({"batch_size": 2, "preprocess": (("blur",),)}, "'blur'"),
        ({"batch_size": 2, "training": True, "mixup": (0.2, 2)}, "mixup of 2 classes .* Received: 0 to 2"),
    ],
)
def test_bad_arguments_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        split().batches(**options)


@pytest.mark.parametrize(
    "arrays, words",
    [
        ({"image": np.zeros((2, 3, 3, 1), "uint8")}, "'image' and 'label'"),
        ({"image": np.zeros((2, 3, 3, 1), "uint8"), "label": np.zeros(3, int)}, "'label': 3"),
        ({"image": np.zeros((0, 3, 3, 1), "uint8"), "label": np.zeros(0, int)}, "1 or more"),
        ({"image": np.zeros((2, 3, 3), "uint8"), "label": np.zeros(2, int)}, r"\(2, 3, 3\) uint8"),
        ({"image": np.zeros((2, 3, 3, 1)), "label": np.zeros(2, int)}, "float64"),
    ],
)
def test_bad_arrays_are_named(arrays, words):
    with pytest.raises(ValueError, match=words):
        Split(arrays)
