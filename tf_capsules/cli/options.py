"""Options of the command line: those made from the declarations of `Settings`, and those that commands share."""

import argparse
import ast

from tf_capsules.runs.settings import DECLARED

IMAGES = ("dataset", "data", "image_size", "class_list", "box_file", "data_dir", "download")
DATA = (*IMAGES, "test_limit", "transformer", "cache", "cache_limit")


def add_settings(parser, names, **help):
    """Adds the options of `Settings` with these names, in this order; `help` replaces the help of some of them."""
    for name in names:
        declared = DECLARED[name]
        arguments = {"help": help.get(name, declared.full_help).replace("%", "%%")}
        if declared.kind is bool:
            three = declared.default is None  # true, false or the recipe's own
            arguments |= {"action": argparse.BooleanOptionalAction if three else "store_true", "default": None}
        elif declared.kind is dict:
            arguments |= {"type": assignment, "action": "append", "metavar": "NAME=VALUE"}
        else:
            arguments |= {"type": declared.kind, "metavar": declared.metavar}
        parser.add_argument(declared.flag, **arguments)
    parser.set_defaults(settings=names)


def given_settings(options):
    """The values of `Settings` that were given on the command line."""
    values = {name: getattr(options, name) for name in options.settings}
    values = {name: value for name, value in values.items() if value is not None}
    return {name: dict(value) if DECLARED[name].kind is dict else value for name, value in values.items()}


def add_runs(parser, remark=""):
    """Adds RUN ..., which become `options.folders`, with a remark at the end of their help, and --weights."""
    what = f"run folders, or the name of a recipe, with --weights FILE{remark}"
    parser.add_argument("folders", nargs="+", metavar="RUN", help=what)
    add_weights(parser)


def add_weights(parser):
    parser.add_argument(
        "--weights",
        default="last",
        metavar="WHICH",
        help="for a run: last, best or the number of a kept epoch; for a recipe: a weights file, an author's .pt file "
        "or a shipped set (default: last)",
    )


def add_results(parser, what="row"):
    parser.add_argument("--results", metavar="FILE.csv", help=f"append the measured {what} to this file")


def print_accuracy(metric, values):
    """Prints the test accuracy; for novel viewpoints two lines, the familiar ones first."""
    views = ("",) if len(values) == 1 else (" at familiar viewpoints", " at novel viewpoints")
    for value, where in zip(values, views, strict=True):
        print(f"test {metric.replace('_', ' ')} {100 * value:.2f}%{where}")


def print_pictures(paths):
    for path in paths:
        print(f"picture: {path}")


def assignment(text):
    """NAME=VALUE as the name and a number, a truth value, None, a list of these, or else a string."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, for instance types=16. Received: {text}")
    return name, _value(value)


def _value(text):
    words = {"true": True, "false": False, "none": None}
    try:
        value = words[text.lower()] if text.lower() in words else ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = tuple(_value(part) for part in text.split(",") if part) if "," in text else text
    return list(value) if isinstance(value, tuple) else value
