"""Runs measured on a test split: alone, as an ensemble, or on several crops of each image."""

import dataclasses
import time

from tf_capsules.arguments import is_whole
from tf_capsules.datasets.augment import FIXED_CROPS
from tf_capsules.models import class_probabilities
from tf_capsules.runs.compiling import make_metric
from tf_capsules.runs.data_spec import DataSpec
from tf_capsules.runs.errors import TrainingError
from tf_capsules.runs.results import append_row, check_row, describe_result
from tf_capsules.runs.run import Run, check_same_inputs


@dataclasses.dataclass(frozen=True)
class Measurement:
    """What was measured on one part of the data."""

    spec: DataSpec  # of the examples
    values: dict  # the metric by its name; for a single run without crops also "loss"
    seconds: float  # for all examples, compiling included
    row: dict  # the row of results


def evaluate_runs(runs, crops=None, results=None):
    """Evaluates a run, or several as an ensemble, on the data of the first.

    Args:
        runs, crops: see `evaluate_ensemble`.
        results: a CSV file to which the rows of results are appended; None for none.

    Yields:
        A `Measurement` for each part of the data: the test split; for novel viewpoints, before it, the familiar ones.

    Raises:
        ValueError: no run, runs that differ in their inputs or metrics, `crops` that can't be, an unusable `results`.
    """
    runs = [runs] if isinstance(runs, Run) else list(runs)
    if not runs:
        raise ValueError("Give one run or more.")
    check_same_inputs(runs, "Runs of one ensemble")
    run = runs[0]
    check_crops(run.recipe, crops)
    if results is not None:
        check_row(results)
    for part, spec in run.data.evaluated:
        started = time.perf_counter()
        values = evaluate_ensemble(runs, part, crops) if len(runs) > 1 or crops else run.evaluate(part)
        seconds = time.perf_counter() - started
        noted = spec.noted(*dict.fromkeys(one.remark for one in runs), crops and describe_crops(crops))
        row = _row_of(runs, noted, values)
        if results is not None:
            append_row(results, row)
        yield Measurement(spec, values, seconds, row)


def _row_of(runs, spec, measured):
    """The row of results for what was `measured` on the data of `spec`.

    Parameters and seconds are sums over the runs; of other values that differ it has all.
    """
    # Seconds, strategy and memory are those of the training; device and versions are those of this process.
    rows = [
        describe_result(run.trained, run.settings, spec, run.model, run.history[: run.epoch], measured)
        | {"train_examples": run.trained_on.train_size}
        | {name: run.result[name] for name in ("strategy", "peak_memory_mb") if name in run.result}
        for run in runs
    ]
    row = {
        name: value if all(value == one[name] for one in rows) else " + ".join(str(one[name]) for one in rows)
        for name, value in rows[0].items()
    }
    row["recipe"] = " + ".join(run.recipe.name for run in runs)
    return row | {name: round(sum(one[name] for one in rows), 1) for name in ("parameters", "seconds")}


def describe_crops(crops):
    """Crops in words."""
    return "ten fixed crops" if crops == "fixed" else f"{crops} random crops"


def evaluate_ensemble(runs, part="test", crops=None):
    """A dict of the metric of several runs, or of one on several crops of each image: class probabilities are summed.

    Sources: the released code of Sabour et al. 2017 (CIFAR-10: seven networks); Hinton et al. 2018, section 4 (crops).

    Args:
        runs: one `Run` or more; they are evaluated on the data of the first.
        part: the "test" or the "validation" split.
        crops: None: the central crop of each image. A number: so many random crops, always the same ones. "fixed": ten
            crops, the four corners and the centre, and these mirrored (Li et al. 2018, released code).
    """
    recipe = runs[0].recipe
    check_crops(recipe, crops)
    metric = make_metric(recipe)
    windows = FIXED_CROPS if crops == "fixed" else range(crops or 0)
    options = [{}] if crops is None else [{"crop": window} for window in windows]
    streams = [getattr(runs[0].data, part)(batch_size=recipe.batch_size, **one) for one in options]
    for views in zip(*streams, strict=True):
        labels = views[0][1]
        outputs = ((run.model, run.model.predict_on_batch(images)) for run in runs for images, _ in views)
        probabilities = sum(class_probabilities(*pair) for pair in outputs) / (len(runs) * len(views))
        metric.update_state(labels["label"] if isinstance(labels, dict) else labels, probabilities)
    return {recipe.metric: float(metric.result())}


def check_crops(recipe, crops):
    """Raises a TrainingError for wrong `crops`, or if the recipe has no step that crops images."""
    if crops is not None and crops != "fixed" and not is_whole(crops, 1):
        raise TrainingError(f"--crops must be fixed, or a whole number of at least 1. Received: {crops}")
    if crops is not None and not any(step[0] == "crop" for step in recipe.preprocess):
        steps = ", ".join(step[0] for step in recipe.preprocess) or "none"
        raise TrainingError(f"--crops {crops} needs a recipe with the step 'crop'; {recipe.name} has: {steps}.")
