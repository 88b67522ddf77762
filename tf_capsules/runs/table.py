"""A table of a paper: several recipes trained on equal terms, one after another, resumable row by row."""

import dataclasses
import inspect
import os
import pathlib
import subprocess
import sys

from tf_capsules import recipes
from tf_capsules.files import read_csv, reading
from tf_capsules.runs.errors import TrainingError
from tf_capsules.runs.folder import RunFolder
from tf_capsules.runs.results import append_row
from tf_capsules.runs.settings import DECLARED


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a table by its name, "RECIPE" or "RECIPE@ITERATIONS": a recipe, and its number of routing iterations."""

    name: str

    @property
    def recipe(self):
        return recipes.get(self.name.partition("@")[0])

    @property
    def iterations(self):
        """The number that was asked for, or None."""
        recipe, at, count = self.name.partition("@")
        if at and not count.isdigit():
            raise TrainingError(f"A row is RECIPE or RECIPE@ITERATIONS, for instance {recipe}@3. Received: {self.name}")
        return int(count) if at else None

    @property
    def count(self):
        """How many iterations its network has; None for one without routing."""
        parameters = inspect.signature(self.recipe.model).parameters
        if "iterations" not in parameters:
            return None
        return self.iterations or self.recipe.model_options.get("iterations", parameters["iterations"].default)

    @property
    def label(self):
        """How many iterations its network has, in words; "" for one without routing."""
        return f"{self.count} iteration{'s' * (self.count > 1)}" if self.count else ""


def make_table(names, folder, settings, results, test=True):
    """Trains the rows of a table that are not there yet, and evaluates each on the whole test split.

    Each row is trained and evaluated by a process of its own, so that its seconds and its memory are its own. An
    interrupted table goes on with the same call: rows in the file of results are done, the next goes on.

    Args:
        names: of the rows, "RECIPE" or "RECIPE@ITERATIONS".
        folder: where the run folders are, one a row, and the picture.
        settings: a `Settings`, the same for all rows. Its `test_limit` is for the tests after each epoch.
        results: a CSV file, made or added to. Beside it, in `..._curves.csv`, are the measures of each epoch.
        test: False leaves out the evaluation, and with it the row of results: there is nothing but the curves.

    Returns:
        The rows of results as dicts, in the order of the names; without `test` an empty list.

    Raises:
        TrainingError: before anything is trained: no or unknown rows, the same row twice, settings that a row can't
            have; later: a row whose process failed.
    """
    rows = [Row(name) for name in names]
    if not rows or len(set(names)) < len(names):
        raise TrainingError(f"A table needs rows, each once. Received: {', '.join(names) or 'none'}")
    for row in rows:
        try:
            recipe = row.recipe
        except ValueError as error:
            raise TrainingError(str(error)) from error
        dataclasses.replace(settings, iterations=row.iterations).check(recipe)
    folder, results = pathlib.Path(folder), pathlib.Path(results)
    for number, row in enumerate(rows, 1):
        print(f"\n[{number}/{len(rows)}] {row.name}: {row.recipe.title}", flush=True)
        there, file = (_found, results) if test else (_drawn, _curves_file(results))
        if there(file, row, settings):
            print(f"{file} has it", flush=True)
            continue
        run = folder / row.name
        options = dataclasses.replace(settings, iterations=row.iterations)
        drawn = ("--resume", "--no-figures", "--no-export")
        _run("train", row.recipe.name, *drawn, "--output", run, *options.as_arguments())
        _add_curve(_curves_file(results), row, run)
        if test:
            _run("evaluate", run, "--test-limit", sys.maxsize, "--results", results)
    return [_found(results, row, settings) for row in rows] if test else []


def draw_table(names, results):
    """A figure of the test accuracy of a table's rows while they trained, with a panel for each kind of network."""
    from tf_capsules.analysis import plots

    points = _rows_of(_curves_file(pathlib.Path(results)))
    shared, groups = _common_words(names), {}
    for row in map(Row, names):
        groups.setdefault(row.recipe.model.__name__, []).append(row)
    panels = {}
    for kind, members in groups.items():
        short = [row.name.removeprefix(shared).strip("-") or row.recipe.name for row in members]
        labels = [row.label or name for row, name in zip(members, short, strict=True)]
        if len(set(labels)) < len(labels):
            labels = short
        panels[kind] = {label: _curve(row, points) for label, row in zip(labels, members, strict=True)}
    return plots.draw_convergence(panels, examples=1)


