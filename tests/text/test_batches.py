import keras
import numpy as np
import pytest

from tf_capsules.text import LiveStates, StateBatches, cache_states

TEXTS = ["a", "b c", "d e f", "g", "h i", "j k l m n", "o", "p", "q r s", "t", "u v"]
LABELS = np.arange(11) % 3


@pytest.fixture(params=["live", "cached"])
def states(request, toy, tmp_path):
    if request.param == "live":
        return LiveStates(toy(), TEXTS)
    return cache_states(toy(), TEXTS, tmp_path / "cache", dtype="float32", report=lambda line: None)


def labels(batches):
    return [batches[i][1].tolist() for i in range(len(batches))]


def test_evaluation_goes_in_order(states, toy):
    batches = StateBatches(states, LABELS, 4)
    assert len(batches) == batches.steps == 3 and labels(batches) == [[0, 1, 2, 0], [1, 2, 0, 1], [2, 0, 1]]
    x, y = batches[1]
    assert y.dtype == np.int32 and x["mask"].shape == (4, 6) and x["embeddings"].shape == (4, 6, 3, 4)
    expected, mask = toy().hidden_states(TEXTS[4:8])
    np.testing.assert_array_equal(x["mask"], mask)
    np.testing.assert_array_equal(x["embeddings"][mask > 0], expected[mask > 0])
    assert batches[0][0]["mask"].shape == (4, 4)  # a batch is as long as its own longest text


def test_an_epoch_holds_every_text_once_in_its_own_order(states):
    batches = StateBatches(states, np.arange(11), 4, training=True, seed=5, epochs=3)
    epochs = [sum(labels(batches)[3 * e : 3 * e + 3], []) for e in range(3)]
    assert all(sorted(epoch) == list(range(11)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in [*epochs, range(11)]}) == 4
    for i in range(9):
        x, y = batches[i]
        np.testing.assert_array_equal(x["mask"].sum(1), states.lengths[y])
    other = StateBatches(states, np.arange(11), 4, training=True, seed=6, epochs=3)
    assert labels(other) != labels(batches)


def flat(batch):
    return keras.tree.flatten(batch)


def test_starting_later_gives_the_same_batches(states):
    options = {"training": True, "seed": 7, "epochs": 5, "pad": True, "mixup": (0.5, 3), "multiple": 4}
    whole, rest = (StateBatches(states, LABELS, 4, initial_epoch=epoch, **options) for epoch in (0, 3))
    assert len(rest) == 6
    for i in range(6):
        for part, other in zip(flat(whole[9 + i]), flat(rest[i]), strict=True):
            np.testing.assert_array_equal(part, other)
    assert not np.array_equal(flat(whole[0])[0], flat(whole[3])[0])
    with pytest.raises(IndexError):
        rest[6]


@pytest.mark.parametrize("training", [True, False])
def test_padded_batches_weigh_like_those_of_arrays(states, training):
    from tf_capsules.datasets.arrays import ArrayBatches

    batches = StateBatches(states, LABELS, 4, training=training, pad=True)
    arrays = ArrayBatches(np.zeros((11, 2, 3, 1), "uint8"), LABELS, 4, training=training, pad=True)
    for i in range(3):
        x, y, weights = batches[i]
        assert len(x["mask"]) == len(y) == 4
        np.testing.assert_array_equal(weights, arrays[i][2])
        np.testing.assert_array_equal(y, arrays[i][1])


def test_mixup_mixes_embeddings_masks_and_labels_alike(states):
    options = {"training": True, "seed": 3, "epochs": 9}
    own = np.arange(11)  # distinct labels show which texts were mixed
    mixed, plain = (StateBatches(states, own, 4, mixup=mixup, **options) for mixup in ((0.4, 11), None))
    shares = []
    for i in range(len(mixed)):
        (x, targets), (z, y) = mixed[i], plain[i]
        np.testing.assert_array_equal(targets["unmixed"], y)
        assert targets["unmixed"].dtype == np.int32 and targets["label"].dtype == np.float32
        share = targets["label"][:, y]  # (sample, place in the batch)
        np.testing.assert_allclose(share.sum(1), 1, atol=1e-6)
        np.testing.assert_allclose(x["mask"], share @ z["mask"], atol=1e-6)
        np.testing.assert_allclose(x["embeddings"], np.einsum("ij,j...->i...", share, z["embeddings"]), atol=1e-5)
        assert x["mask"].dtype == x["embeddings"].dtype == np.float32
        # The mask stays exactly 1 where both texts have tokens, and 0 where both have padding.
        both = np.einsum("ij,jn->in", share > 0, z["mask"]) / (share > 0).sum(1, keepdims=True)
        np.testing.assert_array_equal(x["mask"] == 1, both == 1)
        np.testing.assert_array_equal(x["mask"] == 0, both == 0)
        # Partners are a permutation: a text is in its own mixture and in at most one more.
        np.testing.assert_array_equal(((share > 0).sum(0) <= 2), True)
        shares.append(np.diag(share))
    shares = np.concatenate(shares)
    assert len(np.unique(shares)) > 50 and (shares < 0.5).sum() > 15


def test_mixup_draws_from_beta(toy):
    states = LiveStates(toy(), ["a"] * 1000)
    batches = StateBatches(states, np.arange(1000), 1000, training=True, epochs=5, mixup=(0.2, 1000))
    targets = [batches[i][1] for i in range(5)]
    r = 1 - np.concatenate([target["label"][np.arange(1000), target["unmixed"]] for target in targets])
    np.testing.assert_allclose(r.mean(), 0.5, atol=0.02)
    np.testing.assert_allclose(r.var(), 1 / (4 * 1.4), atol=0.005)


