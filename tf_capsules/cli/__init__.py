"""The command `tf-capsules`: list, cost, train, table, evaluate, attack, predict, export, figures.

Each command is a module: `add_parser` declares its options, `run` calls the package and prints. All that a command
does can also be called from Python, most of it from `tf_capsules.runs`.
"""

import argparse
import importlib
import os
import sys
import warnings

from tf_capsules.version import __version__

COMMANDS = ("list", "cost", "train", "table", "evaluate", "attack", "predict", "export", "figures")
_GOES_ON = {
    "train": "; once an epoch is finished, --resume goes on from there",
    "table": "; the same command goes on",
}


def main(arguments=None):
    """Runs the command line and returns the exit status: 0; 2 for an error that the user can mend; 130 interrupted."""
    try:
        parser = make_parser()  # which imports the package
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    options, unknown = parser.parse_known_args(arguments)
    formatwarning = warnings.formatwarning
    command = "tf-capsules" if options.command is None else f"tf-capsules {options.command}"
    # argparse gives an optional argument behind other options to nobody.
    if len(unknown) == 1 and not unknown[0].startswith("-") and getattr(options, "target", "") is None:
        options.target = unknown.pop()
    if unknown:
        parser.exit(2, f"{command}: unrecognized arguments: {' '.join(' '.join(unknown).split())}\n")
    if options.command is None:
        parser.print_help()
        return 0
    warnings.formatwarning = lambda message, *_, **__: f"warning: {' '.join(str(message).split())}\n"
    try:
        options.run(options)
    except KeyboardInterrupt:
        print(f"\ninterrupted{_GOES_ON.get(options.command, '')}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of the output, such as `head`, has stopped
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        # TensorFlow's errors, and those of its data sets, have no base of their own.
        theirs = type(error).__module__.startswith("tensorflow")
        if not theirs and not isinstance(error, (ValueError, OSError, RuntimeError, ImportError, MemoryError)):
            raise
        words = " ".join(str(error).split())
        # TensorFlow says the same of a disk.
        exhausted = type(error).__name__ == "ResourceExhaustedError" and "No space left" not in words
        if exhausted or isinstance(error, MemoryError):
            smaller = "; a smaller --batch-size needs less" if hasattr(options, "batch_size") else ""
            words = f"out of memory{smaller}"
        print(f"{command}: {words}", file=sys.stderr)
        return 2
    finally:
        warnings.formatwarning = formatwarning
    return 0


class _Parser(argparse.ArgumentParser):
    """Reports a mistake in one line, like all other errors."""

    def error(self, message):
        self.exit(2, f"{self.prog}: {' '.join(message.split())}\n")


def make_parser():
    """The parser of all commands."""
    parser = _Parser(prog="tf-capsules", description="Capsule networks for Keras.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name in COMMANDS:
        command = importlib.import_module(f"tf_capsules.cli.{name}")
        sub = commands.add_parser(name, help=command.HELP, description=command.HELP, allow_abbrev=False)
        command.add_parser(sub)
        sub.set_defaults(run=command.run)
    return parser
