"""What was measured with a recipe: the rows of `results/`, which the commands themselves write."""

import dataclasses
import functools
import pathlib
import re
import statistics

from tf_capsules.files import read_csv, reading

_COLUMNS = set("recipe dataset note settings train_examples epochs batch_size learning_rate seed metric value".split())
# Notes of crops, other iterations, data or weights, and parts of the data.
_OF_ANOTHER_TEST = re.compile(" crops$|^familiar viewpoints$|^evaluated with |^trained on |^weights | test examples$")
_OF_ANOTHER_TRAINING = re.compile(r"\b(weights|iterations|network|loss|feedback|mixup) ")
# Beside the package where it is installed, beside the checkout's `tf_capsules` otherwise.
_PLACES = [pathlib.Path(__file__).parents[above] / "results" for above in (1, 2)]


@dataclasses.dataclass(frozen=True)
class Measured:
    """Runs that differ in their seed alone."""

    value: float  # mean of the recipe's metric on the test split, from 0 to 1
    runs: int  # how many there are
    epochs: int  # how many each was trained for
    planned: int  # epochs of the recipe
    epoch: str = ""  # the examples of an epoch, in words, if it was not a pass over all

    def text(self, measure=""):
        """For instance "0.58% error, 5 of 50 epochs", where the measure is "error"."""
        value = f"{100 * (1 - self.value if 'error' in measure else self.value):.2f}% {measure}".rstrip()
        mean = f"mean of {self.runs} runs, " if self.runs > 1 else ""
        each = f", each of {self.epoch}" if self.epoch else ""
        return f"{value}, {mean}{self.epochs} of {self.planned} epoch{'s' * (self.planned != 1)}{each}"


def measured(recipe):
    """What the longest training of a `Recipe` in `results/` reached, or None.

    Trainings of more epochs than the recipe's are left out.
    """
    own = (recipe.name, recipe.dataset, recipe.metric)
    alike = {}  # rows by their conditions: the longest training wins; of equal ones, that with the least to tell
    for row in _rows():
        its_own = (row["recipe"], row["dataset"], row["metric"]) == own and 0 < row["epochs"] <= recipe.epochs
        if its_own and not _OF_ANOTHER_TRAINING.search(row["settings"]) and of_the_full_test(row):
            steps, told = row["train_examples"] * row["epochs"], row["settings"] + row["note"]
            conditions = (steps, -len(told), told, row["batch_size"], row["learning_rate"])
            alike.setdefault(conditions, []).append(row)
    if not alike:
        return None
    rows = alike[max(alike)]
    by_seed = {row["seed"]: row["value"] for row in rows}  # one seed may stand there trained and evaluated
    part = re.search(r"epochs of ([\d,]+ of [\d,]+ examples)", rows[0]["note"])
    value, epoch = statistics.mean(by_seed.values()), part[1] if part else ""
    return Measured(value, len(by_seed), rows[0]["epochs"], recipe.epochs, epoch)


def of_the_full_test(row):
    """Whether a row is of the last weights on the whole test split as it is."""
    return not any(map(_OF_ANOTHER_TEST.search, row["note"].split("; ")))


@functools.cache
def _rows():
    folder = next((place for place in _PLACES if place.is_dir()), None)
    rows = []
    for file in sorted(folder.glob("*.csv")) if folder else []:
        with reading(file, "can't be read as a table of results"):
            for row in read_csv(file):
                if _COLUMNS <= set(row) and " + " not in row["recipe"]:  # no table of something else, no ensemble
                    numbers = {name: int(row[name]) for name in ("train_examples", "epochs")}
                    rows.append(row | numbers | {"value": float(row["value"])})
    return rows
