import keras
import numpy as np
import pytest
from small_runs import TINY, write_arrays
from toys import ToyTransformer, write_checkpoint, write_trees

from tf_capsules import datasets, recipes, text
from tf_capsules.datasets.pipeline import Dataset, Split
from tf_capsules.runs import Settings, TrainingError
from tf_capsules.runs.data import load_data
from tf_capsules.runs.data_spec import DataSpec, ImageSpec

SST2 = recipes.get("heinsen2019-sst2")
DIGITS = recipes.get("sabour2017-digits")


@pytest.fixture
def trees(tmp_path, monkeypatch):
    """A folder of trees. It replaces every transformer by a toy of 3 layers and width 4."""
    toy = ToyTransformer(write_checkpoint(tmp_path / "toy"))
    monkeypatch.setattr(text, "load", lambda name: toy)
    return str(write_trees(tmp_path / "trees"))


def load(recipe, **settings):
    settings = Settings(**settings)
    settings.check(recipe)
    return load_data(settings.apply(recipe), settings)


def arrays(batch):
    return keras.tree.map_structure(keras.ops.convert_to_numpy, batch)


def test_texts_come_as_hidden_states(trees, tmp_path, capsys):
    data = load(SST2, data_dir=trees, cache=str(tmp_path / "cache"))
    spec = data.spec
    assert (spec.name, spec.class_names, spec.note) == (
        "sst_binary",
        ("negative", "positive"),
        "hidden states of gpt2-large",
    )
    assert spec.model_arguments == {"layers": 3, "width": 4, "classes": 2} and spec.inputs == "3 hidden states of 4"
    assert (spec.train_size, spec.test_size) == (18, 7)
    assert data.validation is not data.test and not (tmp_path / "cache").exists()  # states are made on demand
    mixed = arrays(next(iter(data.train(batch_size=6, training=True, seed=1, epochs=2, mixup=(0.2, 2)))))
    assert mixed[0]["embeddings"].shape[2:] == (3, 4) and mixed[1]["label"].shape == (6, 2)
    validation, test = (list(map(arrays, stream(batch_size=4))) for stream in (data.validation, data.test))
    assert [len(y) for _, y in validation] == [4, 1] and [len(y) for _, y in test] == [4, 3]
    texts, labels = data.test_split
    np.testing.assert_array_equal(np.concatenate([y for _, y in test]), labels)
    expected, mask = data.transformer.hidden_states(texts[:4])
    x = test[0][0]
    tokens = mask.shape[1]
    np.testing.assert_array_equal(x["mask"][:, :tokens], mask)
    np.testing.assert_allclose(x["embeddings"][:, :tokens], expected * mask[..., None, None], atol=1e-3)
    assert "18 texts" in capsys.readouterr().out


def test_hidden_states_are_kept_only_where_they_fit(trees, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path / "home")
    for settings in (dict(cache="none"), dict(cache_limit=1e-9)):
        data = load(SST2, data_dir=trees, **settings)
        (x, y), *_ = data.train(batch_size=18, training=True)
        assert len(y) == 18 and not (tmp_path / "home").exists()
    assert "not kept, but computed whenever they are needed" in capsys.readouterr().out
    load(SST2, data_dir=trees).test(batch_size=2)
    assert (tmp_path / "home" / ".cache" / "tf_capsules").is_dir()
    with pytest.raises(text.CacheTooLarge):
        load(SST2, data_dir=trees, cache=str(tmp_path / "mine"), cache_limit=1e-9).train(batch_size=2)


def test_limits_take_the_same_texts_of_the_whole_file_each_time(trees, tmp_path):
    data = load(SST2, data_dir=trees, cache="none", train_limit=4, test_limit=3)
    assert (data.spec.train_size, data.spec.test_size, data.test_sizes) == (4, 3, {"test": (3, 7)})
    assert sum(len(y) for _, y in data.train(batch_size=3)) == 4
    assert sum(len(y) for _, y in data.validation(batch_size=3)) == 3 == len(data.test_split.texts)
    (tmp_path / "sorted").mkdir()
    path = tmp_path / "sorted" / "mine.npz"
    labels = np.arange(40) // 10
    np.savez(path, x_train=labels.astype(str), y_train=labels, x_test=labels.astype(str), y_test=labels)
    chosen = [load(SST2, data=str(path), cache="none", train_limit=12).train(batch_size=12) for _ in range(2)]
    first, again = ([y for _, y in map(arrays, batches)][0] for batches in chosen)
    np.testing.assert_array_equal(first, again)
    assert set(first) == {0, 1, 2, 3} and list(first) == sorted(first)


def test_one_s_own_texts_come_from_arrays(trees, tmp_path):
    path = tmp_path / "mine.npz"
    words = np.array(["so good", "bad", "dull film", "fine"])
    np.savez(path, x_train=words, y_train=[2, 0, 0, 1], x_test=words[:3], y_test=[2, 0, 0])
    data = load(SST2, data=str(path), cache="none")
    assert data.spec.class_names == ("0", "1", "2") and data.spec.train_size == 4 and data.validation is data.test
    assert list(data.test_split.texts) == list(words[:3])
    np.savez(path, x_train=words, y_train=[2, 0, 0, 1], x_test=np.zeros((2, 3)), y_test=[2, 0])
    with pytest.raises(ValueError, match=r"x_test is float64 of shape \(2, 3\), not strings"):
        load(SST2, data=str(path))