def draw_iterations(names, found):
    """A figure of the test accuracy of the rows against their number of routing iterations, a line for each recipe.

    `found` is what `make_table` returned. None unless a recipe has rows of several numbers of iterations.
    """
    from tf_capsules.analysis import plots

    shared, accuracies = _common_words(names), {}
    for row, result in zip(map(Row, names), found, strict=True):
        name = row.recipe.name.removeprefix(shared).strip("-") or row.recipe.name
        accuracies.setdefault(name, {})[row.count] = float(result["value"]), deviation(result)
    return plots.draw_accuracy_by_iterations(accuracies) if max(map(len, accuracies.values())) > 1 else None


def _curve(row, points):
    """The points of a row, those of the file of curves, as `plots.draw_convergence` takes them."""
    names = {"epoch": "examples", "loss": "loss", f"val_{row.recipe.metric}": f"test_{row.recipe.metric}"}
    own = (point for point in points if point["row"] == row.name)
    return [{new: float(point[old]) for new, old in names.items()} for point in own]


def deviation(result):
    """Standard deviation of a row's accuracy for the number of its test examples: a difference of less says nothing."""
    value, tests = float(result["value"]), int(result["test_examples"])
    return (value * (1 - value) / tests) ** 0.5


def _common_words(names):
    """What the names have in common at their beginning, in whole words."""
    shared = os.path.commonprefix(names)
    whole = shared.endswith("-") or all(name[len(shared) :][:1] in ("", "-", "@") for name in names)
    return shared if whole else shared[: shared.rfind("-") + 1]


def _rows_of(path, *columns):
    """The rows of a CSV file that has these columns, as dicts; none where it is absent."""
    return read_csv(path, columns, "is no file of results") if path.exists() else []


def _curves_file(results):
    return results.with_name(f"{results.stem}_curves.csv")


def _found(results, row, settings):
    """The row of results that is this one, or None."""
    wanted = settings.apply(row.recipe)
    asked = dataclasses.replace(settings, iterations=row.iterations).notes()
    asked += [] if settings.epoch_size is None else [f"epochs of {settings.epoch_size:,} of"]
    kinds = ("epochs of ", *(f"{name} " for name, one in DECLARED.items() if one.option.noted))
    columns = "note", "recipe", "dataset", "epochs", "train_examples", "batch_size", "learning_rate", "seed", "dtype"
    for found in _rows_of(results, *columns, "value", "test_examples", "parameters", "seconds"):
        with reading(results, "is no file of results"):
            notes = [note for note in found["note"].split("; ") if note.startswith(kinds)]
            if (
                found["recipe"] == row.recipe.name
                and found["dataset"] == (settings.dataset or found["dataset"])
                and len(notes) == len(asked)
                and all(any(note == one or note.startswith(f"{one} ") for note in notes) for one in asked)
                and (int(found["epochs"]) == wanted.epochs or settings.stop_at is not None)
                and int(found["train_examples"]) <= (settings.train_limit or sys.maxsize)
                and int(found["batch_size"]) == wanted.batch_size
                and float(found["learning_rate"]) == wanted.learning_rate
                and int(found["seed"]) == settings.seed
                and found["dtype"] == settings.dtype
            ):
                return found
    return None


def _drawn(curves, row, settings):
    """Whether the curves have the last epoch of a row."""
    last = settings.apply(row.recipe).epochs
    return any((point["row"], point["epoch"]) == (row.name, str(last)) for point in _rows_of(curves, "row", "epoch"))


def _add_curve(path, row, run):
    folder, metric = RunFolder(run), row.recipe.metric
    train_size = folder.config()["data"]["train_size"]
    there = {(point["row"], point["epoch"]) for point in _rows_of(path, "row", "epoch")}
    for point in folder.history(metric):
        if (row.name, str(point["epoch"])) in there:  # its evaluation was interrupted
            continue
        measured = {
            "row": row.name,
            "epoch": point["epoch"],
            "examples": point["epoch"] * train_size,
            "loss": round(point["loss"], 6),
            "test_loss": round(point["val_loss"], 6),
            f"test_{metric}": round(point[f"val_{metric}"], 6),
            "seconds": round(point["seconds"], 1),
        }
        append_row(path, measured)


def _run(*arguments):
    command = [sys.executable, "-m", "tf_capsules.cli", *map(str, arguments)]
    status = subprocess.run(command, check=False).returncode
    if status:
        raise TrainingError(f"`tf-capsules {' '.join(map(str, arguments))}` ended with status {status}.")
