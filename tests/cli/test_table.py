import csv

import keras
import pytest

from tf_capsules import cli
from tf_capsules.runs import Settings, table

needs_tensorflow = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="once is enough")

ROWS = ["sabour2017-digits", "sabour2017-digits@1"]
OPTIONS = ["--epochs", "2", "--train-limit", "64", "--test-limit", "30"]
OPTIONS += ["--network", "decoder_units=8,9", "--network", "types=4"]
NETWORK = {"decoder_units": [8, 9], "types": 4}


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def in_this_process(monkeypatch):
    """Runs all commands of a table but the first in this process, which is faster than one process each."""
    run, commands = table._run, []

    def run_here(*arguments):
        commands.append(arguments[0])
        if len(commands) == 1:
            run(*arguments)
        else:
            assert cli.main(list(map(str, arguments))) == 0

    monkeypatch.setattr(table, "_run", run_here)
    return commands


@pytest.mark.long
@needs_tensorflow
def test_a_table_trains_each_row_once_and_goes_on_where_it_stopped(eager, tmp_path, capfd, in_this_process):
    command = ["table", *ROWS, "--output", str(tmp_path), *OPTIONS]
    # The state after an interruption: the first row is trained, but not evaluated, and the table lacks it.
    first = ["train", ROWS[0], "--output", str(tmp_path / ROWS[0]), "--no-figures", "--no-export", *OPTIONS]
    assert cli.main(first) == 0
    assert cli.main(command) == 0
    said = capfd.readouterr().out
    assert "all 2 epochs" in said and "[2/2] sabour2017-digits@1" in said
    assert in_this_process == ["train", "evaluate"] * 2
    done = read(tmp_path / "table.csv")
    assert [row["recipe"] for row in done] == ["sabour2017-digits"] * 2
    assert all("network decoder_units=8,9; network types=4" in row["settings"] for row in done)
    assert "iterations 1" in done[1]["settings"] and "iterations" not in done[0]["settings"]
    assert [row["test_examples"] for row in done] == ["360", "360"]  # not the 30 after each epoch
    assert all("train_limit 64" in row["settings"] for row in done)
    lines = said.splitlines()[-2:]
    for line, name, row in zip(lines, ROWS, done, strict=True):
        assert line.startswith(name) and f"{100 * float(row['value']):.2f}% +- " in line
    assert (tmp_path / "convergence.png").stat().st_size > 10_000
    assert (tmp_path / "iterations.png").stat().st_size > 10_000
    assert table.draw_iterations(ROWS[:1], done[:1]) is None

    written = (tmp_path / "table.csv").read_bytes()
    assert cli.main(command) == 0
    assert capfd.readouterr().out.count("has it") == 2
    assert (tmp_path / "table.csv").read_bytes() == written
    # Other settings make another row.
    same = dict(epochs=2, train_limit=64, network=NETWORK)
    others = {"seed": 1, "epochs": 3, "learning_rate": 0.1, "decay_steps": 9, "train_limit": 100, "epoch_size": 50}
    others |= {"network": None, "dataset": "rendered_toys"}
    changes = [{}, {"train_limit": None}, *({name: value} for name, value in others.items())]
    for changed in changes:
        found = table._found(tmp_path / "table.csv", table.Row(ROWS[0]), Settings(**same | changed))
        assert (found is None) == bool(changed), changed

    alone = ["--results", str(tmp_path / "alone.csv"), "--no-test"]
    assert cli.main([*command, *alone]) == 0  # the accuracies come from the run folders
    assert capfd.readouterr().out.count("all 2 epochs") == 2 and not (tmp_path / "alone.csv").exists()

    (panel,) = table.draw_table(ROWS, tmp_path).axes
    assert [line.get_label() for line in panel.get_lines()] == ["3 iterations", "1 iteration"]
    assert [line.get_xdata().tolist() for line in panel.get_lines()] == [[64, 128]] * 2
    # The second row has no run.
    (panel,) = table.draw_table([*ROWS[:1], "sabour2017-digits@2"], tmp_path).axes
    assert [line.get_label() for line in panel.get_lines()] == ["3 iterations"]
    assert table.draw_table(ROWS, tmp_path / "elsewhere") is None
