"""Adversarial attacks: each run is tested on images made against itself and against the other runs."""

import pathlib
import time

import numpy as np

from tf_capsules.analysis import attacks as methods
from tf_capsules.analysis import plots, robustness
from tf_capsules.analysis.input_gradient import InputGradient
from tf_capsules.runs.figures import save_figure
from tf_capsules.runs.machine import environment, peak_memory_mb
from tf_capsules.runs.results import append_row, check_row
from tf_capsules.runs.run import check_same_inputs


class RunAttack:
    """Attacks runs with test images of the first run, drawn at random.

    Args:
        runs: a dict of runs by name, in float32: half precision rounds small changes away, and networks look robust.
        limit, seed: how many test images, and the seed of drawing them.
        loss, batch_size: see `tf_capsules.analysis.input_gradient.InputGradient`.
        epsilons, attacks, goals, steps, only_right: see `tf_capsules.analysis.robustness.measure_attacks`.
        results: a CSV file to which the rows are appended; None for none.

    Attributes:
        images, labels: the images before the attacks, as the networks get them, and their labels.
        units: the units of epsilon, in words.
        rows: the rows that were measured so far.

    Raises:
        ValueError: no images, a negative seed; runs in half precision, on texts, with several classes an image, or with
            different inputs or classes; an unknown loss; a file of results with other columns.
    """

    def __init__(
        self,
        runs,
        limit=200,
        seed=0,
        loss="crossentropy",
        batch_size=100,
        epsilons=methods.EPSILONS,
        attacks=tuple(methods.ATTACKS),
        goals=tuple(robustness.GOALS),
        steps=10,
        only_right=False,
        results=None,
    ):
        if not runs:
            raise ValueError("Give one run or more.")
        if limit < 1 or seed < 0:
            raise ValueError(f"--limit must be at least 1, --seed at least 0. Received: {limit}, {seed}")
        for run in runs.values():
            if run.recipe.transformer is not None or run.recipe.metric == "exact_match":
                raise ValueError(f"An attack needs images of one class each. Received: {run.recipe.name}")
            if run.settings.dtype != "float32":
                raise ValueError(f"Attacks need runs loaded with dtype 'float32'. Received: {run.settings.dtype}")
        check_same_inputs(runs.values(), "Runs attacked together")
        self.runs, self.first = runs, next(iter(runs.values()))
        self.gradients = {name: InputGradient(run.model, loss, batch_size) for name, run in runs.items()}
        self.units, bounds = methods.input_units(self.first.recipe.preprocess)
        self.options = dict(epsilons=epsilons, attacks=attacks, goals=goals, steps=steps)
        self.options |= dict(bounds=bounds, only_right=only_right)
        self.rows, self._results, self._common = [], results, {"units": self.units, "loss": loss, "seed": seed}
        if results is not None:
            empty = dict.fromkeys(robustness.COLUMNS) | dict.fromkeys(("model", "made_on"), next(iter(runs)))
            check_row(results, self._described(empty, 0.0))
        self.images, self.labels = _drawn(self.first, limit, seed)

    def __len__(self):
        """How many attacks there are, each measured on all runs."""
        kinds, goals, epsilons = (self.options[name] for name in ("attacks", "goals", "epsilons"))
        return len(self.runs) * len({*kinds}) * len({*goals}) * len({0.0, *epsilons})

    def measure(self):
        """Yields for each attack the rows of all runs and the seconds that it took."""
        measured = robustness.measure_attacks(self.gradients, self.images, self.labels, **self.options)
        started = time.perf_counter()
        for together in zip(*[measured] * len(self.runs), strict=True):
            seconds, started = time.perf_counter() - started, time.perf_counter()
            self.rows += together
            for row in together if self._results is not None else ():
                append_row(self._results, self._described(row, seconds))
            yield together, seconds

    def save_figures(self, folder):
        """Draws accuracy against epsilon, and some attacked images of each run; yields the paths."""
        folder = pathlib.Path(folder)
        yield save_figure(plots.draw_robustness(self.rows, self.units), folder / "robustness.png")
        shown = {name: self.options[name] for name in ("epsilons", "steps", "bounds")}
        shown["attack"] = self.rows[-1]["attack"]
        chosen = np.ones(len(self.labels), bool)
        if self.options["only_right"]:
            chosen = np.all([one.classify(self.images) == self.labels for one in self.gradients.values()], axis=0)
        images, labels = self.images[chosen][:8], self.labels[chosen][:8]
        for name, gradient in self.gradients.items():
            measured = methods.measure_attacked_images(gradient, images, labels, **shown)
            figure = plots.draw_attacked_images(measured, self.first.data.spec.class_names)
            yield save_figure(figure, folder / f"attacked_{name.replace('/', '-')}.png")

    def _described(self, row, seconds):
        """The row of results of an attack on one run."""
        judge, data = self.runs[row["model"]], self.first.data.spec
        note = "only images that all runs classify correctly" if self.options["only_right"] else ""
        return {
            "run": row["model"],
            "made_on": row["made_on"],
            "recipe": judge.recipe.name,
            "parameters": judge.model.count_params(),
            "dataset": data.name,
            "note": data.noted(*dict.fromkeys((judge.remark, self.runs[row["made_on"]].remark)), note).note,
            **{key: value for key, value in row.items() if key not in ("model", "made_on")},
            **self._common,
            "seconds": round(seconds, 1),
            "peak_memory_mb": peak_memory_mb(),
            **environment(),
        }


def _drawn(run, count, seed):
    """`count` test examples of a run, drawn at random: images as the model gets them, and labels."""
    chosen = np.random.default_rng(seed).permutation(run.data.spec.test_size)[:count]
    images, labels, start = [], [], 0
    for batch, targets in run.data.test(batch_size=run.recipe.batch_size):
        places = chosen[(chosen >= start) & (chosen < start + len(targets))] - start
        images.append(np.asarray(batch)[places])
        labels.append(np.asarray(targets)[places])
        start += len(targets)
    return np.concatenate(images), np.concatenate(labels)
