import csv
import dataclasses
import shutil

import pytest

from tf_capsules import cli
from tf_capsules.runs import Settings, load_run
from tf_capsules.runs.attack import RunAttack


@pytest.mark.long
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
    assert {row["note"] for row in rows} == {"only images that all runs classify correctly"}
    pictures = {path.name for path in (tmp_path / "attacks").iterdir()}
    assert pictures == {"robustness.png", "attacked_digits.png", "attacked_other.png"}


@pytest.mark.long
def test_runs_attacked_together_take_the_same_images(trained, tmp_path, capsys):
    folder, _ = trained
    other = shutil.copytree(folder, tmp_path / "other")
    config = (other / "config.json").read_text()
    (other / "config.json").write_text(config.replace('"9"', '"nine"'))
    for arguments, message in (
        ([str(other)], "need the same inputs, preprocessing, classes and metric. Received: ["),
        (["--limit", "0"], "--limit must be at least 1, --seed at least 0. Received: 0, 0"),
        (["--loss", "hinge"], "must be one of 'crossentropy', 'trained'. Received: 'hinge'"),
        (["--attacks", "pgd"], "must be one of 'fgsm', 'bim'. Received: 'pgd'"),
    ):
        assert cli.main(["attack", str(folder), *arguments, "-o", str(tmp_path / "attacks")]) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "attacks").exists()
    half = dataclasses.replace(load_run(folder), settings=Settings(dtype="mixed_bfloat16"))
    with pytest.raises(ValueError, match="Attacks need runs loaded with dtype 'float32'. Received: mixed_bfloat16"):
        RunAttack({"half": half})
