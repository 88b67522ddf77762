"""Rows of results: what was measured, on what, with what, in CSV files."""

import csv
import io
import os
import pathlib

from tf_capsules.files import lock, read_csv, reading, writable
from tf_capsules.runs.errors import TrainingError, reported
from tf_capsules.runs.machine import environment, peak_memory_mb

COLUMNS: tuple[str, ...] = ("recipe", "dataset", "note", "settings", "train_examples", "test_examples", "epochs")
COLUMNS += ("batch_size", "learning_rate", "schedule", "seed", "dtype", "strategy", "parameters", "metric", "value")
COLUMNS += ("best_value", "test_loss", "seconds", "peak_memory_mb", "device", "python", "backend", "keras")
COLUMNS += ("tf_capsules", "date")


def describe_result(recipe, settings, spec, model, history, measured=None):
    """One row of results, a dict with the keys `COLUMNS`: what was measured, on what, with what.

    The arguments are those of the run; `spec` is the `DataSpec` of the tested examples. The batch size is that of the
    training. `measured` has loss and metric on the test split. None: those of the history's last epoch, where the
    test split is the validation split.
    """
    metric, best = recipe.metric, ""
    if measured is None and history:
        values = [row[f"val_{metric}"] for row in history]
        measured, best = {metric: values[-1], "loss": history[-1]["val_loss"]}, max(values)
    strategy = settings.strategy if settings.strategy == "none" else f"mirrored x {settings.devices or 'all'}"
    if settings.processes is not None:
        strategy = f"processes x {settings.processes}"
    return {
        "recipe": recipe.name,
        "dataset": spec.name,
        "note": spec.note,
        "settings": "; ".join(settings.stated()),
        "train_examples": spec.train_size,
        "test_examples": spec.test_size,
        "epochs": len(history),
        "batch_size": recipe.batch_size,
        "learning_rate": recipe.learning_rate,
        "schedule": recipe.schedule,
        "seed": settings.seed,
        "dtype": settings.dtype,
        "strategy": strategy,
        "parameters": model.count_params(),
        "metric": metric,
        "value": round(measured[metric], 6) if measured else "",
        "best_value": round(best, 6) if best != "" else "",
        "test_loss": round(measured["loss"], 6) if measured and "loss" in measured else "",
        "seconds": round(sum(row["seconds"] for row in history), 1),
        "peak_memory_mb": peak_memory_mb(),
        **environment(),
    }


def of_process(row):
    """What a row says of the process and the machine that trained."""
    return {name: row[name] for name in ("strategy", "peak_memory_mb", *environment()) if name in row}


def check_row(path, row=COLUMNS):
    """Raises a TrainingError if `append_row` would fail: the file can't be written, or has other columns."""
    path = pathlib.Path(path)
    if not path.exists():
        reported(writable, path)
    elif not path.is_file() or not os.access(path, os.W_OK):
        raise TrainingError(f"{path} can't be written as a file of results.")
    if path.exists() and path.stat().st_size:
        with reading(path, "can't be read as a file of results"), path.open(newline="", encoding="utf-8") as file:
            header = next(csv.reader(file), [])
        if header != list(row):
            raise TrainingError(f"{path} has the columns {header}, not {list(row)}.")


def has_row(path, row):
    """Whether a CSV file of results has this row. Device, versions, date, strategy and memory may differ."""
    free = of_process(row)
    told = {name: str(value) for name, value in row.items() if name not in free}
    return pathlib.Path(path).exists() and any(told.items() <= there.items() for there in read_csv(path))


def append_row(path, row):
    """Appends a row to a CSV file of results. A new file gets a header. For errors see `check_row`."""
    check_row(path, row)
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+", buffering=0) as file:
        lock(file)  # another process may append, too
        file.seek(0)
        before = file.read()
        text = io.StringIO()
        writer = csv.DictWriter(text, list(row), lineterminator="\n")
        if not before:
            writer.writeheader()
        elif not before.endswith(b"\n"):  # an editor has left out the end of the last line
            text.write("\n")
        writer.writerow(row)
        left = text.getvalue().encode("utf-8")
        try:
            while left:
                left = left[file.write(left) :]
        except OSError:  # such as a full disk: no part of a row stays
            file.truncate(len(before))
            raise
