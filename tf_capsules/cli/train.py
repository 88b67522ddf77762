"""`tf-capsules train`."""

import pathlib

from tf_capsules import recipes, runs
from tf_capsules.cli.options import add_results, add_settings, given_settings, print_accuracy, print_pictures
from tf_capsules.export.answers import need_tensorflow
from tf_capsules.export.serving import loadable
from tf_capsules.runs.configuration import resumed
from tf_capsules.runs.exporting import export_run, serve_example
from tf_capsules.runs.figures import save_figures
from tf_capsules.runs.settings import DECLARED

HELP = "Train a recipe; then draw its figures, export it and serve one prediction."


def add_parser(parser):
    parser.add_argument("recipe", nargs="?", help="name of a recipe (default: scikit-learn's digits)")
    parser.add_argument("--output", "-o", help="run folder (default: runs/RECIPE)")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue the run in the folder, or start one if there is none; without RECIPE the folder must hold one, "
        "whose recipe and settings apply",
    )
    add_settings(parser, DECLARED)
    add_results(parser)
    parser.add_argument("--no-export", action="store_true", help="stop after training and figures")
    parser.add_argument("--no-figures", action="store_true", help="draw none")


def run(options):
    name, given = options.recipe, given_settings(options)
    output = pathlib.Path(options.output or pathlib.Path("runs") / (name or recipes.DEFAULT))
    recipe, settings = None, runs.Settings(**given)
    if options.resume and name is None:
        recipe, settings = resumed(output, **given)
        if recipe is None and options.output:
            raise ValueError(f"{output} holds no run to resume. To start one there, name a recipe.")
    recipe = recipe or recipes.get(name or recipes.DEFAULT)
    if not options.no_export:
        need_tensorflow()
        loadable(output)
    print(f"{recipe.name}: {settings.title(recipe)}", flush=True)
    if recipe.note:
        print(f"note: {recipe.note}", flush=True)
    trained = runs.train(recipe, output, settings, options.resume, results=options.results)
    if options.process:
        print(f"process {options.process} is done; the run folder is with process 0")
        return
    if not options.no_figures:
        print_pictures(save_figures(trained))
    if not options.no_export:
        target = export_run(trained)
        print(f"exported: {target}")
        by, answer = serve_example(trained, target)
        kind = "image" if trained.recipe.transformer is None else "text"
        print(
            f"served by {by} alone: test {kind} 0 (label {answer['label']}) is class {answer['class']}, "
            f"probability {answer['probability']:.3f}"
        )
    metric = trained.recipe.metric
    familiar = [trained.history[-1][f"val_{metric}"] for _ in trained.data.evaluated[:-1]]
    print_accuracy(metric, [*familiar, trained.result["value"]])
