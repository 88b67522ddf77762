"""The files of a run."""

import contextlib
import json
import os
import pathlib
import re
import shutil

from tf_capsules.arguments import is_whole
from tf_capsules.files import lock, read_csv, reading, replacing
from tf_capsules.models.weights.keras_file import save_state, seal
from tf_capsules.runs.data_spec import DataSpec
from tf_capsules.runs.errors import TrainingError
from tf_capsules.runs.settings import Settings

OTHER_VERSION = "is not of a run that this version can load"
EXPORTED = "exported.json"  # after how many epochs the run was exported into its folder
_HISTORY = "is no history of a run"


class RunFolder:
    """The files of a run. A file is replaced as a whole: after a crash the old or the new one is there, complete.

    A run folder holds `config.json` (what was asked for, and what the data look like), `history.csv` (a row an epoch),
    `last-NNNN.weights.h5` (weights and optimizer after epoch NNNN; on demand for every epoch), `best.weights.h5`,
    `tensorboard/`, `result.json`, on demand `diagnostics.csv` and `diagnostics_lengths.csv`, and from the command line
    `figures/`, `saved_model/` and `exported.json`.
    """

    def __init__(self, path):
        self.path = pathlib.Path(path)

    @contextlib.contextmanager
    def held(self):
        """Makes the folder and holds it; a TrainingError if another process holds it. Windows has no such lock."""
        self.path.mkdir(parents=True, exist_ok=True)
        if os.name == "nt":
            yield
            return
        handle = os.open(self.path, os.O_RDONLY)
        try:
            try:
                lock(handle, wait=False)
            except BlockingIOError:
                raise TrainingError(f"Another process is training in {self.path}.") from None
            for part in self.path.glob(".part.*.weights.h5"):  # of a process that was killed
                part.unlink()
            yield
        finally:
            os.close(handle)  # also frees the lock, as the end of the process does

    def write_json(self, name, values):
        with replacing(self.path / name) as part:
            part.write_text(json.dumps(values, indent=1) + "\n")

    def read_json(self, name):
        """The dict in a JSON file."""
        path = self.path / name
        if not path.is_file():
            raise TrainingError(f"{self.path} is not the folder of a run: {self._what_else(name)}")
        with reading(path, "can't be read"):
            values = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(values, dict):
                raise ValueError(f"it holds no dict but {values!r}")
        return values

    def _what_else(self, name):
        """What the folder is, if it is not that of a run."""
        if not self.path.exists():
            return "there is no such folder."
        if not self.path.is_dir():
            keras_model = " (a Keras model is exported in Python: `tf_capsules.export.export_saved_model`)"
            return f"it is a file{keras_model if self.path.suffix == '.keras' else ''}."
        runs = sorted(str(path.parent) for path in self.path.glob(f"*/{name}"))[:3]
        exported = " It is an exported model." if (self.path / "saved_model.pb").exists() else ""
        return f"it has no {name}.{exported}{' Runs are in ' + ', '.join(runs) + '.' if runs else ''}"

    def has_run(self):
        return (self.path / "config.json").exists()

    def has_epoch(self):
        """Whether a run has finished an epoch here, so that there is something to lose."""
        finished = any((self.path / name).exists() for name in ("best.weights.h5", "result.json"))
        # A history of one epoch without weights: the run ended before it wrote them.
        return finished or self.checkpoints() or len(self.history()) > 1

    def config(self):
        """The dict in config.json: "recipe" (a name), "settings", "resolved" (the recipe in full), "data"."""
        config = self.read_json("config.json")
        with reading(self.path / "config.json", OTHER_VERSION):
            for part, kind in {"recipe": str, "settings": dict, "resolved": dict, "data": dict}.items():
                if not isinstance(config.get(part), kind):
                    raise ValueError(f"its {part!r} is {config.get(part)!r}")
            Settings(**config["settings"])
            DataSpec.from_json(config["data"])
        return config

    def result(self):
        """The dict in result.json, the row of results; {} before the end of the first training."""
        return self.read_json("result.json") if (self.path / "result.json").exists() else {}

    def save_weights(self, model, epoch):
        with replacing(self.path / f"last-{epoch:04d}.weights.h5") as part:
            model.save_weights(part)
            seal(part)
            save_state(model, part, epoch)

    def keep_best_and_last(self, history, monitor, keep_all):
        """Keeps the best weights and removes older checkpoints, unless all are kept.

        If the last epoch of the history is its best, its weights become the best. The history ends with the last
        checkpoint. After a kill, a second call finishes the work.
        """
        if history and history[-1][monitor] == max(row[monitor] for row in history):
            with replacing(self.path / "best.weights.h5") as part:
                shutil.copyfile(self.weights(), part)
        for epoch in () if keep_all else self.checkpoints()[:-1]:
            self.weights(epoch).unlink()

    def checkpoints(self):
        """Finished epochs with a checkpoint, ascending."""
        return sorted(filter(None, map(self.epoch_of, self.path.glob("last-*.weights.h5"))))

    def epoch_of(self, path):
        """The epoch of a checkpoint, by its name; None for another file."""
        match = re.fullmatch(r"last-(\d{4,})\.weights\.h5", path.name)
        return match and int(match[1])

    def weights(self, which="last"):
        """Path of the weights of the "last" or the "best" epoch, or of a kept epoch, by its number."""
        if which not in ("last", "best") and not is_whole(which):
            raise TrainingError(f'The weights are "last", "best" or the number of an epoch. Received: {which!r}')
        epochs, best = self.checkpoints(), self.path / "best.weights.h5"
        if which == "best" and best.exists():
            return best
        number = epochs[-1] if which == "last" and epochs else which
        if number in epochs:
            return self.path / f"last-{number:04d}.weights.h5"
        if is_whole(which):
            there = f"no weights of epoch {which}, but of: {', '.join(map(str, epochs)) or 'none'}"
            raise TrainingError(f"{self.path} has {there}. A training with --keep-epochs keeps those of all epochs.")
        missing = "the file is not there" if epochs else "no epoch has been finished"
        if not epochs and best.exists():
            missing = "the file is not there, but the best weights are (--weights best)"
        raise TrainingError(f"{self.path} holds no {which} weights: {missing}.")

    def history(self, metric=None):
        """Rows of history.csv as dicts of numbers; [] without the file; a ValueError without a column for `metric`."""
        path = self.path / "history.csv"
        if not path.exists():
            return []
        columns = ["epoch", "learning_rate", "seconds", "loss", "val_loss", f"val_{metric or 'loss'}"]
        with reading(path, _HISTORY):
            rows = [{key: float(value) for key, value in row.items()} for row in read_csv(path, columns, _HISTORY)]
            return [row | {"epoch": int(row["epoch"])} for row in rows]


def short_names(paths):
    """The ends of paths, with as many folders before them as it takes to tell them apart.

    >>> short_names(["runs/a/digits", "runs/b/digits"])
    ['a/digits', 'b/digits']
    """
    parts = [pathlib.Path(path).resolve().parts for path in paths]
    for count in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-count:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    raise ValueError(f"A run is named twice: {', '.join(map(str, paths))}")
