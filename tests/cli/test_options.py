import argparse
import dataclasses

import pytest

from tf_capsules import cli
from tf_capsules.cli.options import assignment, given_settings
from tf_capsules.runs import Settings

EXAMPLES = {int: "3", float: "0.25", str: "word", dict: "a=1,2"}


def test_each_setting_is_an_option_of_training_made_from_its_declaration():
    from tf_capsules.runs.settings import DECLARED

    parser, given = cli.make_parser(), ["train"]
    for one in DECLARED.values():
        given += [one.flag] if one.kind is bool else [one.flag, EXAMPLES[one.kind]]
    settings = Settings(**given_settings(parser.parse_args(given)))
    values = {bool: True, int: 3, float: 0.25, str: "word", dict: {"a": [1, 2]}}
    assert dataclasses.asdict(settings) == {name: values[one.kind] for name, one in DECLARED.items()}
    assert given_settings(parser.parse_args(["train"])) == {}
    # What is written for a row of a table is read as the same settings.
    settings = Settings(momentum_cycle=False, loss={"variant": "code"}, feedback={"links": ["half"]}, cache_limit=2.5)
    assert Settings(**given_settings(parser.parse_args(["train", *settings.as_arguments()]))) == settings


def test_commands_have_their_own_options_beside_those_of_settings():
    options = cli.make_parser().parse_args(["attack", "run", "--loss", "trained", "--seed", "3"])
    assert given_settings(options) == {} and (options.loss, options.seed) == ("trained", 3)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a=1", 1),
        ("a=1.5", 1.5),
        ("a=word", "word"),
        ("a=None", None),
        ("a=false", False),
        ("a=1,", [1]),
        ("a=1,x", [1, "x"]),
        ("a=(1, 2)", [1, 2]),
        ("a=b=c", "b=c"),
    ],
)
def test_values_of_arguments(text, value):
    assert assignment(text) == ("a", value)


@pytest.mark.parametrize("text", ["a", "a=", "=1", ""])
def test_what_is_no_assignment(text):
    with pytest.raises(argparse.ArgumentTypeError, match="must be NAME=VALUE"):
        assignment(text)


@pytest.mark.parametrize("command", ["train", "evaluate", "attack", "figures"])
def test_data_are_not_named_twice(command, trained, capsys):
    folder, _ = trained
    run = ["-o", str(folder)] if command == "train" else [str(folder)]
    for other in (["--data-dir", "there"], ["--download"], ["--dataset", "mnist", "--download"]):
        assert cli.main([command, *run, "--data", "my.npz", *other]) == 2
        flags = ", ".join(word for word in other if word.startswith("--"))
        assert f"--data my.npz replaces the data set: leave out {flags}." in capsys.readouterr().err