@pytest.mark.parametrize(
    ("recipe", "settings", "message"),
    [
        (
            DIGITS,
            dict(transformer="gpt2"),
            "--transformer gpt2 is for recipes on texts; sabour2017-digits is",
        ),
        (DIGITS, dict(cache="none"), "--cache none is for recipes on texts"),
        (DIGITS, dict(dataset="sst_fine"), "sabour2017-digits is on images, --dataset sst_fine has texts"),
        (SST2, dict(dataset="digits"), "heinsen2019-sst2 is on texts, --dataset digits has images"),
        (SST2, dict(cache_limit=0), "--cache-limit must be above 0. Received: 0"),
        (SST2, dict(image_size=9), "--image-size 9 is for a folder of images. Received: sst_binary"),
    ],
)
def test_settings_that_do_not_go_with_texts_or_images(recipe, settings, message):
    with pytest.raises(TrainingError, match=message):
        Settings(**settings).check(recipe)


def test_steps_for_images_are_refused_on_texts(trees):
    with pytest.raises(ValueError, match="preprocess is for images; heinsen2019-sst2 is on texts"):
        load(SST2.replace(preprocess=(("shift", 1),)), data_dir=trees)


def test_a_spec_survives_json(trees):
    for recipe, settings in ((DIGITS, {}), (SST2, dict(data_dir=trees, cache="none"))):
        spec = load(recipe, **settings).spec
        assert DataSpec.from_json(spec.to_json()) == spec


def toys_of(count, seed):
    """A split of `count` pictures of noise; the first pixel of each is `seed`."""
    images = np.random.default_rng(seed).integers(0, 256, (count, 8, 8, 1), dtype=np.uint8)
    images[:, 0, 0] = seed
    return Split({"image": images, "label": np.arange(count) % 10})


def test_novel_viewpoints_are_tested_on_and_familiar_ones_validate(monkeypatch):
    splits = toys_of(31, 1), toys_of(13, 2)
    toys = Dataset("toys", *splits, tuple("abcdefghij"), "of noise", familiar=toys_of(17, 3))
    monkeypatch.setattr(datasets, "load", lambda *_, **__: toys)
    data = load(DIGITS, test_limit=15)
    (part, familiar), (last, novel) = data.evaluated
    note = "of noise; familiar viewpoints; 15 of 17 test examples"
    assert (part, familiar.test_size, familiar.note) == ("validation", 15, note)
    assert (last, novel.test_size, novel.note) == ("test", 13, "of noise; novel viewpoints")
    assert familiar.train_size == novel.train_size == data.spec.train_size == 31
    assert (data.spec.test_size, data.spec.note) == (13, "of noise")
    for stream, seed, count in ((data.validation, 3, 15), (data.test, 2, 13)):
        images = np.concatenate([arrays(x) for x, _ in stream(batch_size=4)])
        assert images.shape == (count, 8, 8, 1)
        np.testing.assert_allclose(images[:, 0, 0], seed / 255, rtol=1e-5)
    monkeypatch.undo()
    for limit, note in ((None, ""), (360, ""), (999, ""), (9, "9 of 360 test examples")):
        digits = load(DIGITS, test_limit=limit)
        assert digits.evaluated == [("test", digits.spec.noted(note))] and digits.spec.note == ""


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (None, "data are described by a dict. Received: None"),
        ({"name": "digits"}, "data are described by name, class_names, .*image_shape. Received: name$"),
        ({"transformer": "gpt2"}, "data are described by name, .*transformer, layers, width. Received: transformer"),
        ({"raw_shape": [8, 8]}, r"the raw_shape of data can't be \(8, 8\)"),
        ({"image_shape": [8, 8, 1.0]}, r"the image_shape of data can't be \(8, 8, 1.0\)"),
        ({"class_names": [0, 1]}, r"the class_names of data can't be \(0, 1\)"),
        ({"train_size": True}, "the train_size of data can't be True"),
    ],
)
def test_what_does_not_describe_data(values, words):
    spec = ImageSpec("digits", ("a", "b"), 3, 4, "", (8, 8, 1), (6, 6, 1))
    assert DataSpec.from_json(spec.to_json()) == spec
    if values is not None and not {"name", "transformer"} & set(values):
        values = spec.to_json() | values
    with pytest.raises(ValueError, match=words):
        DataSpec.from_json(values)


def test_a_folder_of_images_is_resized(tmp_path):
    Image = pytest.importorskip("PIL.Image")
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for i in range(6):
            Image.fromarray(np.full((5, 7, 3), i, np.uint8)).save(tmp_path / name / f"{i}.png")
    for source in (dict(data=str(tmp_path)), dict(dataset="folder", data_dir=str(tmp_path))):
        for side in (9, None):
            settings = Settings(image_size=side, **source)
            settings.check(TINY)
            data = load_data(settings.apply(TINY), settings)
            assert data.spec.raw_shape == (side or 32, side or 32, 3) and data.spec.class_names == ("cat", "dog")


def test_limits_take_some_of_every_class_of_sorted_arrays(tmp_path):
    path = tmp_path / "sorted.npz"
    x, y = write_arrays(path)
    order, rest = np.argsort(y[:60], kind="stable"), 60 + np.argsort(y[60:], kind="stable")
    np.savez(path, x_train=x[order], y_train=y[order], x_test=x[rest], y_test=y[rest])
    settings = Settings(data=str(path), train_limit=20, test_limit=12)
    data = load_data(settings.apply(TINY), settings)
    assert (data.spec.train_size, data.spec.test_size, data.test_sizes) == (20, 12, {"test": (12, 30)})
    for batches in (data.train, data.test):
        assert set(np.asarray(batches(batch_size=20)[0][1]).tolist()) == {0, 1, 2, 3}
