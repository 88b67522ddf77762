import numpy as np
import pytest

from tf_capsules.datasets.npz import load_npz


def arrays():
    images = np.random.default_rng(0).integers(0, 256, (11, 5, 6, 2), dtype=np.uint8)
    return images, np.arange(11) % 3


def archive(path, **changes):
    x, y = arrays()
    data = {"x_train": x, "y_train": y, "x_test": x[:4], "y_test": y[:4]} | changes
    np.savez(path, **{key: value for key, value in data.items() if value is not None})
    return path


def test_a_folder_is_no_archive(tmp_path):
    with pytest.raises(ValueError, match=f"{tmp_path} is a folder, not a .npz file"):
        load_npz(tmp_path)


def test_load_npz(tmp_path):
    x, y = arrays()
    data = load_npz(archive(tmp_path / "a.npz", y_train=y[:, None].astype("uint8")))
    np.testing.assert_array_equal(data["x_train"], x)
    np.testing.assert_array_equal(data["y_train"], y)
    assert data["y_train"].dtype == np.int32 and data["x_test"].shape == (4, 5, 6, 2)
    grey = load_npz(archive(tmp_path / "b.npz", x_train=x[..., 0] / 255, x_test=x[:4, ..., 0] / 255))
    assert grey["x_train"].shape == (11, 5, 6, 1) and grey["x_train"].dtype == np.float32


def test_classes_are_named_by_the_file_else_by_who_knows_them_else_by_number(tmp_path):
    labels = {"y_train": np.array([0, 2] * 5 + [0]), "y_test": np.array([1, 2, 2, 0])}  # no example of class 1
    named = archive(tmp_path / "named.npz", **labels, class_names=["cat", "dog", "owl"])
    assert load_npz(named)["class_names"] == load_npz(named, class_names=tuple("abc"))["class_names"]
    assert load_npz(named)["class_names"] == ("cat", "dog", "owl")
    plain = archive(tmp_path / "plain.npz", **labels)
    assert load_npz(plain, class_names=tuple("abcd"))["class_names"] == tuple("abcd")
    with pytest.raises(ValueError, match="2 different labels from 0 to 2"):
        load_npz(plain)
    full = archive(tmp_path / "full.npz", y_train=np.arange(11) % 3, y_test=labels["y_test"])
    assert load_npz(full)["class_names"] == ("0", "1", "2")


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"x_test": None}, "no x_test"),
        ({"x_train": np.zeros((11, 5))}, r"x_train has shape \(11, 5\)"),
        ({"x_train": np.zeros((11, 5, 6, 2), "int64")}, "x_train is int64"),
        ({"x_train": np.full((11, 5, 6, 2), 1.5)}, "floats from 1.5 to 1.5"),
        ({"x_train": np.full((11, 5, 6, 2), np.nan)}, "x_train has 660 values that are not finite"),
        ({"y_train": np.zeros(10, int)}, r"y_train has shape \(10,\) for 11 examples"),
        ({"y_train": np.full(11, -1)}, "from -1"),
        ({"y_train": np.zeros(11)}, "y_train is float64"),
        ({"y_train": np.arange(11) % 2 + 2**32}, "y_train has the label 4294967297; labels are numbers of classes"),
        ({"y_test": np.full(4, 7)}, "y_test has the label 7; [0-9]+ classes have"),
        (
            {"y_train": np.arange(11) * 1000},
            "y_train has 11 different labels from 0 to 10000: number the classes from 0",
        ),
        (
            {"y_train": np.arange(11) % 3, "class_names": ["a", "b"]},
            "y_train has the label 2; 2 classes have labels 0 to 1",
        ),
        ({"y_train": np.zeros(11, int), "y_test": np.zeros(4, int)}, "there is one class, '0'; two or more are needed"),
        ({"class_names": ["a", "b", "a"]}, "class_names is <U1 of shape .3,., not different strings"),
        ({"class_names": ["a", "b", "\udce9"]}, r"must be UTF-8; rename the one that is read as '\\udce9'"),
        ({"class_names": [3, 4, 5]}, "class_names is int64 of shape .3,., not different strings"),
        ({"x_test": np.zeros((4, 5, 5, 2), "uint8")}, r"\(5, 6, 2\), test images \(5, 5, 2\)"),
    ],
)
def test_bad_archives_are_named(tmp_path, changes, words):
    with pytest.raises(ValueError, match=words):
        load_npz(archive(tmp_path / "data.npz", **changes))


def test_what_is_no_archive(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere.npz"):
        load_npz(tmp_path / "nowhere.npz")
    for name, content in {"text.npz": b"hello", "broken.npz": b"PK\x03\x04 but no more"}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=name):
            load_npz(tmp_path / name)
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(ValueError, match="one.npy"):
        load_npz(tmp_path / "one.npy")
