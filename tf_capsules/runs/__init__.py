"""Runs: recipes that are trained into folders, resumed, loaded, evaluated and compared in tables.

Example:
    >>> run = train("sabour2017-digits", "runs/digits", Settings(seed=0))  # doctest: +SKIP
    >>> load_run("runs/digits").evaluate()  # doctest: +SKIP
    {'accuracy': 0.9917, 'loss': 0.0394}
"""

from tf_capsules.runs.errors import TrainingError
from tf_capsules.runs.evaluation import evaluate_ensemble, evaluate_runs
from tf_capsules.runs.folder import RunFolder
from tf_capsules.runs.run import Run, find_run, load_run, run_of_weights
from tf_capsules.runs.settings import Settings
from tf_capsules.runs.table import make_table
from tf_capsules.runs.training import train

__all__ = [
    "Run",
    "RunFolder",
    "Settings",
    "TrainingError",
    "evaluate_ensemble",
    "evaluate_runs",
    "find_run",
    "load_run",
    "make_table",
    "run_of_weights",
    "train",
]
