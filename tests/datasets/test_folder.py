import io
import os
import shutil

import numpy as np
import pytest

pytest.importorskip("tensorflow")
Image = pytest.importorskip("PIL.Image")

from tf_capsules import datasets  # noqa: E402
from tf_capsules.datasets.folder import upright  # noqa: E402

SUFFIXES = ("png", "jpg", "bmp", "gif", "JPEG", "webp")
COLOURS = {"blue": (0, 0, 200), "green": (0, 200, 0), "red": (200, 0, 0)}


def fill(root, count=10, names=tuple(COLOURS)):
    for name in names:
        (root / name).mkdir(parents=True)
        for i in range(count):
            image = np.full((9 + i, 7, 3), COLOURS[name], "uint8")
            image[0, 0] = 100 + i
            Image.fromarray(image).save(root / name / f"{i}.{SUFFIXES[i % 6]}")
    return root


def colour(images):
    return images[:, 3, 3].argmax(-1)


def test_a_fifth_of_each_class_is_the_test_split(tmp_path):
    fill(tmp_path, 20)
    (tmp_path / "red" / ".DS_Store").write_text("no image")
    (tmp_path / ".hidden").mkdir()
    pets = datasets.load("folder", tmp_path, image_size=(6, 8))
    assert pets.class_names == ("blue", "green", "red") and pets.image_shape == (6, 8, 3)
    train, test = pets.train.arrays, pets.test.arrays
    np.testing.assert_array_equal(np.bincount(train["label"]), [16] * 3)
    np.testing.assert_array_equal(np.bincount(test["label"]), [4] * 3)
    for arrays in (train, test):
        np.testing.assert_array_equal(colour(arrays["image"]), 2 - arrays["label"])
        assert len(set(arrays["label"][:8])) > 1  # not one class after the other
    again = datasets.load("folder", str(tmp_path), image_size=(6, 8))
    np.testing.assert_array_equal(again.test.arrays["image"], test["image"])


def test_own_splits_and_grey(tmp_path):
    fill(tmp_path / "train", 6)
    fill(tmp_path / "test", 2)
    (tmp_path / "validation").mkdir()
    with pytest.warns(UserWarning, match="left out the folders validation; there are train and test"):
        pets = datasets.load("folder", tmp_path, image_size=5, channels=1)
    assert (pets.train.size, pets.test.size, pets.image_shape) == (18, 6, (5, 5, 1))
    grey = {0: 23, 1: 117, 2: 60}  # 0.114 B, 0.587 G, 0.299 R of 200
    for arrays in (pets.train.arrays, pets.test.arrays):
        np.testing.assert_allclose(arrays["image"][:, 3, 3, 0], [grey[y] for y in arrays["label"]], atol=3)
    assert len(set(pets.train.arrays["label"][:6])) > 1


