import pathlib

import numpy as np
import pytest

from tf_capsules.datasets.sst import builder_class, examples, sst, tree_phrases

REAL = pathlib.Path(__file__).parents[2].parent / "shared" / "data" / "sst" / "trees"
TREES = {
    "train.txt": [
        "(4 (2 A) (3 (3 good) (2 film)))",
        "(2 (2 2\u00a01\\/2) (2 (0 bad) (2 -LRB-)))",
        "(1 (0 bad) (2 (2 A) (2 .)))",
    ],
    "dev.txt": ["(1 (2 A) (0 bore))", "(2 (2 So) (2 so))", "(1 (2 A) (0 bore))", "(3 Fine)"],
    "test.txt": ["(0 (0 No) (2 .))", "(4 (4 Yes) (2 .))"],
}


@pytest.fixture
def trees(tmp_path):
    for name, lines in TREES.items():
        (tmp_path / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")
    return tmp_path


def read(split):
    return list(zip(split.texts, split.labels.tolist(), strict=True))


def test_phrases_come_root_first():
    found = tree_phrases("(3 (2 (1 one) (0 two)) (4 (2 three) (2 (2 four) (1 five))))")
    assert found == [
        (3, "one two three four five"),
        (2, "one two"),
        (1, "one"),
        (0, "two"),
        (4, "three four five"),
        (2, "three"),
        (2, "four five"),
        (2, "four"),
        (1, "five"),
    ]
    assert tree_phrases("(0 No)") == [(0, "No")]


def test_every_distinct_phrase_once(trees):
    reviews = sst(trees)
    assert reviews.class_names == ("very negative", "negative", "neutral", "positive", "very positive")
    assert read(reviews.train) == [
        ("A good film", 4), ("A", 2), ("good film", 3), ("good", 3), ("film", 2),
        ("2\u00a01\\/2 bad -LRB-", 2), ("2\u00a01\\/2", 2), ("bad -LRB-", 2), ("bad", 0), ("-LRB-", 2),
        ("bad A .", 1), ("A .", 2), (".", 2),
    ]  # fmt: skip
    # Sentences for evaluation are not made distinct.
    assert read(reviews.dev) == [("A bore", 1), ("So so", 2), ("A bore", 1), ("Fine", 3)]
    assert reviews.train.texts.dtype == object and reviews.train.labels.dtype == np.int32


def test_sentences_and_binary_labels(trees):
    assert read(sst(trees, phrases=False).train) == [("A good film", 4), ("2\u00a01\\/2 bad -LRB-", 2), ("bad A .", 1)]
    binary = sst(trees, labels="binary")
    assert binary.class_names == ("negative", "positive") and binary.name == "sst_binary"
    # "bad" comes from a tree whose root is neutral.
    assert read(binary.train) == [("A good film", 1), ("good film", 1), ("good", 1), ("bad", 0), ("bad A .", 0)]
    assert read(binary.dev) == [("A bore", 0), ("A bore", 0), ("Fine", 1)]
    assert read(sst(trees, labels="binary", phrases=False).train) == [("A good film", 1), ("bad A .", 0)]


def test_the_first_label_of_a_phrase_counts(tmp_path):
    (tmp_path / "trees.txt").write_text("(2 (3 so) (1 (0 so) (2 .)))\n(4 (2 .) (2 so))")
    assert examples(tmp_path / "trees.txt", phrases=True) == (["so so .", "so", "so .", ".", ". so"], [2, 3, 1, 2, 4])
    # A neutral reading is left out before phrases are compared.
    (tmp_path / "trees.txt").write_text("(2 (2 so) (1 (0 so) (2 .)))")
    assert examples(tmp_path / "trees.txt", "binary", phrases=True) == (["so .", "so"], [0, 0])


def test_the_folder_of_the_archive_and_windows_lines(trees, tmp_path_factory):
    outer = tmp_path_factory.mktemp("archive")
    (outer / "trees").mkdir()
    for name, lines in TREES.items():
        (outer / "trees" / name).write_bytes("\r\n".join(lines).encode())
    for split in ("train", "dev", "test"):
        assert read(getattr(sst(outer), split)) == read(getattr(sst(trees), split))


@pytest.mark.parametrize(
    "tree, words",
    [
        ("(3 (2 a) (2 b)", "1 '\\)' missing"),
        ("(3 (2 a) (2 b)))", "ends before '\\)'"),
        ("(3 (2 a)) (2 b)", "ends before '\\('"),
        ("(3 (2 a)) b", "ends before 'b'"),
        ("(5 (2 a) (2 b))", "label 0 to 4 .* not '5'"),
        ("(3 (x a) (2 b))", "label 0 to 4 .* not 'x'"),
        ("(3 a b)", "'a' is followed by 'b'"),
        ("(3 a (2 b))", "'a' is followed by '\\('"),
        ("(3 (2 a) b)", "'b' stands beside"),
        ("(3 (2) (2 b))", "neither word nor parts"),
        ("(3 ", "'\\)' missing"),
        ("(", "not 'the end'"),
        (")", "begins with '\\)'"),
        ("word", "'word' stands beside"),
        ("  ", "no tree"),
        ("(3 (2 a) (2 \udcff))", "utf-8"),
    ],
)
def test_malformed_trees_are_named(trees, tree, words):
    with (trees / "train.txt").open("ab") as file:
        file.write(tree.encode("utf-8", "surrogateescape") + b"\n")
    with pytest.raises(ValueError, match=f"train.txt, line 4: .*{words}"):
        sst(trees)


def test_an_empty_file_is_named(trees):
    (trees / "dev.txt").write_text("\n")
    with pytest.raises(ValueError, match="dev.txt holds no trees"):
        sst(trees)
    (trees / "dev.txt").write_text("(2 (2 a) (2 b))\n")
    with pytest.raises(ValueError, match="dev.txt holds no positive or negative trees"):
        sst(trees, labels="binary")


def test_bad_labels_are_named(trees):
    with pytest.raises(ValueError, match="'fine' or 'binary', not 'coarse'"):
        sst(trees, labels="coarse")
    with pytest.raises(ValueError, match="'fine' or 'binary', not 'Fine'"):
        examples(trees / "dev.txt", labels="Fine")


@pytest.mark.skipif(not REAL.is_dir(), reason="needs the real trees, in the folder shared/data beside the repository")
@pytest.mark.parametrize(
    "labels, phrases, sizes",
    [
        ("fine", True, (159_274, 1_101, 2_210)),
        ("fine", False, (8_544, 1_101, 2_210)),
        ("binary", True, (77_616, 872, 1_821)),
        ("binary", False, (6_920, 872, 1_821)),
    ],
)
def test_the_real_trees(labels, phrases, sizes):
    reviews = sst(REAL, labels=labels, phrases=phrases)
    assert tuple(len(split.labels) for split in (reviews.train, reviews.dev, reviews.test)) == sizes
    if phrases:
        assert len(set(reviews.train.texts)) == sizes[0]
    else:
        assert sum("\u00a0" in text for text in reviews.train.texts) == 3
        if labels == "fine":
            np.testing.assert_array_equal(np.bincount(reviews.train.labels), [1092, 2218, 1624, 2322, 1288])
            np.testing.assert_array_equal(np.bincount(reviews.test.labels), [279, 633, 389, 510, 399])


class TestPrepared:
    """The data set as tensorflow-datasets prepares it."""

    @pytest.fixture(autouse=True)
    def tfds(self):
        return pytest.importorskip("tensorflow_datasets")

    @pytest.mark.parametrize("config", ["fine_phrases", "binary_sentences"])
    def test_the_builder_holds_the_same_examples(self, trees, tmp_path_factory, config):
        prepared = tmp_path_factory.mktemp("tfds")
        builder = builder_class()(config=config, data_dir=prepared, trees=trees)
        builder.download_and_prepare()
        labels, units = config.split("_")
        reviews, again = (sst(folder, labels=labels, phrases=units == "phrases") for folder in (trees, prepared))
        assert builder.info.features["label"].names == list(reviews.class_names) == list(again.class_names)
        assert set(builder.info.splits) == {"train", "validation", "test"}
        for split in ("train", "dev", "test"):
            assert sorted(read(getattr(again, split))) == sorted(read(getattr(reviews, split)))

    def test_the_official_archive_is_fetched_on_request(self, trees, tmp_path_factory, monkeypatch, tfds):
        asked = []
        monkeypatch.setattr(
            tfds.download.DownloadManager, "download_and_extract", lambda self, url: asked.append(url) or trees
        )
        reviews = sst(tmp_path_factory.mktemp("tfds"), download=True, labels="binary")
        assert asked == ["https://nlp.stanford.edu/sentiment/trainDevTestTrees_PTB.zip"]
        assert sorted(read(reviews.train)) == sorted(read(sst(trees, labels="binary").train))

    def test_absent_data_fail_at_once(self, tmp_path):
        with pytest.raises(FileNotFoundError) as error:
            sst(tmp_path)
        for words in (f"test.txt in {tmp_path}", f"{tmp_path}/sst_trees/fine_phrases", "trainDevTest", "--download"):
            assert words in str(error.value)

    def test_a_folder_without_trees_is_named(self, tmp_path):
        builder = builder_class()(config="fine_phrases", data_dir=tmp_path / "out", trees=tmp_path)
        with pytest.raises(FileNotFoundError, match=f"test.txt in {tmp_path}"):
            builder.download_and_prepare()
