"""A table of a paper: several recipes trained on equal terms, one after another, resumable row by row."""

import contextlib
import dataclasses
import inspect
import os
import pathlib
import signal
import subprocess
import sys
import threading

from tf_capsules import recipes
from tf_capsules.analysis import plots
from tf_capsules.files import read_csv
from tf_capsules.recipes.measured import of_the_full_test
from tf_capsules.runs.configuration import WORDS
from tf_capsules.runs.errors import TrainingError, reported
from tf_capsules.runs.folder import RunFolder
from tf_capsules.runs.results import check_row


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
        if at and not count.isdecimal():
            raise TrainingError(f"A row is RECIPE or RECIPE@ITERATIONS, for instance {recipe}@3. Received: {self.name}")
        return int(count) if at else None

    @property
    def count(self):
        """How many iterations its network has; None for one without routing."""
        parameters = inspect.signature(self.recipe.model).parameters
        if "iterations" not in parameters:
            return None
        return self.iterations or self.recipe.model_options.get("iterations", parameters["iterations"].default)


def make_table(names, folder, settings, results, test=True):
    """Trains the rows of a table that are not there yet, and evaluates each on the whole test split.

    Each row is trained and evaluated in new processes, so that seconds and memory are those of the row alone. The same
    call goes on with an interrupted table: it skips rows in the file of results and resumes the next.

    Args:
        names: of the rows, "RECIPE" or "RECIPE@ITERATIONS".
        folder: where the run folders are, one a row, and the pictures.
        settings: a `Settings`, the same for all rows. Its `test_limit` is for the tests after each epoch.
        results: a CSV file, made or added to.
        test: False leaves out the evaluation and its row of results. Then there are only the run folders.

    Returns the rows of results as dicts, in the order of the names; without `test` an empty list.

    Raises:
        TrainingError: before anything is trained: no or unknown rows, the same row twice, settings that a row can't
            have, a file of results that can't be written or has other columns; later: a row whose process failed.
    """
    names = list(names)
    if not names or len(set(names)) < len(names):
        raise TrainingError(f"A table needs at least one row, and no row twice. Received: {', '.join(names) or 'none'}")
    given = {name: getattr(settings, name) for name in ("weights", "iterations", "processes", "process", "coordinator")}
    if given := [f"{name} {value}" for name, value in given.items() if value is not None]:
        own = "A row names its own iterations (RECIPE@N), starts from random weights, and is trained by one process."
        raise TrainingError(f"{own} Received: {', '.join(given)}")
    rows = {row: dataclasses.replace(settings, iterations=row.iterations) for row in map(Row, names)}
    for row, options in rows.items():
        recipe = reported(lambda row=row: row.recipe)
        options.check(recipe)
        options.apply(recipe)
    folder, results = pathlib.Path(folder), pathlib.Path(results)
    if test:
        check_row(results)
    for number, (row, options) in enumerate(rows.items(), 1):
        print(f"\n[{number}/{len(rows)}] {row.name}: {options.title(row.recipe)}", flush=True)
        if test and _found(results, row, options):
            print(f"{results} has it", flush=True)
            continue
        run = folder / row.name
        flags = ("--resume", "--no-figures", "--no-export")
        _run("train", row.recipe.name, *flags, "--output", run, *options.as_arguments())
        if test:
            _run("evaluate", run, "--test-limit", 2**31 - 1, "--results", results)
    found = [_found(results, row, options) for row, options in rows.items()] if test else []
    if None in found:
        lacking = ", ".join(row.name for row, one in zip(rows, found, strict=True) if one is None)
        raise TrainingError(f"{results} lacks the rows {lacking}, which were just measured.")
    return found


