import csv
import importlib.util
import json
import pathlib
import re
import shutil

import keras
import numpy as np
import pytest

from tf_capsules import cli, datasets, recipes, training
from tf_capsules.datasets.pipeline import Dataset, Split

needs_tensorflow = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="exports through TensorFlow")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The default recipe, cut short, as a user's first command leaves it."""
    folder = tmp_path_factory.mktemp("runs") / "digits"
    lines = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("builtins.print", lambda *text, **_: lines.append(" ".join(map(str, text))))
        command = [
            "train",
            "--epochs",
            "2",
            "--decay-steps",
            "40",
            "--train-limit",
            "300",
            "--test-limit",
            "90",
            "-o",
            str(folder),
        ]
        command += ["--results", str(folder.parent / "results.csv")]
        command += [] if keras.backend.backend() == "tensorflow" else ["--no-export"]
        assert cli.main(command) == 0
    return folder, lines


def test_train_ends_with_pictures_export_a_served_prediction_and_the_accuracy(trained):
    folder, lines = trained
    assert lines[0].startswith("sabour2017-digits: ")
    pictures = sorted(path.stem for path in (folder / "figures").glob("*.png"))
    assert pictures == sorted(recipes.get("sabour2017-digits").figures)
    history = (folder / "history.csv").read_text().splitlines()
    accuracy = float(dict(zip(history[0].split(","), history[-1].split(","), strict=True))["val_accuracy"])
    assert lines[-1] == f"test accuracy {100 * accuracy:.2f}%"
    assert (folder.parent / "results.csv").read_text().count("\n") == 2
    if keras.backend.backend() == "tensorflow":
        assert (folder / "saved_model" / "saved_model.pb").exists()
        assert any(line.startswith("served by TensorFlow alone: test image 0 (label 7) is class") for line in lines)


def test_resume_needs_nothing_but_the_run_folder(tmp_path, capsys):
    run, short = str(tmp_path / "run"), ["--no-export", "--no-figures"]
    given = ["--dataset", "digits", "--train-limit", "64", "--test-limit", "20", "--batch-size", "16"]
    given += ["--decay-steps", "100"]  # a rate that follows the length of the run keeps it from growing longer
    assert cli.main(["train", "sabour2017-mnist-cnn", "-o", run, "--epochs", "1", *given, *short]) == 0
    capsys.readouterr()
    assert cli.main(["train", "--resume", "-o", run, "--epochs", "2", *short]) == 0
    out = capsys.readouterr().out
    assert out.startswith("sabour2017-mnist-cnn: ") and "goes on after epoch 1 of 2" in out
    assert cli.main(["train", "--resume", "-o", run, *short]) == 0
    assert "all 2 epochs of" in capsys.readouterr().out
    for other, message in (
        (["--batch-size", "8"], "batch_size 16, now 8"),
        (["sabour2017-mnist-cnn"], "batch_size 16, now 128"),  # a recipe comes with its own settings
        (["sabour2017-digits"], "recipe sabour2017-mnist-cnn, now sabour2017-digits"),
    ):
        assert cli.main(["train", *other, "--resume", "-o", run, *short]) == 2
        assert message in capsys.readouterr().err


def test_diagnostics_leave_rows_and_a_picture(tmp_path, capsys):
    command = ["train", "-o", str(tmp_path / "run"), "--epochs", "1", "--train-limit", "100", "--test-limit", "60"]
    assert cli.main([*command, "--diagnostics", "--no-export"]) == 0
    assert (tmp_path / "run" / "diagnostics.csv").read_text().count("class_capsules") == 3  # iterations
    assert (tmp_path / "run" / "figures" / "routing_diagnostics.png").stat().st_size > 10_000
    assert cli.main([*command, "--resume", "--no-export", "--no-figures"]) == 0  # it is no part of what the run is
    plain = ["train", "li2018-mnist-cnn", "--dataset", "digits", "-o", str(tmp_path / "plain"), "--diagnostics"]
    assert cli.main(plain) == 2
    assert "has no layer whose call takes `return_couplings`" in capsys.readouterr().err
    assert not (tmp_path / "plain").exists()


