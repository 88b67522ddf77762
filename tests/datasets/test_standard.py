import numpy as np
import pytest

pytest.importorskip("tensorflow")
tfds = pytest.importorskip("tensorflow_datasets")

from tf_capsules import datasets  # noqa: E402


def test_digits():
    from sklearn.datasets import load_digits

    digits = datasets.load("digits")
    train, test = digits.train.arrays, digits.test.arrays
    assert (digits.train.size, digits.test.size, digits.image_shape) == (1437, 360, (8, 8, 1))
    assert digits.class_names == tuple("0123456789") and digits.note == "" and not digits.multi_label
    share = np.bincount(test["label"]) / np.bincount(load_digits().target)
    np.testing.assert_allclose(share, 0.2, atol=0.006)
    assert train["image"].dtype == np.uint8
    values = {int(np.rint(value * 255 / 16)) for value in range(17)}
    assert set(np.unique(train["image"])) == values
    both = np.concatenate([train["image"], test["image"]])[..., 0].reshape(-1, 64)
    original = np.rint(load_digits().images * 255 / 16).reshape(-1, 64)
    np.testing.assert_array_equal(both[np.lexsort(both.T)], original[np.lexsort(original.T)])
    np.testing.assert_array_equal(datasets.load("digits").test.arrays["label"], test["label"])


@pytest.mark.long
def test_mnist(mnist):
    assert (mnist.train.size, mnist.test.size, mnist.image_shape) == (60000, 10000, (28, 28, 1))
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    np.testing.assert_array_equal(np.bincount(mnist.train.arrays["label"]), counts)
    assert mnist.class_names == tuple("0123456789")


@pytest.mark.long
def test_cifar10(prepare):
    cifar = datasets.load("cifar10", prepare("cifar10"))
    assert (cifar.train.size, cifar.test.size, cifar.image_shape) == (50000, 10000, (32, 32, 3))
    np.testing.assert_array_equal(np.bincount(cifar.train.arrays["label"]), [5000] * 10)
    means = cifar.train.arrays["image"].mean((0, 1, 2)) / 255
    np.testing.assert_allclose(means, [0.4914, 0.4822, 0.4465], atol=1e-4)
    assert cifar.class_names[:2] == ("airplane", "automobile")


@pytest.mark.parametrize(
    "name, shape, classes, first",
    [
        ("fashion_mnist", (28, 28, 1), 10, "T-shirt/top"),
        ("cifar10", (32, 32, 3), 10, "airplane"),
        ("cifar100", (32, 32, 3), 100, "0"),
        ("svhn", (32, 32, 3), 10, "0"),
    ],
)
def test_sets_that_are_not_at_hand(name, shape, classes, first, tmp_path):
    with tfds.testing.mock_data(num_examples=7):
        dataset = datasets.load(name, tmp_path)
    assert dataset.name == name and dataset.image_shape == shape
    assert len(dataset.class_names) == classes and dataset.class_names[0] == first
    x, y = next(iter(dataset.test.batches(7)))
    assert x.shape == (7, *shape) and 0 <= int(min(y)) and int(max(y)) < classes


@pytest.mark.parametrize("name, builder", [("mnist", "mnist"), ("svhn", "svhn_cropped")])
def test_absent_data_fail_at_once(name, builder, tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        datasets.load(name, tmp_path)
    for words in (f"{tmp_path}/{builder}", f"into {tmp_path}, load", "download=True"):
        assert words in str(error.value)


def test_the_environment_names_the_folder(tmp_path, monkeypatch):
    # tensorflow-datasets reads TFDS_DATA_DIR once, when it is imported.
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=f"fetch it into {tmp_path}, load"):
        datasets.load("mnist")


def test_download_is_asked_for_only_when_wanted(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", lambda self: asked.append(self.name))
    for download in (False, True):
        with pytest.raises(FileNotFoundError):
            datasets.load("mnist", tmp_path, download=download)
        assert asked == ["mnist"] * download


@pytest.mark.parametrize("name", ["mnist", "sst_fine"])
def test_damaged_prepared_folders_are_named(name, tmp_path):
    with pytest.raises(FileNotFoundError):
        datasets.load(name, tmp_path)
    builder = "sst_trees/fine_phrases/1.0.0" if name == "sst_fine" else "mnist/3.0.1"
    folder = tmp_path / builder
    folder.mkdir(parents=True)
    (folder / "dataset_info.json").write_text("no JSON")
    (folder / "features.json").write_text("{}")
    with pytest.raises(ValueError, match=f"{tmp_path} holds no sound copy of the "):
        datasets.load(name, tmp_path)
