import dataclasses

import pytest

from tf_capsules.cli.options import assignment
from tf_capsules.runs import Settings, TrainingError
from tf_capsules.runs.option import ABOVE_0, AT_LEAST_1, assignments, declared, documented, one_of, option
from tf_capsules.runs.settings import _STATED, DECLARED


@documented
@dataclasses.dataclass(frozen=True)
class Few:
    """A few options."""

    count: int | None = option("how many", AT_LEAST_1)
    share: float = option("how much", ABOVE_0, default=0.5)
    kind: str = option("of which kind", one_of("plain", "fancy", "none"), default="plain")
    parts: dict | None = option("of what")
    fast: bool = option("sooner", default=False)


FEW = declared(Few)


def test_help_has_choices_and_defaults():
    assert [one.full_help for one in FEW.values()] == [
        "how many",
        "how much (default: 0.5)",
        "of which kind: plain, fancy or none (default: plain)",
        "of what",
        "sooner",
    ]
    assert (
        "count: how many." in Few.__doc__
        and "kind: of which kind: plain, fancy or none (default: plain)." in Few.__doc__
    )
    assert all(f"{name}: " in Settings.__doc__ for name in DECLARED)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("count", 0, "--count must be at least 1. Received: 0"),
        ("count", 2**31, "--count must be below 2147483648. Received: 2147483648"),
        ("count", 1.5, "--count can't be 1.5"),
        ("count", True, "--count can't be True"),
        ("share", float("inf"), "--share must be above 0. Received: inf"),
        ("share", float("nan"), "--share must be above 0. Received: nan"),
        ("share", None, "--share can't be None"),
        ("kind", "big", "--kind must be plain or fancy or none. Received: big"),
        ("parts", [1], r"--parts can't be \[1\]"),
        ("fast", "yes", "--fast can't be 'yes'"),
    ],
)
def test_values_are_checked(name, value, message):
    with pytest.raises(TrainingError, match=message):
        FEW[name].check(value)


def test_values_become_words_of_the_command_line_and_of_results():
    parts = {"b": [1], "a": [2, 3], "c": "x"}
    assert assignments(parts) == ["a=2,3", "b=1,", "c=x"]
    nested = {"a": [[4, 5], [8]], "b": []}
    assert assignments(nested) == ["a=(4,5),(8,)", "b=()"] == assignments({"a": ((4, 5), (8,)), "b": ()})
    assert [assignment(text)[1] for text in assignments(nested)] == [[(4, 5), (8,)], []]
    assert FEW["parts"].as_arguments(parts)[:2] == ["--parts", "a=2,3"]
    assert FEW["parts"].as_texts({"a": 1}) == ["parts a=1"] and FEW["count"].as_texts(3) == ["count 3"]
    assert FEW["fast"].as_arguments(True) == ["--fast"]
    settings = Settings(momentum_cycle=False, download=True, batch_size=3)
    assert settings.as_arguments() == ["--batch-size", "3", "--no-momentum-cycle", "--download"]
    assert settings.stated() == ["momentum_cycle False"]
    assert Settings(mixup=1).stated() == Settings(mixup=1.0).stated() == ["mixup 1.0"]


def test_rows_of_results_name_a_weights_file_by_its_folder_and_name(tmp_path):
    file = tmp_path / "run" / "best.weights.h5"
    assert Settings(weights=file).with_absolute_paths().stated() == ["weights run/best.weights.h5"]
    assert Settings(weights="sabour2017-digits").with_absolute_paths().stated() == ["weights sabour2017-digits"]


def test_a_row_of_results_states_each_setting_or_has_a_column_for_it():
    columns = {
        "epochs",
        "batch_size",
        "learning_rate",
        "decay_steps",
        "seed",
        "dataset",
        "transformer",
        "test_limit",
        "dtype",
    }
    columns |= {"strategy", "devices", "processes"}
    irrelevant = {"cache", "cache_limit", "data_dir", "download", "process", "coordinator"}
    irrelevant |= {"deterministic", "keep_epochs", "diagnostics"}
    assert sorted(DECLARED) == sorted([*columns, *irrelevant, *_STATED])
