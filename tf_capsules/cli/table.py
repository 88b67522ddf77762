"""`tf-capsules table`."""

import pathlib

from tf_capsules.cli.options import add_settings, given_settings, print_pictures
from tf_capsules.runs import Settings, table
from tf_capsules.runs.figures import save_figure
from tf_capsules.runs.settings import DECLARED

HELP = "Train several recipes on equal terms, row by row. The same command goes on after an interruption."


def add_parser(parser):
    parser.add_argument(
        "rows",
        nargs="+",
        metavar="ROW",
        help="name of a recipe, or RECIPE@N for N routing iterations; tested on the whole test split after training",
    )
    parser.add_argument("--output", "-o", default="runs/table", help="folder of the runs and the pictures")
    parser.add_argument(
        "--results",
        metavar="FILE.csv",
        help="file of results; rows that it has are not measured again (default: table.csv in the folder)",
    )
    parser.add_argument("--no-test", action="store_true", help="train and draw the curves, without a test at the end")
    # Its rows name iterations and start alike, and each is trained by one process.
    elsewhere = ("weights", "iterations", "processes", "process", "coordinator")
    add_settings(parser, [name for name in DECLARED if name not in elsewhere])


def run(options):
    folder = pathlib.Path(options.output)
    results = pathlib.Path(options.results or folder / "table.csv")
    settings = Settings(**given_settings(options))
    rows = table.make_table(options.rows, folder, settings, results, not options.no_test)
    if figure := table.draw_table(options.rows, folder):
        print_pictures([save_figure(figure, folder / "convergence.png")])
    if options.no_test:
        return
    print(f"results: {results}")
    if figure := table.draw_iterations(options.rows, rows):
        print_pictures([save_figure(figure, folder / "iterations.png")])
    width = max(map(len, options.rows))
    for name, row in zip(options.rows, rows, strict=True):
        parameters, seconds = int(row["parameters"]), float(row["seconds"])
        measured = f"{100 * float(row['value']):6.2f}% +- {100 * table.deviation(row):.2f}"
        print(f"{name:{width}}  {parameters:>12,} parameters  {measured}  {seconds:8.0f} s of training")
