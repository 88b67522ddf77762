"""The command `tf-capsules`: list, cost, train, table, evaluate, attack, predict, export, figures."""

import argparse
import ast
import dataclasses
import importlib.util
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import warnings

from tf_capsules.files import reading
from tf_capsules.version import __version__

_MOST_TOKENS = 100  # in a picture of a text

# Run by a Python that has imported TensorFlow and nothing of this package.
_SERVE = """
import json, sys
import numpy as np, tensorflow as tf
inputs = dict(np.load(sys.argv[2]))
if "texts" in inputs:
    import tensorflow_text
    inputs["texts"] = np.char.encode(inputs["texts"], "utf-8")
served = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
answer = served(**{name: tf.constant(value) for name, value in inputs.items()})
print(json.dumps({key: value.numpy().tolist() for key, value in answer.items() if key in ("class", "probabilities")}))
"""


def main(arguments=None):
    """Runs the command line; returns the exit status: 0, or 2 for what the user has to change."""
    parser = _parser()
    options, unknown = parser.parse_known_args(arguments)
    formatwarning = warnings.formatwarning
    command = "tf-capsules" if options.command is None else f"tf-capsules {options.command}"
    if unknown:
        parser.exit(2, f"{command}: unrecognized arguments: {' '.join(' '.join(unknown).split())}\n")
    if options.command is None:
        parser.print_help()
        return 0
    warnings.formatwarning = lambda message, *_, **__: f"warning: {' '.join(str(message).split())}\n"
    try:
        options.run(options)
    except (ValueError, OSError, RuntimeError, ImportError) as error:
        print(f"{command}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ninterrupted; the same command with --resume goes on from the last finished epoch", file=sys.stderr)
        return 130
    finally:
        warnings.formatwarning = formatwarning
    return 0


class _Parser(argparse.ArgumentParser):
    """Tells a mistake in one line, as all others are told."""

    def error(self, message):
        self.exit(2, f"{self.prog}: {' '.join(message.split())}\n")


