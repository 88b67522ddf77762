import shutil

from tf_capsules import cli, recipes


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
    assert cli.main(["figures", str(folder), str(copy), "--data", "nowhere"]) == 2
    assert "Other data are for the figures of one run. Received: data" in capsys.readouterr().err
    assert cli.main(["figures", str(folder), str(copy), "--weights", "best"]) == 2
    assert "--weights is for the figures of one run. Received: best" in capsys.readouterr().err


def test_without_data_the_curves_are_drawn_and_the_rest_is_refused(trained, tmp_path, capsys, no_data):
    folder, _ = trained
    assert cli.main(["figures", str(folder), "-o", str(tmp_path)]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["training_curves.png"]
    assert capsys.readouterr().err.strip() == "tf-capsules figures: the data are gone"
    assert cli.main(["evaluate", str(folder)]) == 2
    assert capsys.readouterr().err.strip() == "tf-capsules evaluate: the data are gone"


def test_a_folder_for_pictures_that_cannot_be_made_is_told_before_the_run_is_loaded(tmp_path, capsys):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "figures").touch()
    assert cli.main(["figures", str(tmp_path / "run")]) == 2
    assert "picture can't be written" in capsys.readouterr().err
