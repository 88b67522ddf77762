"""ImageNet's loader, on a small data set of the same form."""

import dataclasses
import pathlib

import keras
import numpy as np
import pytest
from backend import untraced_steps

from tf_capsules import datasets, recipes
from tf_capsules.datasets import imagenet
from tf_capsules.runs import Settings, load_run, train

if keras.backend.backend() != "tensorflow":
    pytest.skip("the pictures are decoded by TensorFlow", allow_module_level=True)

NAMES = ("n01440764", "n01443537", "n01484850", "n01491361")  # the first of the set's thousand classes


def picture(label, height, width):
    """A picture whose red encodes a pixel's row, green its column, and blue the class."""
    down, right = np.mgrid[:height, :width]
    return np.stack([4 * down, 4 * right, np.full_like(down, 60 * label)], -1).astype(np.uint8)


def prepare(folder, file_format, per_class=3):
    import tensorflow_datasets as tfds

    def examples(part):
        for number in range(per_class * len(NAMES)):
            label = number % len(NAMES)
            stem = f"{NAMES[label]}_{number}" if part == "train" else f"ILSVRC2012_val_{number:08d}"
            yield number, {"image": picture(label, 40, 60), "label": label, "file_name": f"{stem}.JPEG"}

    tfds.dataset_builders.AdhocBuilder(
        name="imagenet2012",
        version="5.1.0",
        features=tfds.features.FeaturesDict(
            {
                "image": tfds.features.Image(encoding_format="png"),  # which loses nothing
                "label": tfds.features.ClassLabel(names=NAMES),
                "file_name": tfds.features.Text(),
            }
        ),
        split_datasets={part: list(examples(part)) for part in ("train", "validation")},
        data_dir=folder,
        file_format=file_format,
    ).download_and_prepare()


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("imagenet")
    prepare(folder, "array_record")
    return folder


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path_factory.getbasetemp()))


@pytest.fixture
def classes(tmp_path):
    """A class list of two classes, not in the set's order."""
    file = tmp_path / "classes.txt"
    file.write_text(f"{NAMES[2]}\n{NAMES[1]}\n")
    return file


def arrays(split, **options):
    batches = [(np.asarray(x), np.asarray(y)) for x, y in split.batches(5, **options)]
    return [np.concatenate(part) for part in zip(*batches, strict=True)]


def test_whole_pictures_are_cut_to_their_central_square(prepared, classes):
    data = datasets.load("imagenet", prepared, image_size=40, class_list=classes)
    assert (data.class_names, data.image_shape, data.note) == (
        (NAMES[2], NAMES[1]),
        (40, 40, 3),
        "2 of 1,000 classes, whole pictures",
    )
    for split in (data.train, data.test):
        images, labels = arrays(split)
        assert np.bincount(labels).tolist() == [3, 3]
        for image, label in zip(images, labels, strict=True):
            np.testing.assert_allclose(image * 255, picture(2 - label, 40, 60)[:, 10:50], atol=1e-3)


def test_boxes_are_cut_out_in_a_square_and_black_where_the_picture_ends(prepared, classes, tmp_path):
    boxes = tmp_path / "boxes.csv"
    # The first two boxes in pixels of 40x60: rows 4-8, columns 6-18; rows 0-20, columns 54-60.
    rows = [f"{NAMES[2]}_2.JPEG,0.1,0.1,0.3,0.2", f"{NAMES[2]}_2.JPEG,0.9,0,1,0.5", f"{NAMES[1]}_5.JPEG,0,0,1,1"]
    rows += [f"{NAMES[0]}_0.JPEG,0,0,1,1"]  # its class is left out
    rows += ["ILSVRC2012_val_00000001.JPEG,0,0,1,1", "ILSVRC2012_val_00000002.JPEG,0,0,1,1"]
    boxes.write_text("\n".join(rows))
    data = datasets.load("h_imagenet", prepared, image_size=12, class_list=classes, box_file=boxes)
    assert data.note == "2 of 1,000 classes, boxes"
    assert (data.train.size, data.test.size) == (3, 2)
    images, labels = arrays(data.train)
    small, beyond = (255 * image for image, label in zip(images, labels, strict=True) if label == 0)
    np.testing.assert_allclose(small, picture(2, 40, 60)[:12, 6:18], atol=1e-3)  # 12 x 12 about row 6, column 12
    # The second is the square of 20 about row 10, column 57. Only 13 of its columns 47 to 67 are in the picture.
    assert (beyond[:, 9:] == 0).all()
    np.testing.assert_allclose(beyond[:, :7, 2], 120, atol=1e-3)
    np.testing.assert_allclose(beyond[6, 3, :2], (4 * 10.3, 4 * (47 + 5.3)), atol=2)


def test_training_reads_random_pictures_and_repeats(prepared, classes):
    split = datasets.load("h_imagenet", prepared, image_size=8, class_list=classes).train
    options = dict(training=True, preprocess=(("crop", 6), ("flip",)))
    first, again, other = (arrays(split, seed=seed, **options) for seed in (1, 1, 2))
    assert first[0].shape == (6, 6, 6, 3)
    np.testing.assert_array_equal(first[0], again[0])
    assert not np.array_equal(first[0], other[0])


