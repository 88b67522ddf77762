import gzip

import numpy as np
import pytest

tfds = pytest.importorskip("tensorflow_datasets")

from tf_capsules import datasets  # noqa: E402
from tf_capsules.datasets import smallnorb  # noqa: E402

STEMS = {"train": "smallnorb-5x46789x9x18x6x2x96x96-training", "test": "smallnorb-5x01235x9x18x6x2x96x96-testing"}


def matrix(array):
    """An array's bytes in the file format that the data set's page describes."""
    magic = {"uint8": b"\x55\x4c\x3d\x1e", "int32": b"\x54\x4c\x3d\x1e"}[array.dtype.name]
    sizes = list(array.shape) + [1] * (3 - array.ndim)
    header = magic + array.ndim.to_bytes(4, "little") + b"".join(size.to_bytes(4, "little") for size in sizes)
    return header + array.astype(array.dtype.newbyteorder("<")).tobytes()


def source(part):
    """A few examples as original arrays. An image's first two pixels hold the example's number and its camera."""
    n, seed = {"train": (13, 1), "test": (11, 2)}[part]
    random = np.random.default_rng(seed)
    images = random.integers(0, 256, (n, 2, 96, 96), dtype=np.uint8)
    images[:, :, 0, 0] = np.arange(n)[:, None]
    images[:, :, 0, 1] = [10, 20]
    info = [
        random.integers(0, 10, n),
        random.integers(0, 9, n),
        random.integers(0, 18, n) * 2,
        random.integers(0, 6, n),
    ]
    return images, (np.arange(n) % 5).astype("int32"), np.stack(info, 1).astype("int32")


def write(folder, packed=(), **changes):
    """Writes the six files. `train_cat=bytes` replaces the content of one file; None leaves it out."""
    for part, stem in STEMS.items():
        for kind, array in zip(("dat", "cat", "info"), source(part), strict=True):
            content = changes.get(f"{part}_{kind}", matrix(array))
            name = folder / f"{stem}-{kind}.mat"
            if f"{part}_{kind}" in packed:
                name, content = folder / f"{name.name}.gz", gzip.compress(content)
            if content is not None:
                name.write_bytes(content)
    return folder


