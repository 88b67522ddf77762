import keras
import pytest
from backend import untraced_steps

from tf_capsules import cli
from tf_capsules.runs import run, training


@pytest.fixture
def eager():
    with untraced_steps():
        yield


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """The folder of a short run of the default recipe, and the lines it printed. Tests share it and don't change it."""
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


@pytest.fixture
def no_data(monkeypatch):
    """Loading data fails, as if the data had been moved since training."""

    def load(*arguments, **options):
        raise FileNotFoundError("the data are gone")

    monkeypatch.setattr(training, "load_data", load)
    monkeypatch.setattr(run, "load_data", load)


@pytest.fixture
def said(capsys):
    """A function that runs a command which must be refused, and returns the one line of its error."""

    def of(*command):
        assert cli.main([str(part) for part in command]) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"tf-capsules {command[0]}: ") and error.count("\n") == 1
        return error

    return of