def test_file_names_are_read_once(prepared, capsys):
    datasets.load("imagenet", prepared, class_list=_first_four(prepared))
    capsys.readouterr()
    datasets.load("imagenet", prepared, class_list=_first_four(prepared))
    assert capsys.readouterr().out == ""
    whole = {
        file: file.read_bytes() for file in (pathlib.Path.home() / ".cache/tf_capsules").glob("imagenet_train_*.npz")
    }
    for file, content in whole.items():
        file.write_bytes(content[:-50])
    with pytest.raises(ValueError, match="imagenet_train_.*npz is a damaged cache, which can be removed"):
        datasets.load("imagenet", prepared, class_list=_first_four(prepared))
    for file, content in whole.items():
        file.write_bytes(content)


def _first_four(prepared):
    file = prepared / "four.txt"
    file.write_text("\n".join(NAMES))
    return file


@pytest.mark.long
def test_a_recipe_trains_and_is_loaded(prepared, classes, tmp_path, monkeypatch):
    small = dataclasses.replace(
        recipes.get("li2018-imagenet").replace(
            model_options=dict(layers=(1, 1), types=2, coefficients=None), dataset_options=dict(image_size=36)
        ),
        feedback=None,
        preprocess=(("crop", 32),),
    )
    monkeypatch.setattr(recipes, "get", lambda name: small)
    settings = Settings(data_dir=str(prepared), class_list=str(_first_four(prepared)), epochs=1, batch_size=5)
    with untraced_steps():
        train(small, tmp_path / "run", settings, verbose=0)
        run = load_run(tmp_path / "run")
        assert run.evaluate()["top_5"] == 1
    assert run.result["metric"] == "top_5" and run.result["value"] == 1  # of four classes
    assert run.result["dataset"] == "imagenet" and "whole pictures" in run.result["note"]
    assert run.data.spec.class_names == NAMES


def test_clear_errors(prepared, classes, tmp_path):
    def wrong(error, match, name="imagenet", folder=prepared, **options):
        with pytest.raises(error, match=match):
            datasets.load(name, folder, **options)

    wrong(ValueError, "needs class_list", "h_imagenet")
    wrong(ValueError, "`image_size` must be a whole number of at least 1. Received: 0", image_size=0)
    wrong(FileNotFoundError, "'imagenet' is not in .*downloads/manual.*array_record", folder=tmp_path)
    wrong(FileNotFoundError, "downloads/manual.*array_record", folder=tmp_path / "empty", download=True)
    wrong(ValueError, "no pictures of 996 classes, the first is n01494475")
    wrong(FileNotFoundError, "class list .*absent", class_list=tmp_path / "absent")
    wrong(FileNotFoundError, "box file .*absent", box_file=tmp_path / "absent")
    file = tmp_path / "file"
    for content in (b"\x89PNG", b"n" * 200_000):
        file.write_bytes(content)
        wrong(ValueError, f"{file} is no class list: ", class_list=file)
        wrong(ValueError, f"{file} is no box file: ", box_file=file)
    for text, match in (
        ("n01440764\nn00000000", "'n00000000' is no class"),
        ("n01440764", "two classes or more.*1 line"),
        ("n01440764\nn01440764", "each once. It has 2 lines"),
    ):
        file.write_text(text)
        wrong(ValueError, match, class_list=file)
    for line in ("a.JPEG,0,0,1", "a.JPEG,0.5,0,0.4,1", "a.JPEG,0,0,1,300", "a.JPEG,0,0,1,nan", "a.JPEG,0,0,1,x"):
        file.write_text(f"{NAMES[1]}_1.JPEG,0,0,1,1\n{line}")
        wrong(ValueError, f"line 2: '{line}' is not file name, left", class_list=classes, box_file=file)
    file.write_text(f"{NAMES[1]}_1.JPEG,0,0,1,1\n")
    wrong(
        ValueError, f"train split has no boxes of 1 classes, the first is {NAMES[2]}", class_list=classes, box_file=file
    )


def test_wrong_files_are_told_before_the_index_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(imagenet, "_sources", lambda *arguments: pytest.fail("the index is read"))
    for name in ("class_list", "box_file"):
        with pytest.raises(FileNotFoundError, match="absent: there is no such file"):
            datasets.load("imagenet", tmp_path, **{name: tmp_path / "absent"})


def test_a_set_without_random_access_is_refused(tmp_path):
    prepare(tmp_path, "tfrecord", per_class=1)
    with pytest.raises(ValueError, match="is prepared as tfrecord.*file_format='array_record'"):
        datasets.load("imagenet", tmp_path)


def test_a_damaged_set_is_named(tmp_path):
    prepare(tmp_path, "tfrecord", per_class=1)
    next(tmp_path.glob("**/dataset_info.json")).write_text("{")
    with pytest.raises(ValueError, match=f"{tmp_path} holds no sound copy of ImageNet: "):
        datasets.load("imagenet", tmp_path)


def test_a_window_keeps_its_place():
    image = np.arange(24).reshape(4, 6, 1)
    np.testing.assert_array_equal(imagenet._square(image, 1, 2, 2), image[1:3, 2:4])
    beyond = np.asarray(imagenet._square(image, -1, 4, 4))
    np.testing.assert_array_equal(beyond[1:, :2], image[:3, 4:])
    assert beyond[0].sum() == beyond[:, 2:].sum() == 0