def test_16_bits_are_brought_to_8(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(5):
            ramp = np.array([[0, 100, 257, 32768, 65535]], np.uint16)
            Image.fromarray(ramp).save(tmp_path / name / f"{i}.png")
    images = datasets.load("folder", tmp_path, image_size=(1, 5), channels=1).train.arrays["image"]
    np.testing.assert_array_equal(images[0, 0, :, 0], [0, 0, 1, 128, 255])


def test_16_bits_are_turned_and_cut_off_at_the_highest():
    image, tags = Image.fromarray(np.array([[0, 65535]], np.uint16)), Image.Exif()
    tags[0x0112] = 3  # a half turn
    file = io.BytesIO()
    image.save(file, "png", exif=tags)
    np.testing.assert_array_equal(upright(Image.open(file), "L"), [[255, 0]])
    np.testing.assert_array_equal(upright(Image.fromarray(np.array([[100_000]], np.int32)), "L"), [[255]])


@pytest.mark.parametrize("mode", ["RGBA", "LA", "L"])
def test_what_is_transparent_becomes_white(mode):
    image = Image.fromarray(np.array([[[0, 0], [9, 255]]], np.uint8), "LA").convert(mode)
    file = io.BytesIO()
    image.save(file, "png", **({"transparency": 0} if mode == "L" else {}))
    np.testing.assert_array_equal(upright(Image.open(file), "L"), [[255, 9]])


def test_images_keep_their_orientation(tmp_path):
    fill(tmp_path)
    half = np.zeros((8, 4, 3), "uint8")
    half[:2] = 250
    for file in (tmp_path / "red").iterdir():
        file.unlink()
    for i in range(10):
        Image.fromarray(half).save(tmp_path / "red" / f"{i}.png")
    arrays = datasets.load("folder", tmp_path, image_size=(8, 4)).train.arrays
    np.testing.assert_array_equal(arrays["image"][arrays["label"] == 2][0], half)


def test_train_alone_is_a_class(tmp_path):
    fill(tmp_path)
    (tmp_path / "red").rename(tmp_path / "train")
    assert datasets.load("folder", tmp_path).class_names == ("blue", "green", "train")


def test_what_a_mac_adds_to_an_archive_is_no_class(tmp_path):
    fill(tmp_path)
    (tmp_path / "__MACOSX" / "red").mkdir(parents=True)
    (tmp_path / "__MACOSX" / "red" / "._0.png").write_bytes(b"Mac OS X")
    assert datasets.load("folder", tmp_path).class_names == ("blue", "green", "red")


def test_what_is_left_out_is_counted_and_named(tmp_path):
    fill(tmp_path)
    (tmp_path / "red" / "notes.txt").write_text("no image")
    (tmp_path / "red" / "more.png").mkdir()
    for name in ("red", "blue"):
        (tmp_path / name / "photo.TIF").write_bytes(b"II*")
    with pytest.warns(UserWarning, match="left out 2 .tif, 1 .txt, 1 folders; images are .png, .*, .webp$"):
        pets = datasets.load("folder", tmp_path)
    assert pets.train.size + pets.test.size == 30


def broken(root):
    (root / "red" / "0.png").write_bytes(b"\x89PNG\r\n\x1a\n but no more")


def broken_in_many(root):
    for number in range(10):
        (root / "red" / f"a{number}.png").write_bytes(b"no picture")
    broken(root)


def cut(root):
    file = root / "red" / "1.jpg"
    file.write_bytes(file.read_bytes()[:400])


def emptied(root):
    for file in (root / "green").iterdir():
        file.unlink()


def other_kinds(root):
    for i, file in enumerate((root / "green").iterdir()):
        file.rename(file.with_name(f"{i}.tiff"))


def few(root):
    for file in list((root / "green").iterdir())[1:]:
        file.unlink()


def uneven(root):
    for name in ("green", "blue"):
        for file in list((root / name).iterdir())[2:]:
            file.unlink()
    for number, file in enumerate(list((root / "red").iterdir()) * 9):
        shutil.copy(file, file.with_name(f"{number}_{file.name}"))


def of_another_encoding(root):
    try:
        (root / "green").rename(root / os.fsdecode(b"gr\xe9"))
    except OSError:
        pytest.skip("this file system has UTF-8 names only")


@pytest.mark.parametrize(
    "spoil, words",
    [
        (of_another_encoding, r"must be UTF-8; rename the one that is read as 'gr\\udce9'"),
        (uneven, "2 in 'blue': too few to keep 20% of each class"),
        (broken, "red/0.png cannot be read as an image"),
        (broken_in_many, "(red/.*.png cannot be read as an image: .*){10}; and 1 more$"),
        (cut, "red/1.jpg cannot be read as an image"),
        (emptied, r"class folder .*green holds no images \(.*\)$"),
        (other_kinds, r"class folder .*green holds no images \(.*\), but 10 .tiff"),
        (few, "1 in 'green': too few"),
    ],
)
def test_bad_folders_are_named(tmp_path, spoil, words):
    fill(tmp_path)
    spoil(tmp_path)
    with pytest.raises(ValueError, match=words):
        datasets.load("folder", tmp_path)


def test_missing_folders_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such folder: .*nowhere"):
        datasets.load("folder", tmp_path / "nowhere")
    with pytest.raises(ValueError, match="two or more; found none"):
        datasets.load("folder", tmp_path)
    with pytest.raises(ValueError, match="needs data_dir"):
        datasets.load("folder")
    fill(tmp_path / "train", 2)
    fill(tmp_path / "test", 2, ("red", "blue"))
    with pytest.raises(ValueError, match="classes blue, green, red, but .* has blue, red"):
        datasets.load("folder", tmp_path)


@pytest.mark.parametrize(
    "options", [{"image_size": 0}, {"image_size": True}, {"image_size": (3, 4, 5)}, {"channels": 2}]
)
def test_bad_options_are_named(tmp_path, options):
    (name,) = options
    with pytest.raises(ValueError, match=f"{name} must be"):
        datasets.load("folder", fill(tmp_path), **options)
