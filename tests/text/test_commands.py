"""The command line on texts, with a small random BERT."""

import functools
import shutil

import pytest
from backend import untraced_steps
from toys import write_trees

from tf_capsules import cli, text
from tf_capsules.runs import prediction


@pytest.fixture(scope="module")
def run(bert, tmp_path_factory):
    """The folder of a short run, and the output of its training."""
    import contextlib
    import io

    folder = tmp_path_factory.mktemp("runs")
    command = [
        "train",
        "heinsen2019-sst2",
        "--transformer",
        str(bert),
        "--data-dir",
        str(write_trees(folder / "trees")),
    ]
    command += ["--cache", str(folder / "cache"), "--epochs", "1", "--iterations", "2"]
    command += ["--output", str(folder / "run")]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert cli.main(command) == 0
    return folder / "run", said.getvalue()


@pytest.fixture(scope="module", autouse=True)
def quick(load):
    """Steps are not traced; the transformer and each exported model are loaded only once."""
    with untraced_steps(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(prediction, "ExportedModel", functools.cache(prediction.ExportedModel))
        patch.setattr(text, "load", load)
        yield


@pytest.mark.long
def test_training_ends_with_pictures_a_served_text_and_the_accuracy(run):
    folder, said = run
    for name in ("training_curves", "sentence_attribution"):
        assert (folder / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert "served by TensorFlow and tensorflow-text alone: test text 0 (label 0) is class " in said
    assert said.splitlines()[-1].startswith("test accuracy ")


def test_a_sentence_gets_a_label_and_a_picture_of_its_tokens(run, tmp_path, capsys):
    folder, _ = run
    command = ["predict", str(folder), "A gorgeous movie .", "", "--output", str(tmp_path / "seen")]
    assert cli.main(command) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("A gorgeous movie .: ") and said[0].split(": ")[1].split(",")[0] in (
        "negative",
        "positive",
    )
    pictures = [tmp_path / "seen" / f"attribution_{number}.png" for number in (1, 2)]
    assert said[1::2] == [f"picture: {path}" for path in pictures] and all(path.stat().st_size for path in pictures)
    assert cli.main([*command[:2], "Again .", *command[4:]]) == 0  # in the same folder
    assert capsys.readouterr().out.splitlines()[1].endswith("attribution_3.png")


def test_long_texts_and_files_are_not_taken_for_sentences(run, tmp_path, capsys, monkeypatch):
    folder, _ = run
    monkeypatch.setattr(prediction, "MOST_TOKENS", 10)
    assert cli.main(["predict", str(folder), "film " * 200, "--output", str(tmp_path / "seen")]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("film film") and "...: " in said[0] and len(said[0]) < 160
    assert said[1].endswith(" tokens of this text, too many for a picture") and not (tmp_path / "seen").exists()
    assert cli.main(["predict", str(folder), "\N{FILM PROJECTOR}" * 200, "--output", str(tmp_path / "seen")]) == 0
    assert cli.main(["predict", str(folder), str(folder / "history.csv")]) == 2
    assert "texts: give each text itself, in quotes. Received a file" in capsys.readouterr().err


def test_a_run_is_measured_and_exported_without_its_transformer(run, tmp_path, capsys):
    folder, said = run
    assert cli.main(["evaluate", str(folder)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[-1] == said.splitlines()[-1] and any(line.startswith("7 test texts of sst_binary") for line in told)
    assert cli.main(["export", str(folder), str(tmp_path / "head"), "--format", "embeddings"]) == 0
    size = sum(file.stat().st_size for file in (tmp_path / "head").rglob("*"))
    assert size < 3e6 and cli.main(["predict", str(tmp_path / "head"), "A film"]) == 2
    assert "takes a transformer's hidden states" in capsys.readouterr().err


@pytest.mark.long
def test_the_new_place_of_a_moved_transformer_can_be_named(run, bert, tmp_path, capsys):
    folder = shutil.copytree(run[0], tmp_path / "run", ignore=shutil.ignore_patterns("figures", "saved_model"))
    config = (folder / "config.json").read_text()
    assert str(bert) in config
    gone = tmp_path / "gone" / bert.name
    (folder / "config.json").write_text(config.replace(str(bert), str(gone)))
    for command in ("evaluate", "export", "figures"):
        assert cli.main([command, str(folder)]) == 2
        assert f"there is no folder '{gone}'" in capsys.readouterr().err
        assert cli.main([command, str(folder), "--transformer", str(tmp_path / "other")]) == 2
        assert f"--transformer other: {folder} was trained on hidden states of {bert.name}." in capsys.readouterr().err
        assert cli.main([command, str(folder), "--transformer", str(bert)]) == 0
    assert cli.main(["predict", str(folder), "A film", "--output", str(tmp_path / "seen")]) == 0


@pytest.mark.parametrize("options", [["--format", "litert"], ["--format", "onnx"], ["--default", "uint8"]])
def test_what_is_for_images_is_refused_on_texts(run, tmp_path, options, capsys):
    folder, _ = run
    assert cli.main(["export", str(folder), str(tmp_path / "there"), *options]) == 2
    assert f"{' '.join(options)} is for images. Received: heinsen2019-sst2" in capsys.readouterr().err
    assert not (tmp_path / "there").exists()