def test_evaluate_repeats_the_accuracy_of_training(trained, capsys):
    folder, lines = trained
    assert cli.main(["evaluate", str(folder)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == lines[-1]
    assert cli.main(["evaluate", str(folder), str(folder)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert "ensemble of 2" in said[0] and said[-1] == lines[-1]
    results = folder.parent / "evaluated.csv"
    options = ["--weights", "best", "--test-limit", "50", "--batch-size", "17", "--results", str(results)]
    assert cli.main(["evaluate", str(folder), *options]) == 0
    header, row = (line.split(",") for line in results.read_text().splitlines())
    row = dict(zip(header, row, strict=True))
    trained_with = json.loads((folder / "result.json").read_text())["batch_size"]
    assert row["test_examples"] == "50" and row["batch_size"] == str(trained_with) != "17"


def test_novel_viewpoints_and_crops_are_told_and_kept(tmp_path, capsys, monkeypatch):
    random = np.random.default_rng(0)
    train, test, familiar = (
        Split({"image": random.integers(0, 256, (n, 12, 12, 1), dtype=np.uint8), "label": np.arange(n) % 10})
        for n in (20, 30, 25)
    )
    toys = Dataset("toys", train, test, tuple("abcdefghij"), familiar=familiar)
    recipe = recipes.get("sabour2017-digits").replace(preprocess=(("crop", 8),), figures=(), epochs=1)
    monkeypatch.setattr(datasets, "load", lambda *_, **__: toys)
    monkeypatch.setattr(recipes, "get", lambda name: recipe)
    run, results = str(tmp_path / "run"), tmp_path / "results.csv"
    assert cli.main(["train", "-o", run, "--no-export"]) == 0
    last = capsys.readouterr().out.splitlines()[-2:]
    accuracies = [
        re.fullmatch(rf"test accuracy (\d+\.\d\d)% at {views} viewpoints", line).group(1)
        for views, line in zip(("familiar", "novel"), last, strict=True)
    ]
    assert cli.main(["evaluate", run, "--results", str(results)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-2:] == last and said[1] == "familiar viewpoints" and said[3] == "novel viewpoints"
    assert cli.main(["evaluate", run, "--crops", "3", "--test-limit", "25", "--results", str(results)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("25 test images of toys, 3 random crops, ") and len(said) == 6
    assert cli.main(["evaluate", run, "--crops", "fixed", "--test-limit", "25"]) == 0
    assert "25 test images of toys, ten fixed crops, " in capsys.readouterr().out
    with results.open(newline="") as file:
        rows = [(row["note"], int(row["test_examples"]), row["test_loss"] == "") for row in csv.DictReader(file)]
    assert rows == [
        ("familiar viewpoints", 25, False),
        ("novel viewpoints", 30, False),
        ("familiar viewpoints; 3 random crops", 25, True),
        ("novel viewpoints; 3 random crops", 25, True),
    ]
    with results.open(newline="") as file:
        values = [100 * float(row["value"]) for row in csv.DictReader(file)]
    assert [f"{value:.2f}" for value in values[:2]] == accuracies


def test_a_recipe_is_evaluated_drawn_and_exported_with_given_weights(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    of = ["sabour2017-digits", "--weights", "sabour2017-digits"]
    assert cli.main(["evaluate", *of, "--jit", "off", "--results", "results.csv"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("360 test images of digits, loss 0.0")
    assert said[0].endswith(" ms each, compiling included")
    assert said[1] == "weights sabour2017-digits" and float(said[-1].split()[-1].rstrip("%")) > 99
    header, row = (line.split(",") for line in (tmp_path / "results.csv").read_text().splitlines())
    row = dict(zip(header, row, strict=True))
    assert row["note"] == "weights sabour2017-digits; jit off" and (row["epochs"], row["train_examples"]) == ("0", "0")
    assert cli.main(["figures", *of]) == 0
    pictures = {path.stem for path in (tmp_path / "runs" / "sabour2017-digits" / "figures").glob("*.png")}
    assert pictures == set(recipes.get("sabour2017-digits").figures) - {"training_curves"}
    if keras.backend.backend() == "tensorflow":
        assert cli.main(["export", *of]) == 0
        assert (tmp_path / "runs" / "sabour2017-digits" / "saved_model" / "saved_model.pb").exists()


def test_weights_that_do_not_go_with_what_is_named(trained, capsys):
    folder, _ = trained
    for arguments, message in (
        (["evaluate", "sabour2017-digits"], "sabour2017-digits is a recipe: say whose weights with --weights FILE"),
        (["evaluate", str(folder), "--weights", "author.npz"], "--weights of a run folder is last, best or an epoch"),
        (["evaluate", "sabour2017-digits", "--weights", "no.npz"], "Received: 'no.npz'"),
        (["evaluate", "no-such-run"], "no-such-run is not the folder of a run"),
    ):
        assert cli.main(arguments) == 2
        assert message in capsys.readouterr().err


@needs_tensorflow
def test_predict_reads_image_files_and_names_what_it_cannot_read(trained, tmp_path, capsys):
    from PIL import Image
    from sklearn.datasets import load_digits

    folder, _ = trained
    image = np.round(load_digits().images[0] * 255 / 16).astype(np.uint8)
    Image.fromarray(image).save(tmp_path / "zero.png")
    assert cli.main(["predict", str(folder), str(tmp_path / "zero.png")]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{tmp_path / 'zero.png'}: ") and "probability 0." in said
    assert cli.main(["predict", str(folder), str(tmp_path / "none.png")]) == 2
    assert "There is no file" in capsys.readouterr().err
    assert cli.main(["predict", str(folder), str(tmp_path)]) == 2
    assert f"{tmp_path} is a folder" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["predict", str(folder), "x.png", "--weights", "last"])
    assert capsys.readouterr().err == "tf-capsules predict: unrecognized arguments: --weights last\n"
    (tmp_path / "letter.png").write_text("not an image")
    assert cli.main(["predict", str(folder), str(tmp_path / "letter.png")]) == 2
    error = capsys.readouterr().err
    assert "letter.png can't be read as an image" in error and error.count("\n") == 1
    assert cli.main(["predict", str(tmp_path), str(tmp_path / "zero.png")]) == 2
    assert "neither an exported SavedModel nor a run" in capsys.readouterr().err


@pytest.fixture
def no_data(monkeypatch):
    """As if the data had been moved since training."""

    def load(*arguments):
        raise FileNotFoundError("the data are gone")

    monkeypatch.setattr(training, "load_data", load)


def test_crops_need_a_recipe_that_crops(trained, capsys, no_data):
    folder, _ = trained
    for crops, words in (
        ("2", "2 needs a recipe with the step 'crop'; sabour2017-digits has: shift"),
        ("0", "--crops must be fixed, or a whole number of at least 1. Received: 0"),
        ("ten", "--crops must be fixed, or a whole number of at least 1. Received: ten"),
    ):
        assert cli.main(["evaluate", str(folder), "--crops", crops]) == 2
        assert words in capsys.readouterr().err


@needs_tensorflow
def test_export_to_litert_and_to_uint8_needs_no_data(trained, tmp_path, no_data):
    folder, _ = trained
    assert cli.main(["export", str(folder), str(tmp_path / "m.tflite")]) == 0
    assert (tmp_path / "m.tflite").stat().st_size > 1000
    assert cli.main(["export", str(folder), str(tmp_path / "n.tflite"), "--format", "saved_model"]) == 2
    assert cli.main(["export", str(folder), str(tmp_path / "served"), "--default", "uint8"]) == 0
    import tensorflow as tf

    served = tf.saved_model.load(str(tmp_path / "served")).signatures["serving_default"]
    assert served.structured_input_signature[1]["images"].dtype == tf.uint8


@needs_tensorflow
def test_versions_and_warmup_requests_are_for_saved_models(trained, tmp_path, capsys, no_data):
    run, target = str(trained[0]), tmp_path / "model"
    assert cli.main(["export", run, str(target), "--version", "next", "--warmup"]) == 0
    assert cli.main(["export", run, str(target), "--version", "7"]) == 0
    assert {path.name for path in target.iterdir()} == {"1", "7"}
    assert (target / "1" / "assets.extra" / "tf_serving_warmup_requests").exists()
    assert not (target / "7" / "assets.extra").exists()
    for arguments, message in (
        ([str(target), "--version", "7"], "7 is there: give a new version another number"),
        ([str(target), "--version", "last"], "`version` must be a whole number of at least 1. Received: 'last'"),
        (["--version", "next"], "--version needs TARGET"),
        ([str(tmp_path / "m.onnx"), "--version", "next"], "--version is for SavedModels. Received: --format onnx"),
        ([str(tmp_path / "m.tflite"), "--warmup"], "--warmup is for SavedModels. Received: --format litert"),
        ([str(tmp_path / "m.onnx"), "--format", "litert"], "--format litert makes another file. Received: "),
    ):
        capsys.readouterr()
        assert cli.main(["export", run, *arguments]) == 2
        assert message in capsys.readouterr().err


@needs_tensorflow
def test_export_to_onnx_needs_no_data(trained, tmp_path, no_data):
    for package in ("tf2onnx", "onnxruntime"):
        pytest.importorskip(package)
    import onnxruntime

    assert cli.main(["export", str(trained[0]), str(tmp_path / "m.onnx")]) == 0
    (images,) = onnxruntime.InferenceSession(str(tmp_path / "m.onnx")).get_inputs()
    assert images.name == "images" and images.shape[1:] == [8, 8, 1]


def test_figures_of_one_run_and_of_several(trained, tmp_path, capsys, monkeypatch):
    from matplotlib.figure import Figure

    from tf_capsules.analysis import plots

    folder, _ = trained
    assert cli.main(["figures", str(folder), "-o", str(tmp_path / "one")]) == 0
    assert len(list((tmp_path / "one").glob("*.png"))) == len(recipes.get("sabour2017-digits").figures)
    copy = shutil.copytree(folder, tmp_path / "copy" / folder.name)
    drawn = []
    monkeypatch.setattr(plots, "draw_loss_comparison", lambda histories, losses: drawn.append(histories) or Figure())
    assert cli.main(["figures", str(folder), str(copy), "-o", str(tmp_path / "two")]) == 0
    assert (tmp_path / "two" / "loss_comparison.png").exists() and len(drawn[0]) == 2
    assert cli.main(["figures", str(folder), str(tmp_path), "-o", str(tmp_path / "three")]) == 2
    assert "not the folder of a run" in capsys.readouterr().err


def test_without_data_the_curves_are_drawn_and_the_rest_is_refused(trained, tmp_path, capsys, no_data):
    folder, _ = trained
    assert cli.main(["figures", str(folder), "-o", str(tmp_path)]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["training_curves.png"]
    assert capsys.readouterr().err.strip() == "tf-capsules figures: the data are gone"
    assert cli.main(["evaluate", str(folder)]) == 2
    assert capsys.readouterr().err.strip() == "tf-capsules evaluate: the data are gone"


def test_results_that_cannot_be_appended_are_refused_before_work(trained, tmp_path, capsys, monkeypatch):
    folder, _ = trained
    (tmp_path / "other.csv").write_text("other\n")
    results = ["--results", str(tmp_path / "other.csv")]
    monkeypatch.setattr(keras.Model, "fit", None)
    monkeypatch.setattr(keras.Model, "evaluate", None)
    for command, first in (
        (["train", "-o", str(tmp_path / "run")], "recipe"),
        (["evaluate", str(folder)], "recipe"),
        (["attack", str(folder)], "run"),
    ):
        assert cli.main(command + results) == 2
        assert f"other.csv has the columns ['other'], not ['{first}'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_runs_of_one_ensemble_take_the_same_images(trained, tmp_path, capsys):
    folder, _ = trained
    other = shutil.copytree(folder, tmp_path / "other")
    config = (other / "config.json").read_text()
    assert config.count('"9"') == 1
    (other / "config.json").write_text(config.replace('"9"', '"nine"'))
    assert cli.main(["evaluate", str(folder), str(other)]) == 2
    assert "need the same inputs, preprocessing and classes. Received: [" in capsys.readouterr().err


def test_attack_measures_runs_on_each_others_images_and_draws_them(trained, tmp_path, capsys, monkeypatch):
    folder, _ = trained
    other = shutil.copytree(folder, tmp_path / "other")
    monkeypatch.chdir(tmp_path)
    command = ["attack", str(folder), str(other), "--epsilons", "0.1", "0.3", "--attacks", "fgsm", "--limit", "30"]
    assert cli.main([*command, "--only-right", "--goals", "untargeted", "--results", "results.csv"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "30 test images of digits; epsilon in shares of the pixel range"
    assert said[1].startswith(
        "fgsm untargeted, made on digits, epsilon 0: accuracy of digits 100.0%, other 100.0% (1 of 6"
    )
    with open("results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["epsilon"] for row in rows[::2]] == 2 * ["0.0", "0.1", "0.3"]
    assert len({(row["epsilon"], row["value"]) for row in rows}) == 3  # the weights are the same
    assert float(rows[0]["value"]) == 1 > float(rows[-1]["value"])
    assert {row["note"] for row in rows} == {"only images that all runs classify rightly"}
    pictures = {path.name for path in (tmp_path / "attacks").iterdir()}
    assert pictures == {"robustness.png", "attacked_digits.png", "attacked_other.png"}


def test_runs_attacked_together_take_the_same_images(trained, tmp_path, capsys):
    folder, _ = trained
    other = shutil.copytree(folder, tmp_path / "other")
    config = (other / "config.json").read_text()
    (other / "config.json").write_text(config.replace('"9"', '"nine"'))
    for arguments, message in (
        ([str(other)], "need the same inputs, preprocessing and classes. Received: ["),
        (["--limit", "0"], "--limit must be at least 1, --seed 0. Received: 0, 0"),
        (["--loss", "hinge"], "must be one of 'crossentropy', 'trained'. Received: 'hinge'"),
        (["--attacks", "pgd"], "must be one of 'fgsm', 'bim'. Received: 'pgd'"),
    ):
        assert cli.main(["attack", str(folder), *arguments, "-o", str(tmp_path / "attacks")]) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "attacks").exists()


@pytest.mark.parametrize("what", ["recipes", "datasets", "weights"])
def test_list(what, capsys):
    from tf_capsules.models import weights

    assert cli.main(["list", what]) == 0
    lines = capsys.readouterr().out.splitlines()
    if what == "recipes":  # below their papers
        lines = [line for line in lines if line.startswith("  ")]
    listed = [line.split()[0] for line in lines]
    assert listed == list({"recipes": recipes, "datasets": datasets, "weights": weights}[what].names())


@pytest.mark.parametrize("value, parameters", [("false", "561,201"), ("False", "561,201"), ("true", "561,297")])
def test_truth_values_of_a_network(value, parameters, capsys):
    assert cli.main(["cost", "tsai2020-cifar10", "--batch-size", "2", "--network", f"layer_norm={value}"]) == 0
    assert parameters in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["train", "sabour2017-minst"], "There is no recipe 'sabour2017-minst'. Did you mean"),
        (["train", "tsai2020-cifar10@3"], "elsewhere give tsai2020-cifar10 --iterations 3"),
        (["train", "--epochs", "-3"], "--epochs must be at least 1. Received: -3"),
        (["train", "--image-size", "9"], "--image-size 9 is for a folder of images. Received: digits"),
        (["train", "--warmup", "7", "--mixup", "0.2"], "--warmup must be between 0 and 1. Received: 7.0"),
        (["train", "--data", "absent.npz"], "absent.npz: there is no such file"),
        (["evaluate", "absent"], "absent is not the folder of a run"),
        (["attack", "absent"], "absent is not the folder of a run"),
        (["export", "absent"], "absent is not the folder of a run"),
        (["figures", "absent"], "absent is not the folder of a run"),
    ],
)
def test_mistakes_are_named_in_one_line_with_status_2(command, message, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert cli.main(command) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith(f"tf-capsules {command[0]}: ") and message in error and "\n" not in error
    assert not list(pathlib.Path(tmp_path).iterdir())


def test_absent_data_are_named_at_once(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ["train", "sabour2017-mnist", "--data-dir", str(tmp_path / "nowhere")]
    assert cli.main(command) == 2
    error = capsys.readouterr().err
    if importlib.util.find_spec("tensorflow_datasets") is None:
        assert "needs the Python package tensorflow_datasets" in error
    else:
        assert "nowhere" in error and "--download" in error
    assert not list(tmp_path.iterdir())


def said(capsys, *command):
    """The one line with which a command is refused."""
    assert cli.main([str(part) for part in command]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"tf-capsules {command[0]}: ") and error.count("\n") == 1
    return error


def with_config(folder, path, **changes):
    """A copy of a run folder, its configuration changed."""
    copy = shutil.copytree(folder, path)
    config = json.loads((copy / "config.json").read_text())
    for place, value in changes.items():
        part, _, key = place.partition("__")
        if key:
            config[part][key] = value
        else:
            config[part] = value
    (copy / "config.json").write_text(json.dumps(config))
    return copy


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (dict(settings=3), "its 'settings' is 3"),
        (dict(data=None), "its 'data' is None"),
        (dict(recipe="of-tomorrow"), "There is no recipe 'of-tomorrow'"),
        (dict(settings__epochs="many"), "--epochs can't be 'many'"),
        (dict(settings__magic=1), "Settings.__init__() got an unexpected keyword argument 'magic'"),
        (dict(data__raw_shape=[8, 8]), "the raw_shape of data can't be (8, 8)"),
        (dict(data__class_names=[]), "`classes` must be a whole number of at least 1. Received: 0"),
        (dict(data__colour="red"), "data are described by name, class_names, train_size"),
    ],
)
def test_configurations_of_other_versions_are_refused(trained, tmp_path, capsys, changes, words):
    copy = with_config(trained[0], tmp_path / "run", **changes)
    assert f"{copy}/config.json is not of a run that this version can load: {words}" in said(capsys, "evaluate", copy)


def test_files_of_a_run_that_are_damaged_are_named(trained, tmp_path, capsys):
    folder, _ = trained
    last = "last-0002.weights.h5"
    whole = (folder / last).read_bytes()
    for name, content, words in (
        ("config.json", b"", "can't be read: Expecting value"),
        ("config.json", b"[]", "can't be read: it holds no dict but []"),
        ("history.csv", b"epoch,loss\n1,2\n", "is no history of a run: it has no column 'learning_rate'"),
        ("history.csv", b"\xff\xfe", "is no history of a run: 'utf-8' codec can't decode"),
        ("result.json", b"{", "can't be read: Expecting property name"),
        (last, whole[: len(whole) // 2], "does not hold weights of the network 'capsnet': Unable to"),
        (last, b"", "best.weights.h5 is there, too: --weights best."),
    ):
        copy = shutil.copytree(folder, tmp_path / "run")
        (copy / name).write_bytes(content)
        error = said(capsys, "evaluate", copy)
        assert f"{copy / name} " in error and words in error
        shutil.rmtree(copy)
    with_other_shape = with_config(folder, tmp_path / "other", data__image_shape=[9, 9, 1])
    assert f"{with_other_shape / last} does not hold weights" in said(capsys, "evaluate", with_other_shape)


def test_what_is_no_run_is_told_from_one(trained, tmp_path, capsys):
    folder, _ = trained
    (tmp_path / "net.keras").write_bytes(b"PK")
    for other in (tmp_path, tmp_path / "net.keras"):
        assert f"{other} is not the folder of a run: it has no config.json." in said(capsys, "evaluate", other)
    if keras.backend.backend() == "tensorflow":
        error = said(capsys, "evaluate", folder / "saved_model")
        assert error.endswith("it has no config.json. It is an exported model.\n")


@needs_tensorflow
def test_damaged_and_other_saved_models_are_named(trained, tmp_path, capsys):
    import tensorflow as tf

    folder, _ = trained
    (tmp_path / "zero.png").write_bytes(b"")
    variables = "variables/variables.data-00000-of-00001"
    for name, content in (("saved_model.pb", b"hello"), ("saved_model.pb", b""), (variables, bytes(1000))):
        copy = shutil.copytree(folder / "saved_model", tmp_path / "exported")
        (copy / name).write_bytes(content)
        error = said(capsys, "predict", copy, tmp_path / "zero.png")
        assert f"{copy} is no SavedModel that can be served: " in error
        shutil.rmtree(copy)
    module = tf.Module()
    tf.saved_model.save(module, str(tmp_path / "empty"))
    module.double = tf.function(lambda x: {"y": 2 * x}, input_signature=[tf.TensorSpec([None])])
    tf.saved_model.save(module, str(tmp_path / "double"), module.double)
    for name, words in (("empty", "it lacks 'serving_default'"), ("double", "it answers y, not class and prob")):
        assert f"{tmp_path / name} is no SavedModel" in (error := said(capsys, "predict", tmp_path / name, "x"))
        assert words in error