@pytest.mark.parametrize("packed", [(), ("train_dat", "test_dat", "test_info")])
def test_original_files(tmp_path, packed):
    norb = datasets.load("smallnorb", write(tmp_path, packed))
    assert (norb.train.size, norb.test.size, norb.image_shape) == (13, 11, (96, 96, 2))
    assert norb.note == "" and norb.class_names[0] == "four-legged animals" and len(norb.class_names) == 5
    for part, split in (("train", norb.train), ("test", norb.test)):
        images, labels, info = source(part)
        arrays = split.arrays
        index = arrays["image"][:, 0, 0, 0]
        assert sorted(index) == list(range(split.size)) and list(index) != sorted(index)
        np.testing.assert_array_equal(arrays["image"], images[index].transpose(0, 2, 3, 1))
        np.testing.assert_array_equal(arrays["image"][:, 0, 1], [[10, 20]] * split.size)
        np.testing.assert_array_equal(arrays["label"], labels[index])
        for name, column in zip(("instance", "elevation", "azimuth", "lighting"), info[index].T, strict=True):
            np.testing.assert_array_equal(arrays[name], column // 2 if name == "azimuth" else column)
    x, y = next(iter(norb.test.batches(11)))
    assert x.shape == (11, 96, 96, 2) and set(y.numpy()) == set(range(5))


def test_prepared_and_original_files_give_the_same_arrays(tmp_path):
    names = datasets.load("smallnorb", write(tmp_path)).class_names
    with tfds.testing.mock_data(num_examples=7):
        norb = datasets.load("smallnorb", tmp_path / "elsewhere")
    assert set(norb.train.arrays) == {"image", "label", "instance", "elevation", "azimuth", "lighting"}
    assert norb.class_names == names and norb.note == ""


@pytest.mark.long
def test_the_real_set(prepare, monkeypatch):
    norb = datasets.load("smallnorb", prepare("smallnorb"))
    assert (norb.train.size, norb.test.size, norb.image_shape) == (24300, 24300, (96, 96, 2))
    test = norb.test.arrays
    np.testing.assert_array_equal(np.bincount(test["label"]), [4860] * 5)
    pose = [test[name].astype(int) for name in ("label", "instance", "elevation", "azimuth", "lighting")]
    assert len(set(zip(*pose, strict=True))) == 24300
    assert (test["image"][..., 0] != test["image"][..., 1]).any((1, 2)).all()
    assert len(set(test["instance"][:50])) == 5  # the first examples show all test toys, so `limit` takes some of each
    assert "lack" in norb.note
    monkeypatch.setattr(smallnorb, "smallnorb", lambda data_dir, download: norb)
    inside = datasets.load("smallnorb_novel_azimuth_test_toys")
    assert (inside.train.size, inside.familiar.size, inside.test.size) == (4860, 3240, 6480)
    assert inside.note.startswith(norb.note) and "inside the test toys" in inside.note
    with pytest.raises(ValueError, match="unknown .-1. here: it is a copy of smallNORB whose training pairs lack"):
        datasets.load("smallnorb_novel_elevation")


def test_absent_data_name_both_ways(tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        datasets.load("smallnorb", tmp_path)
    for words in (f"{tmp_path}/smallnorb", "download=True", "six original .mat files from https://cs.nyu.edu/"):
        assert words in str(error.value)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        datasets.load("smallnorb", write(tmp_path, train_info=None, test_dat=None))
    for words in (str(tmp_path), f"{STEMS['train']}-info.mat, {STEMS['test']}-dat.mat", "https://cs.nyu.edu/"):
        assert words in str(error.value)
    assert f"{STEMS['train']}-dat" not in str(error.value)


IMAGES, LABELS, INFO = source("test")


def changed(array, place, value):
    array = array.copy()
    array[place] = value
    return matrix(array)


@pytest.mark.parametrize(
    "file, content, words",
    [
        ("test_dat", matrix(IMAGES)[:-1], r"\(N, 2, 96, 96\) of uint8: .*size 202751 into shape \(11,2,96,96\)"),
        ("test_cat", matrix(LABELS) + b"\0", r"\(11\) of int32: buffer size must be a multiple"),
        ("test_cat", matrix(LABELS)[:17], "buffer is smaller"),
        ("test_dat", matrix(IMAGES)[:22], "buffer is smaller"),
        ("test_cat", b"\x13\x4c\x3d\x1e" + matrix(LABELS)[4:], "magic number 0x1e3d4c13, 1 axes"),
        ("test_cat", b"", "buffer is smaller"),
        ("test_dat", gzip.compress(matrix(IMAGES))[:-9], "file ended before"),
        ("test_dat", gzip.compress(matrix(IMAGES))[:5000] + b"?" * 99, "file ended before"),
        ("test_info", matrix(INFO.T), r"\(11, 4\) of int32: it begins .* 2 axes and the sizes \[4, 11\]"),
        ("test_cat", matrix(LABELS[:10]), r"\(11\) of int32: it begins .* sizes \[10\]"),
        ("test_dat", matrix(LABELS), r"\(N, 2, 96, 96\) of uint8: it begins with the magic number 0x1e3d4c54, 1 axes"),
        ("test_cat", changed(LABELS, 3, 5), "no category 5"),
        ("test_info", changed(INFO, (2, 2), 7), "no azimuth 7"),
        ("test_info", changed(INFO, (2, 1), -1), "no elevation -1"),
    ],
)
def test_wrong_files_are_named(tmp_path, file, content, words):
    with pytest.raises(ValueError, match=words) as error:
        datasets.load("smallnorb", write(tmp_path, **{file: content}))
    assert f"{tmp_path}/{STEMS['test']}" in str(error.value)
