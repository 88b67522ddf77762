"""`tf-capsules figures`."""

import pathlib

from tf_capsules.cli.options import IMAGES, add_runs, add_settings, given_settings, print_pictures
from tf_capsules.files import writable
from tf_capsules.runs import find_run
from tf_capsules.runs.figures import save_curves, save_figures

HELP = "Draw a run's figures; several runs: their curves side by side."


def add_parser(parser):
    add_runs(parser)
    parser.add_argument("--output", "-o", help="folder for the pictures (default: RUN/figures; for several: figures)")
    add_settings(parser, (*IMAGES, "transformer"))


def run(options):
    given, several = given_settings(options), len(options.folders) > 1
    own = pathlib.Path("figures" if several else options.folders[0])
    writable(pathlib.Path(options.output or (own if own.is_dir() else "."), "figures", "picture"))
    if several:
        if given:
            raise ValueError(f"Other data are for the figures of one run. Received: {', '.join(given)}")
        if options.weights != "last":
            raise ValueError(f"--weights is for the figures of one run. Received: {options.weights}")
        print_pictures(save_curves(options.folders, options.output or "figures"))
    else:
        run = find_run(options.folders[0], options.weights, **given)
        print_pictures(save_figures(run, options.output))