def draw_table(names, folder):
    """A figure of the validation accuracy of a table's rows in training, with a panel for each kind of network.

    Rows without a finished epoch in the folder are left out. Returns None if that leaves no row.
    """
    shared, groups = _common_words(names), {}
    for row in map(Row, names):
        if points := _curve(row, RunFolder(pathlib.Path(folder) / row.name)):
            groups.setdefault(row.recipe.model.__name__, {})[row] = points
    panels = {}
    for kind, members in groups.items():
        first = next(iter(members))
        short = [row.name.removeprefix(shared).strip("-") or row.recipe.name for row in members]
        counts = [row.count and f"{row.count} iteration{'s' * (row.count > 1)}" for row in members]
        labels = [count or name for count, name in zip(counts, short, strict=True)]
        alike = all(_without_iterations(row) == _without_iterations(first) for row in members)
        if len(set(labels)) < len(labels) or not alike:
            labels = short
        panels[kind] = dict(zip(labels, members.values(), strict=True))
    return plots.draw_convergence(panels, examples=1) if panels else None


def draw_iterations(names, found):
    """A figure of the test accuracy of the rows against their number of routing iterations, a line for each recipe.

    `found` is the result of `make_table`. Returns None unless a recipe has rows with several numbers of iterations.
    """
    shared, accuracies = _common_words(names), {}
    for row, result in zip(map(Row, names), found, strict=True):
        name = row.recipe.name.removeprefix(shared).strip("-") or row.recipe.name
        accuracies.setdefault(name, {})[row.count] = float(result["value"]), deviation(result)
    return plots.draw_accuracy_by_iterations(accuracies) if max(map(len, accuracies.values())) > 1 else None


def _without_iterations(row):
    """The values of a row's recipe that decide its results, without the number of iterations."""
    options = {name: value for name, value in row.recipe.model_options.items() if name != "iterations"}
    return dataclasses.replace(row.recipe, model_options=options, figures=(), **dict.fromkeys(WORDS, ""))


def _curve(row, folder):
    """The history of a row; "epoch" is the number of examples seen, in place of the epoch."""
    if not folder.has_epoch():
        return []
    size = folder.config()["data"]["train_size"]
    return [point | {"epoch": point["epoch"] * size} for point in folder.history(row.recipe.metric)]


def deviation(result):
    """Standard deviation of a row's accuracy, from its number of test examples. A smaller difference says nothing."""
    value, tests = float(result["value"]), int(result["test_examples"])
    return (value * (1 - value) / tests) ** 0.5


def _common_words(names):
    """What the names have in common at their beginning, in whole words."""
    shared = os.path.commonprefix(names)
    whole = shared.endswith("-") or all(name[len(shared) :][:1] in ("", "-", "@") for name in names)
    return shared if whole else shared[: shared.rfind("-") + 1]


def _found(results, row, settings):
    """The row in the file of results that belongs to this row of the table, or None."""
    if not results.exists() or not results.stat().st_size:
        return None
    settings = settings.with_absolute_paths()
    recipe = settings.apply(row.recipe)
    wanted = {"recipe": row.recipe.name, "settings": "; ".join(settings.stated()), "batch_size": recipe.batch_size}
    wanted |= {"learning_rate": float(recipe.learning_rate), "schedule": recipe.schedule}
    wanted |= {"seed": settings.seed, "dtype": settings.dtype}
    if settings.data is None:  # else the settings have its path
        wanted["dataset"] = recipe.dataset
    if settings.stop_at is None:
        wanted["epochs"] = recipe.epochs
    wanted = {name: str(value) for name, value in wanted.items()}
    noted = set() if recipe.transformer is None else {f"hidden states of {pathlib.Path(recipe.transformer).name}"}
    columns = (*wanted, "epochs", "note", "value", "test_examples", "parameters", "seconds")
    for found in read_csv(results, columns, "is no file of results"):
        if of_the_full_test(found) and noted <= {*found["note"].split("; ")} and wanted.items() <= found.items():
            return found
    return None


def _run(*arguments):
    command = [sys.executable, "-m", "tf_capsules.cli", *map(str, arguments)]
    with _exit_at_sigterm():
        status = subprocess.run(command, check=False).returncode
    if status:
        raise TrainingError(f"`tf-capsules {' '.join(map(str, arguments))}` ended with status {status}.")


@contextlib.contextmanager
def _exit_at_sigterm():
    """Turns SIGTERM into an exception, at which `subprocess.run` ends what it runs. Python allows it in one thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