def test_mixup_leaves_the_fill_out(states):
    options = {"training": True, "seed": 2, "mixup": (0.5, 11)}
    padded, plain = (StateBatches(states, np.arange(11), 8, pad=pad, **options) for pad in (True, False))
    (x, y, weights), (z, t) = padded[1], plain[1]
    np.testing.assert_array_equal(y["label"][weights > 0], t["label"])
    np.testing.assert_array_equal(x["mask"][weights > 0][:, : z["mask"].shape[1]], z["mask"])
    np.testing.assert_array_equal(y["label"][weights == 0], np.eye(11)[y["unmixed"][weights == 0]])


@pytest.mark.parametrize("options", [{}, {"training": True, "mixup": (0.5, 3)}, {"training": True}])
def test_parts_make_up_the_batch(states, options):
    options = {"pad": True, "multiple": 4} | options
    whole, *parts = (StateBatches(states, LABELS, 6, part=part, **options) for part in (None, (0, 2), (1, 2)))
    for item in range(len(whole)):
        # All parts are as long as the longest text of the whole batch, so all processes have the same shape.
        together = keras.tree.map_structure(lambda *rows: np.concatenate(rows), *(part[item] for part in parts))
        for a, b in zip(flat(together), flat(whole[item]), strict=True):
            np.testing.assert_array_equal(a, b)


def test_limit_and_multiple(states):
    batches = StateBatches(states, LABELS, 4, limit=6, multiple=5)
    assert batches.steps == 2 and labels(batches) == [[0, 1, 2, 0], [1, 2]]
    narrow = StateBatches(states, LABELS, 4, limit=6)
    for i, width in enumerate((5, 10)):
        x, z = batches[i][0], narrow[i][0]
        assert x["mask"].shape[1] == x["embeddings"].shape[1] == width
        own = z["mask"].shape[1]
        assert not x["mask"][:, own:].any() and not x["embeddings"][:, own:].any()
        np.testing.assert_array_equal(x["mask"][:, :own], z["mask"])


def classifier():
    embeddings, mask = keras.Input((None, 3, 4), name="embeddings"), keras.Input((None,), name="mask")
    pooled = keras.ops.einsum("bnlm,bn->blm", embeddings, mask)
    logits = keras.layers.Dense(3)(keras.layers.Flatten()(pooled))
    return keras.Model({"embeddings": embeddings, "mask": mask}, logits)


class TestFitting:
    @pytest.fixture(autouse=True)
    def tf(self):
        if keras.backend.backend() != "tensorflow":
            pytest.skip("tf.data feeds the TensorFlow backend")
        return pytest.importorskip("tensorflow")

    @pytest.mark.parametrize("mixup, pad", [(None, False), ((0.2, 3), False), (None, True), ((0.2, 3), True)])
    def test_a_dataset_of_any_lengths(self, states, tf, mixup, pad):
        """The first two batches have one length, the last is shorter: Keras could not infer this from the first two."""
        order = [0, 3, 6, 7, 9, 1, 2, 4, 5, 8, 10]
        shuffled = StateBatches(states, LABELS, 2, pad=pad, training=mixup is not None, mixup=mixup, epochs=2)
        shuffled._states = type("Reordered", (), {
            "batch": lambda _, i, n: states.batch(np.array(order)[i], n), "lengths": states.lengths[order],
            "layers": 3, "width": 4,
        })()  # fmt: skip
        dataset = shuffled.dataset()
        assert dataset.cardinality() == 12
        for batch, item in zip(dataset, range(12), strict=True):
            for part, other in zip(flat(batch), flat(shuffled[item]), strict=True):
                np.testing.assert_array_equal(part, other)
                assert part.dtype == tf.as_dtype(other.dtype)
        if mixup is None:
            model = classifier()
            model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
            history = model.fit(dataset, steps_per_epoch=shuffled.steps, epochs=2, shuffle=False, verbose=0)
            assert np.isfinite(history.history["loss"]).all() and len(history.history["loss"]) == 2

    def test_hidden_states_on_the_fly_while_fitting(self, bert, load, sentences):
        transformer = load(bert, "keras-hub")
        states = LiveStates(transformer, sentences * 3)
        batches = StateBatches(states, np.arange(15) % 2, 4, training=True, epochs=2)
        embeddings = keras.Input((None, transformer.layers, 12), name="embeddings")
        mask = keras.Input((None,), name="mask")
        pooled = keras.ops.einsum("bnlm,bn->bm", embeddings, mask)
        model = keras.Model({"embeddings": embeddings, "mask": mask}, keras.layers.Dense(2)(pooled))
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        history = model.fit(batches.dataset(), steps_per_epoch=batches.steps, epochs=2, shuffle=False, verbose=0)
        assert len(history.history["loss"]) == 2 and np.isfinite(history.history["loss"]).all()


@pytest.mark.parametrize(
    "options, words",
    [
        ({"batch_size": 0}, "batch_size"),
        ({"limit": 0}, "limit"),
        ({"epochs": 2, "initial_epoch": 2}, "epochs 2 to 2"),
        ({"multiple": 0}, "`multiple` must be .* Received: 0"),
        ({"mixup": (0.2, 3)}, "in evaluation"),
        ({"training": True, "mixup": (0.2, 2)}, "mixup of 2 classes .* Received: 0 to 2"),
        ({"labels": LABELS[:5]}, r"need 11 whole numbers as labels, not \(5,\)"),
        ({"labels": np.zeros(11)}, r"not \(11,\) float64"),
    ],
)
def test_bad_arguments_are_named(toy, options, words):
    options = {"states": LiveStates(toy(), TEXTS), "labels": LABELS, "batch_size": 4} | options
    with pytest.raises(ValueError, match=words):
        StateBatches(**options)