def _parser():
    parser = _Parser(prog="tf-capsules", description="Capsule networks for Keras.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    def command(name, run, help, **arguments):
        sub = commands.add_parser(name, help=help, description=help, allow_abbrev=False, **arguments)
        sub.set_defaults(run=run)
        return sub

    sub = command("list", _list, "List recipes, data sets and shipped weights.")
    sub.add_argument("what", nargs="?", choices=("recipes", "datasets", "weights"), default="recipes")

    sub = command("cost", _cost, "Estimate what a recipe takes before it is trained: multiply-adds, votes, memory.")
    sub.add_argument("recipe", help="name of a recipe")
    sub.add_argument("--batch-size", type=int, help="examples a step (default: the recipe's)")
    sub.add_argument("--iterations", type=int, help="of each routing layer of the network")
    _network_option(sub)
    sub.add_argument("--image-shape", help="of the network's input, such as 32x32x3 (default: the recipe's)")
    sub.add_argument("--size", type=int, help="of axes of unknown size: for texts the number of tokens")
    sub.add_argument("--inference", action="store_true", help="of an inference in place of a training step")

    sub = command("train", _train, "Train a recipe; then draw its figures, export it and serve one prediction.")
    sub.add_argument("recipe", nargs="?", help="name of a recipe (default: scikit-learn's digits)")
    sub.add_argument("--output", "-o", help="run folder (default: runs/RECIPE)")
    sub.add_argument(
        "--resume",
        action="store_true",
        help="go on with the run in the folder; without RECIPE with its own recipe and settings; a new run where "
        "there is none",
    )
    _training_options(sub)
    sub.add_argument(
        "--processes", type=int, help="how many processes train together, one a machine, on the JAX backend"
    )
    sub.add_argument("--process", type=int, help="which of them this is, from 0; process 0 writes the run folder")
    sub.add_argument("--coordinator", metavar="HOST:PORT", help="where all of them reach process 0")
    sub.add_argument("--iterations", type=int, help="of each routing layer of the network")
    sub.add_argument("--results", metavar="FILE.csv", help="append the measured row to this file")
    sub.add_argument("--no-export", action="store_true", help="stop after training and figures")
    sub.add_argument("--no-figures", action="store_true", help="draw none")

    sub = command("table", _table, "Train several recipes on equal terms, row by row; an interrupted table goes on.")
    sub.add_argument(
        "rows",
        nargs="+",
        metavar="ROW",
        help="name of a recipe, or RECIPE@N for N routing iterations; at its end tested on the whole test split",
    )
    sub.add_argument("--output", "-o", default="runs/table", help="folder of the runs and the picture")
    sub.add_argument("--results", metavar="FILE.csv", help="rows in it are done (default: table.csv in the folder)")
    sub.add_argument("--no-test", action="store_true", help="no test at the end: curves and their picture alone")
    _training_options(sub)

    sub = command("evaluate", _evaluate, "Evaluate a run, or several as an ensemble, on its own or another test split.")
    sub.add_argument(
        "folders",
        nargs="+",
        metavar="RUN",
        help="run folders, of several the probabilities are summed; or the name of a recipe, with --weights FILE",
    )
    sub.add_argument("--batch-size", type=int, help="examples at a time (default: the recipe's)")
    sub.add_argument(
        "--crops",
        metavar="N",
        help="sum the probabilities over so many random crops of each image, always the same ones; fixed: over its "
        "corners, its centre, and these mirrored",
    )
    sub.add_argument("--iterations", type=int, help="of each routing layer (default: those it was trained with)")
    _jit_option(sub)
    _weights_option(sub)
    _data_options(sub)
    sub.add_argument("--results", metavar="FILE.csv", help="append the measured row to this file")

    sub = command(
        "attack", _attack, "Attack runs with adversarial images, each with its own and with those of the others."
    )
    sub.add_argument("folders", nargs="+", metavar="RUN", help="as for evaluate, but all of one class an image")
    for name, type_, text in (
        (
            "epsilons",
            float,
            "most change of a value, in units of the network's input (default: 0.02 0.05 0.1 0.2 0.3 0.4)",
        ),
        ("attacks", str, "fgsm: fast gradient sign method, bim: basic iterative method (default: both)"),
        ("goals", str, "untargeted: accuracy, targeted: success of making it each other class (default: both)"),
    ):
        sub.add_argument(f"--{name}", type=type_, nargs="+", help=text)
    sub.add_argument("--steps", type=int, default=10, help="of the basic iterative method (default: 10)")
    sub.add_argument(
        "--limit", type=int, default=200, help="attack so many test images, drawn at random (default: 200)"
    )
    sub.add_argument("--seed", type=int, default=0, help="of drawing them (default: 0)")
    sub.add_argument("--only-right", action="store_true", help="of these only the ones that all runs classify rightly")
    sub.add_argument(
        "--loss", default="crossentropy", help="whose gradient: crossentropy or trained (default: the first)"
    )
    sub.add_argument("--batch-size", type=int, default=100, help="images at a time (default: 100)")
    _weights_option(sub)
    _images_options(sub)
    sub.add_argument("--results", metavar="FILE.csv", help="append the measured rows to this file")
    sub.add_argument("--output", "-o", default="attacks", help="folder for the pictures (default: attacks)")

    sub = command("predict", _predict, "Classify image files, or texts with a picture of what each token was used for.")
    sub.add_argument("model", metavar="MODEL", help="run folder, or folder of an exported SavedModel")
    sub.add_argument("inputs", nargs="+", metavar="INPUT", help="PNG, JPEG, BMP or GIF files; or texts, each in quotes")
    sub.add_argument(
        "--output", "-o", default="predictions", help="folder for pictures of texts (default: predictions)"
    )

    sub = command("export", _export, "Export a run for serving without this package.")
    sub.add_argument("folder", metavar="RUN", help="run folder, or the name of a recipe, with --weights FILE")
    sub.add_argument("target", nargs="?", metavar="TARGET", help="folder or file (default: inside the run folder)")
    sub.add_argument(
        "--format",
        choices=("saved_model", "litert", "onnx", "embeddings"),
        help="embeddings: for texts, a SavedModel from the transformer's hidden states on (default: litert where "
        "TARGET ends in .tflite, onnx where in .onnx, else saved_model)",
    )
    sub.add_argument(
        "--version",
        metavar="N",
        help="write to TARGET/N, a version for TensorFlow Serving; next: the number after the highest there",
    )
    sub.add_argument(
        "--warmup", action="store_true", help="write requests along that TensorFlow Serving runs before it answers"
    )
    sub.add_argument(
        "--default", choices=("float32", "uint8"), default="float32", help="the pixels that serving_default takes"
    )
    _weights_option(sub)

    sub = command("figures", _figures, "Draw a run's figures; several runs: their curves side by side.")
    sub.add_argument(
        "folders", nargs="+", metavar="RUN", help="run folders, or the name of a recipe, with --weights FILE"
    )
    sub.add_argument("--output", "-o", help="folder for the pictures (default: RUN/figures)")
    _weights_option(sub)
    return parser


def _training_options(sub):
    for name, type_, text in (
        ("epochs", int, "passes over the training examples"),
        ("batch-size", int, "examples a step, over all devices"),
        ("learning-rate", float, "at the start, or at the top of a warm-up"),
        ("decay-steps", int, "steps after which the learning rate has fallen by 4%%"),
        ("warmup", float, "share of all steps in which the learning rate rises, to fall as a half cosine then"),
        ("mixup", float, "mix pairs of training examples in shares from Beta(MIXUP, MIXUP)"),
        ("stop-at", float, "stop after the epoch in which validation reaches this accuracy, for instance 0.95"),
        ("seed", int, "of weights, order and augmentation (default: 0)"),
        ("train-limit", int, "use so many training examples only"),
        ("epoch-size", int, "test and keep the model after so many training examples (default: all of them)"),
    ):
        sub.add_argument(f"--{name}", type=type_, help=text)
    _network_option(sub)
    _data_options(sub)
    sub.add_argument(
        "--transformer",
        help="for texts: another frozen transformer, a folder, installed package or name on the hub",
    )
    sub.add_argument("--dtype", help="float32, mixed_bfloat16 or mixed_float16 (default: float32)")
    _jit_option(sub)
    sub.add_argument("--strategy", help="none or mirrored (default: none)")
    sub.add_argument(
        "--devices", type=int, help="how many devices are mirrored (default: all GPUs, else one CPU device)"
    )
    sub.add_argument("--deterministic", action="store_true", default=None, help="bitwise repeatable, slower")
    sub.add_argument("--keep-epochs", action="store_true", default=None, help="keep the weights after every epoch")
    sub.add_argument(
        "--diagnostics", action="store_true", default=None, help="measure after each epoch what the routing does"
    )


def _network_option(sub):
    sub.add_argument(
        "--network",
        metavar="NAME=VALUE",
        type=_assignment,
        action="append",
        help="set an argument of the network, for instance types=16, layers=1,1 or layers=1, for a list of one; "
        "may be repeated",
    )


def _assignment(text):
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


def _weights_option(sub):
    sub.add_argument(
        "--weights",
        default="last",
        metavar="WHICH",
        help="a run's last or best, or the number of a kept epoch; for a recipe a weights file, an author's .pt or a "
        "shipped set (default: last)",
    )


def _images_options(sub):
    sub.add_argument("--dataset", help="another data set (tf-capsules list datasets)")
    sub.add_argument(
        "--data",
        metavar="PATH",
        help="a .npz of x_train, y_train, x_test, y_test, or a folder of images",
    )
    sub.add_argument("--image-size", type=int, help="side to which a folder's images are resized (default: 32)")
    sub.add_argument("--class-list", metavar="FILE", help="for ImageNet: the classes to keep, a WordNet number a line")
    sub.add_argument("--box-file", metavar="FILE", help="for ImageNet: CSV of file, left, top, right, bottom")
    sub.add_argument("--data-dir", help="where tensorflow-datasets keeps its sets, or a folder of original files")
    sub.add_argument("--download", action="store_true", default=None, help="fetch an absent data set")


def _data_options(sub):
    _images_options(sub)
    sub.add_argument("--test-limit", type=int, help="use so many test examples only")
    sub.add_argument(
        "--cache", metavar="DIR", help="for texts: keeps hidden states; none: does not (default: ~/.cache/tf_capsules)"
    )
    sub.add_argument(
        "--cache-limit",
        type=float,
        metavar="GB",
        help="most room for hidden states of a set of texts (default: 20)",
    )


def _jit_option(sub):
    sub.add_argument("--jit", help="compile each step with XLA: auto, on or off (default: auto)")


def _settings(options):
    """The values of `Settings` that were given on the command line."""
    from tf_capsules.training import Settings

    given = {field.name: getattr(options, field.name, None) for field in dataclasses.fields(Settings)}
    given["network"] = None if given["network"] is None else dict(given["network"])
    return {name: value for name, value in given.items() if value is not None}


def _list(options):
    from tf_capsules import datasets
    from tf_capsules.models import weights

    if options.what == "recipes":
        _list_recipes()
        return
    if options.what == "datasets":
        rows = [
            (name, f"{text}{'' if shape is None else f', {classes} classes, ' + 'x'.join(map(str, shape))}")
            for name, text, shape, classes in datasets.describe()
        ]
    else:
        rows = [(name, str(weights.FOLDER / f"{name}.md")) for name in weights.names()]
    width = max((len(name) for name, _ in rows), default=0)
    for name, text in rows:
        print(f"{name:{width}}  {text}")


def _list_recipes():
    from tf_capsules import recipes
    from tf_capsules.recipes.measured import measured

    all_ = [recipes.get(name) for name in recipes.names()]
    name_width = max(len(recipe.name) for recipe in all_)
    published_width = max(len(recipe.published or "") for recipe in all_)
    for paper, citation in recipes.PAPERS.items():
        print(citation)
        for recipe in (recipe for recipe in all_ if recipe.paper == paper):
            found = measured(recipe)
            here = found.text(as_error="error" in (recipe.published or "")) if found else "not measured"
            print(
                f"  {recipe.name:{name_width}}  {recipe.published or '-':{published_width}}  {here:40}  {recipe.title}"
            )
        print()
    print("Columns: recipe, the paper's figure, the figure measured here, what it is.")


def _cost(options):
    import keras

    from tf_capsules import data, datasets, recipes, text, training
    from tf_capsules.analysis import estimate_cost
    from tf_capsules.datasets import augment

    settings = training.Settings(**_settings(options))
    recipe = recipes.get(options.recipe)
    settings.check(recipe)
    recipe = settings.apply(recipe)
    shape, classes = next(tuple(rest[-2:]) for name, *rest in datasets.describe() if name == recipe.dataset)
    common = recipe.dataset, tuple(map(str, range(classes))), recipe.batch_size, 0, ""
    if recipe.transformer is not None:
        if options.image_shape:
            raise ValueError(f"--image-shape is for images; {recipe.name} is on texts. Received: {options.image_shape}")
        transformer = text.load(recipe.transformer)
        spec = data.TextSpec(*common, recipe.transformer, transformer.layers, transformer.width)
    else:
        sizes = (options.image_shape or "x".join(map(str, augment.output_shape(recipe.preprocess, shape)))).split("x")
        if len(sizes) != 3 or not all(size.isdecimal() and int(size) for size in sizes):
            raise ValueError(f"--image-shape is HEIGHTxWIDTHxCHANNELS. Received: {options.image_shape}")
        spec = data.ImageSpec(*common, shape, tuple(map(int, sizes)))
    model = training.build_model(recipe, spec)
    learner = training.compile_learner(model, recipe, spec, jit="off")
    rows = keras.KerasTensor((classes,), "float32")
    targets = rows if recipe.metric == "exact_match" else None
    if recipe.metric == "exact_match" and getattr(model, "decoder", None) is not None:
        parts = keras.KerasTensor((2, *spec.image_shape), "float32")
        targets = {"label": rows, "parts": parts, "part_labels": keras.KerasTensor((2,), "int64")}
    elif recipe.mixup is not None:
        targets = {"label": rows, "unmixed": keras.KerasTensor((), "int64")}
    subject = model if options.inference else learner
    changed = [] if settings.iterations is None else [f"iterations={settings.iterations}"]
    changed = "".join(f" {text}" for text in changed + settings.network_as_text())
    print(f"{recipe.name}{changed and ' with' + changed}: {recipe.title}\n")
    print(estimate_cost(subject, recipe.batch_size, not options.inference, options.size, targets))


def _train(options):
    from tf_capsules import recipes, training

    name, given = options.recipe, _settings(options)
    output = pathlib.Path(options.output or pathlib.Path("runs") / (name or recipes.DEFAULT))
    settings = training.Settings(**given)
    if options.resume and name is None:
        name, settings = training.as_before(output, **given)
    recipe = recipes.get(name or recipes.DEFAULT)
    _check_export(options)
    print(f"{recipe.name}: {recipe.title}", flush=True)
    run = training.train(recipe, output, settings, options.resume, results=options.results)
    if options.process:
        print(f"process {options.process} is done; the run folder is with process 0")
        return
    if not options.no_figures:
        _draw(run, output / "figures")
    if not options.no_export:
        target = _export_run(run, output / "saved_model")
        _serve_one(run, target)
    metric = run.recipe.metric
    familiar = [run.history[-1][f"val_{metric}"]] if run.data.familiar_size else []
    _report(metric, [*familiar, run.result["value"]])


def _check_export(options):
    import keras

    backend = keras.backend.backend()
    if not options.no_export and backend != "tensorflow":
        raise ValueError(
            f"Models are exported on the TensorFlow backend; Keras runs on {backend} here: train with --no-export, and "
            "export the run folder with KERAS_BACKEND=tensorflow."
        )


def _table(options):
    from tf_capsules import tables, training

    folder = pathlib.Path(options.output)
    results = pathlib.Path(options.results or folder / "table.csv")
    settings = training.Settings(**_settings(options))
    rows = tables.make_table(options.rows, folder, settings, results, not options.no_test)
    _save(tables.draw_table(options.rows, results), folder / "convergence.png")
    if options.no_test:
        return
    print(f"results: {results}")
    if figure := tables.draw_iterations(options.rows, rows):
        _save(figure, folder / "iterations.png")
    width = max(map(len, options.rows))
    for name, row in zip(options.rows, rows, strict=True):
        parameters, seconds = int(row["parameters"]), float(row["seconds"])
        measured = f"{100 * float(row['value']):6.2f}% +- {100 * tables.deviation(row):.2f}"
        print(f"{name:{width}}  {parameters:>12,} parameters  {measured}  {seconds:8.0f} s of training")


def _evaluate(options):
    from tf_capsules import training

    runs = [_load(folder, options.weights, **_settings(options)) for folder in options.folders]
    run, metric = runs[0], runs[0].recipe.metric
    kinds = [(one.trained_on.inputs, one.recipe.preprocess, one.trained_on.class_names) for one in runs]
    if any(kind != kinds[0] for kind in kinds):
        raise ValueError(f"Runs of one ensemble need the same inputs, preprocessing and classes. Received: {kinds}")
    crops = int(options.crops) if (options.crops or "").isdecimal() else options.crops
    training.check_crops(run.recipe, crops)
    if options.results:
        training.check_row(options.results, _row_of(run, run.data.spec))
    kind = "image" if run.data.transformer is None else "text"
    together = len(runs) > 1 or crops is not None
    cropped = [] if crops is None else ["ten fixed crops" if crops == "fixed" else f"{crops} random crops"]
    values = []
    for part, spec in run.data.evaluated:
        started = time.perf_counter()
        measured = training.evaluate_ensemble(runs, part, crops) if together else run.evaluate(part)
        pace = 1000 * (time.perf_counter() - started) / spec.test_size
        how = [f"loss {measured['loss']:.4f}"] if "loss" in measured else []
        how += [f"ensemble of {len(runs)}"] if len(runs) > 1 else []
        how = ", ".join([f"{spec.test_size:,} test {kind}s of {spec.name}", *how, *cropped])
        print(f"{how}, {pace:.1f} ms each, compiling included")
        if spec.note:
            print(spec.note)
        if options.results:
            row = _row_of(run, dataclasses.replace(spec, note="; ".join(filter(None, [spec.note, *cropped]))))
            loss = round(measured["loss"], 6) if "loss" in measured else ""
            row |= {"value": round(measured[metric], 6), "best_value": "", "test_loss": loss}
            row |= {"recipe": " + ".join(one.recipe.name for one in runs), "peak_memory_mb": training.peak_memory_mb()}
            training.append_row(options.results, row)
        values.append(measured[metric])
    _report(metric, values)


def _row_of(run, spec):
    """The row of results of a run on other data or in other batches, with those that it was trained on."""
    from tf_capsules.training import describe_result

    row = describe_result(run.recipe, run.settings, spec, run.model, run.history)
    batch_size = run.result.get("batch_size", run.recipe.batch_size)
    return row | {"train_examples": run.trained_on.train_size, "batch_size": batch_size}


def _attack(options):
    from tf_capsules import training
    from tf_capsules.analysis import attacks, plots, robustness
    from tf_capsules.analysis.input_gradient import InputGradient
    from tf_capsules.datasets import augment

    if options.limit < 1 or options.seed < 0:
        raise ValueError(f"--limit must be at least 1, --seed 0. Received: {options.limit}, {options.seed}")
    # In half precision small changes of a pixel are rounded away: a network would look robust that is not.
    changes = {name: value for name, value in _settings(options).items() if name not in ("seed", "batch_size")}
    changes["dtype"] = "float32"
    names = _short_names(options.folders)
    runs = {n: _load(path, options.weights, **changes) for n, path in zip(names, options.folders, strict=True)}
    for run in runs.values():
        if run.recipe.transformer is not None or run.recipe.metric == "exact_match":
            raise ValueError(f"Attacks are on images of one class each. Received: {run.recipe.name}")
    specs = [(run.trained_on, augment.in_evaluation(run.recipe.preprocess)) for run in runs.values()]
    kinds = [(spec.inputs, steps, spec.class_names) for spec, steps in specs]
    if any(kind != kinds[0] for kind in kinds):
        raise ValueError(f"Runs attacked together need the same inputs, preprocessing and classes. Received: {kinds}")
    gradients = {n: InputGradient(run.model, options.loss, options.batch_size) for n, run in runs.items()}
    units, bounds = attacks.input_units(kinds[0][1])
    run = runs[names[0]]

    def described(row, seconds=0.0):
        judge, note = runs[row["model"]], "only images that all runs classify rightly" if options.only_right else ""
        return {
            "run": row["model"],
            "made_on": row["made_on"],
            "recipe": judge.recipe.name,
            "parameters": judge.model.count_params(),
            "dataset": run.data.spec.name,
            "note": "; ".join(filter(None, [run.data.spec.note, note])),
            **{key: value for key, value in row.items() if key not in ("model", "made_on")},
            "units": units,
            "loss": options.loss,
            "seed": options.seed,
            "seconds": round(seconds, 1),
            "peak_memory_mb": training.peak_memory_mb(),
            **training.environment(),
        }

    if options.results:
        training.check_row(options.results, described({"model": names[0], **dict.fromkeys(robustness.COLUMNS[1:])}))
    images, labels = _drawn(run, options.limit, options.seed)
    print(f"{len(labels):,} test images of {run.data.spec.name}; epsilon in {units}", flush=True)
    asked = {name: getattr(options, name) for name in ("epsilons", "attacks", "goals", "steps", "only_right")}
    asked = {name: value for name, value in asked.items() if value is not None} | {"bounds": bounds}
    measured = robustness.measure_attacks(gradients, images, labels, **asked)
    grid = [attacks.ATTACKS, robustness.GOALS, attacks.EPSILONS]
    grid = [asked.get(name, known) for name, known in zip(("attacks", "goals", "epsilons"), grid, strict=True)]
    parts = len(runs) * len(grid[0]) * len(grid[1]) * len({0.0, *grid[2]})
    rows, started = [], time.perf_counter()
    for together in zip(*[measured] * len(runs), strict=True):  # one of each run
        seconds, started = time.perf_counter() - started, time.perf_counter()
        rows += together
        first = together[0]
        values = ", ".join(f"{row['model']} {row['value']:.1%}" for row in together)
        what = f"{first['attack']} {first['goal']}, made on {first['made_on']}, epsilon {first['epsilon']:g}"
        done = f"{len(rows) // len(runs)} of {parts}, {seconds:.0f} s"
        print(f"{what}: {first['metric']} of {values} ({done})", flush=True)
        for row in together if options.results else ():
            training.append_row(options.results, described(row, seconds))
    print(f"\n{robustness.table(rows)}\n")
    for sign in robustness.masking_signs(rows):
        print(f"a sign of masked gradients, of {sign}")
    folder = pathlib.Path(options.output)
    _save(plots.draw_robustness(rows, units), folder / "robustness.png")
    shown = {name: value for name, value in asked.items() if name in ("epsilons", "steps", "bounds")}
    shown |= {"attack": rows[-1]["attack"]}
    for name, gradient in gradients.items():
        measured = attacks.measure_attacked_images(gradient, images[:8], labels[:8], **shown)
        figure = plots.draw_attacked_images(measured, run.data.spec.class_names)
        _save(figure, folder / f"attacked_{name.replace('/', '-')}.png")


def _drawn(run, count, seed):
    """So many test examples of a run, drawn at random: images as the model gets them, and labels."""
    import numpy as np

    chosen = np.random.default_rng(seed).permutation(run.data.spec.test_size)[:count]
    images, labels, start = [], [], 0
    for batch, targets in run.data.test(batch_size=run.recipe.batch_size):
        places = chosen[(chosen >= start) & (chosen < start + len(targets))] - start
        images.append(np.asarray(batch)[places])
        labels.append(np.asarray(targets)[places])
        start += len(targets)
    return np.concatenate(images), np.concatenate(labels)


def _load(name, weights, **changes):
    """The run in a folder; or, with weights that are not its own, a recipe as a run."""
    from tf_capsules import recipes, training

    if pathlib.Path(name).exists() or name not in recipes.names():
        if weights not in ("last", "best") and not weights.isdecimal():
            raise ValueError(f"--weights of a run folder is last, best or an epoch. Received: {weights} for {name}")
        return training.load_run(name, int(weights) if weights.isdecimal() else weights, **changes)
    if weights in ("last", "best"):
        raise ValueError(f"{name} is a recipe: say whose weights with --weights FILE, or name a run folder.")
    return training.run_of_weights(name, weights, **changes)


def _predict(options):
    folder = pathlib.Path(options.model)
    if not (folder / "saved_model.pb").exists():
        folder = folder / "saved_model"
    if not (folder / "saved_model.pb").exists():
        raise FileNotFoundError(
            f"{options.model} is neither an exported SavedModel nor a run that holds one; "
            "`tf-capsules export RUN` makes it."
        )
    import tensorflow as tf

    if importlib.util.find_spec("tensorflow_text"):
        import tensorflow_text  # noqa: F401 (its operations are in the graphs of models of texts)
    with reading(folder, "is no SavedModel that can be served"):
        signatures = tf.saved_model.load(str(folder)).signatures
        takes = set(signatures["serving_default"].structured_input_signature[1])
        for signature in signatures.values():
            if not {"class", "probabilities"} <= set(signature.structured_outputs):
                raise ValueError(f"it answers {', '.join(signature.structured_outputs)}, not class and probabilities")
    if "embeddings" in takes:
        raise ValueError(f"{folder} takes a transformer's hidden states: texts can't be given to it.")
    if "texts" in takes:
        _predict_texts(signatures, options.inputs, pathlib.Path(options.output))
    elif "serving_bytes" in signatures:
        _predict_images(signatures["serving_bytes"], options.inputs)
    else:
        raise ValueError(f"{folder} takes images of neither 1 nor 3 channels: image files can't be given to it.")


def _predict_images(served, paths):
    import tensorflow as tf

    missing = [path for path in paths if not pathlib.Path(path).is_file()]
    if missing:
        is_folder = pathlib.Path(missing[0]).is_dir()
        raise FileNotFoundError(
            f"{missing[0]} is a folder, give its files." if is_folder else f"There is no file {missing[0]}."
        )
    for path in paths:
        try:
            answer = served(tf.constant([pathlib.Path(path).read_bytes()]))
        except tf.errors.InvalidArgumentError as error:
            raise ValueError(f"{path} can't be read as an image: damaged, or no PNG, JPEG, BMP or GIF file.") from error
        _print_prediction(path, answer)


def _predict_texts(signatures, texts, folder):
    import tensorflow as tf

    from tf_capsules.analysis.plots import draw_sentence_attribution

    files = [text for text in texts if os.path.isfile(text)]  # unlike pathlib's, false for what can't be a name
    if files:
        raise ValueError(
            f"This model classifies texts, which are given themselves, in quotes. Received a file: {files[0]}"
        )
    for text in texts:
        served = signatures.get("serving_attribution", signatures["serving_default"])
        answer = served(texts=tf.constant([os.fsencode(text)]))
        _print_prediction(text if len(text) <= 100 else f"{text[:97]}...", answer)
        if "shares" not in answer:
            continue
        one = {key: value.numpy()[0] for key, value in answer.items()}
        tokens = [token.decode() for token in one["tokens"]]
        if len(tokens) > _MOST_TOKENS:
            print(f"the model read {len(tokens)} tokens of this text, too many for a picture")
            continue
        names = [name.decode() for name in one["labels"]] if "labels" in one else range(len(one["probabilities"]))
        figure = draw_sentence_attribution(tokens, one["shares"], [str(name) for name in names], one["probabilities"])
        taken = (folder / f"attribution_{number}.png" for number in itertools.count(1))
        _save(figure, next(path for path in taken if not path.exists()))


def _print_prediction(name, answer):
    answer = {key: value.numpy()[0] for key, value in answer.items()}
    label = answer["label"].decode() if "label" in answer else str(answer["class"])
    print(f"{name}: {label}, probability {float(answer['probabilities'].max()):.3f}")


def _export(options):
    from tf_capsules import export

    ending = {".tflite": "litert", ".onnx": "onnx"}.get(pathlib.Path(options.target or "").suffix)
    form = options.format or ending or "saved_model"
    of_file = form in ("litert", "onnx")
    if ending and form != ending:
        raise ValueError(
            f"--format {form} makes {'another file' if of_file else 'a folder'}. Received: {options.target}"
        )
    for name in ("version", "warmup"):
        if of_file and getattr(options, name):
            raise ValueError(f"--{name} is for SavedModels. Received: --format {form}")
    target = options.target and pathlib.Path(options.target)
    if options.version is not None:
        if target is None:
            raise ValueError("--version needs TARGET, the folder of the model's versions.")
        number = int(options.version) if options.version.isdecimal() else options.version
        target = export.version_folder(target, None if number == "next" else number)
    # Converters take float32 alone; the weights are float32 under every dtype policy.
    changes = {"dtype": "float32"} if of_file else {}
    run = _load(options.folder, options.weights, **changes)
    name = {"litert": "model.tflite", "onnx": "model.onnx", "embeddings": "saved_model_embeddings"}
    _export_run(run, target or run.folder / name.get(form, "saved_model"), form, options.default, options.warmup)


def _figures(options):
    from tf_capsules import training
    from tf_capsules.analysis import plots

    if len(options.folders) > 1:
        folder = pathlib.Path(options.output or "figures")
        names = _short_names(options.folders)
        histories = {
            name: training.RunFolder(path).history() for name, path in zip(names, options.folders, strict=True)
        }
        empty = [name for name, history in histories.items() if not history]
        if empty:
            raise ValueError(f"{empty[0]} is not the folder of a run with a finished epoch.")
        folders = zip(names, options.folders, strict=True)
        losses = {name: training.RunFolder(path).config()["resolved"]["loss"] for name, path in folders}
        _save(plots.draw_training_curves(histories, losses), folder / "training_curves.png")
        _save(plots.draw_loss_comparison(histories, losses), folder / "loss_comparison.png")
        return
    run = _load(options.folders[0], options.weights)
    _draw(run, pathlib.Path(options.output or run.folder / "figures"))


def _short_names(paths):
    """The ends of paths, with as many folders before them as it takes to tell them apart."""
    parts = [pathlib.Path(path).resolve().parts for path in paths]
    for count in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-count:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    raise ValueError(f"A run is named twice: {', '.join(map(str, paths))}")


def _draw(run, folder):
    from tf_capsules.analysis import plots, runs
    from tf_capsules.analysis.diagnostics import read_rows

    for name, figure in runs.draw(run):
        _save(figure, folder / f"{name}.png")
    rows = read_rows(run.folder / "diagnostics.csv")
    if rows:
        _save(plots.draw_routing_diagnostics(rows), folder / "routing_diagnostics.png")


def _save(figure, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, bbox_inches="tight")
    print(f"picture: {path}")


def _export_run(run, target, format="saved_model", default="float32", warmup=False):
    from tf_capsules import export, text

    steps, spec = run.recipe.preprocess, run.trained_on
    of_texts = run.recipe.transformer is not None
    if format in (("litert", "onnx") if of_texts else ("embeddings",)) or (of_texts and default != "float32"):
        wrong = f"--default {default}" if format == "saved_model" else f"--format {format}"
        raise ValueError(f"{wrong} is for {'images' if of_texts else 'texts'}. Received: {run.recipe.name}")
    if of_texts:
        transformer = text.load(spec.transformer) if format == "saved_model" else None
        if transformer is not None and transformer.engine != "keras-hub":
            print(f"{transformer!r} can't be part of a SavedModel, which therefore begins with its hidden states")
            transformer = None
        if transformer is None:
            export.export_embeddings_saved_model(run.model, target, spec.class_names, warmup)
        else:
            export.export_text_saved_model(run.model, transformer, target, spec.class_names, warmup)
    elif format == "saved_model":
        export.export_saved_model(run.model, target, steps, spec.class_names, default, spec.raw_shape, warmup)
    else:
        convert = export.export_litert if format == "litert" else export.export_onnx
        convert(run.model, target, steps, spec.raw_shape)
    print(f"exported: {target}")
    return target


def _serve_one(run, target):
    """One test example through the exported model, in a process that has TensorFlow and not this package."""
    import numpy as np

    examples, labels = run.examples(1, raw=True)
    inputs = {"images": examples}
    if run.recipe.transformer is not None:
        strings = run.data.transformer.engine == "keras-hub"
        inputs = {"texts": np.array(examples, str)} if strings else run.examples(1)[0]
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "inputs.npz"
        np.savez(file, **inputs)
        command = [sys.executable, "-c", _SERVE, str(target), str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"The exported model could not be served: {(done.stderr.strip() or 'no message')[-500:]}")
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    label = labels["part_labels"][0].tolist() if isinstance(labels, dict) else int(labels[0])
    probability = max(answer["probabilities"][0])
    images = run.recipe.transformer is None
    by, kind = ("TensorFlow", "image") if images else ("TensorFlow and tensorflow-text", "text")
    print(
        f"served by {by} alone: test {kind} 0 (label {label}) is class {answer['class'][0]}, "
        f"probability {probability:.3f}"
    )


def _report(metric, values):
    """The last lines: of the test split; of novel viewpoints, of those that are familiar before it."""
    views = ("",) if len(values) == 1 else (" at familiar viewpoints", " at novel viewpoints")
    for value, where in zip(values, views, strict=True):
        print(f"test {metric.replace('_', ' ')} {100 * value:.2f}%{where}")


if __name__ == "__main__":
    sys.exit(main())
