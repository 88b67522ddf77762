"""`tf-capsules attack`."""

import inspect
import pathlib

from tf_capsules.analysis import robustness
from tf_capsules.cli.options import IMAGES, add_results, add_runs, add_settings, given_settings, print_pictures
from tf_capsules.files import writable
from tf_capsules.runs import find_run
from tf_capsules.runs.attack import RunAttack
from tf_capsules.runs.folder import short_names

_PARAMETERS = inspect.signature(RunAttack).parameters.values()
_DEFAULTS = {one.name: one.default for one in _PARAMETERS if one.default is not one.empty}

HELP = "Test runs on adversarial images: those made against the run itself, and those made against the others."


def add_parser(parser):
    add_runs(parser, "; each image must have one class")
    epsilons = " ".join(map(str, _DEFAULTS["epsilons"]))
    change = f"most change of a value, in units of the network's input (default: {epsilons})"
    parser.add_argument("--epsilons", type=float, nargs="+", help=change)
    kinds = "fgsm: fast gradient sign method, bim: basic iterative method (default: both)"
    parser.add_argument("--attacks", nargs="+", help=kinds)
    goals = "untargeted: the accuracy that is left; targeted: how often a wanted wrong class wins (default: both)"
    parser.add_argument("--goals", nargs="+", help=goals)
    for name, kind, help in (
        ("steps", int, "steps of the basic iterative method"),
        ("limit", int, "how many test images, drawn at random"),
        ("seed", int, "seed for drawing the images"),
        ("loss", str, "whose gradient is used: crossentropy, or trained, the run's own"),
        ("batch-size", int, "images at a time"),
    ):
        parser.add_argument(f"--{name}", type=kind, help=f"{help} (default: %(default)s)")
    parser.add_argument("--only-right", action="store_true", help="attack only images that all runs classify correctly")
    parser.set_defaults(**_DEFAULTS)
    add_settings(parser, IMAGES)
    add_results(parser, "rows")
    parser.add_argument("--output", "-o", default="attacks", help="folder for the pictures (default: attacks)")


def run(options):
    writable(pathlib.Path(options.output, "picture"))
    changes = given_settings(options) | {"dtype": "float32"}
    names = short_names(options.folders)
    runs = {n: find_run(path, options.weights, **changes) for n, path in zip(names, options.folders, strict=True)}
    attack = RunAttack(runs, **{name: getattr(options, name) for name in _DEFAULTS})
    data = attack.first.data.spec.name
    print(f"{len(attack.labels):,} test images of {data}; epsilon in {attack.units}", flush=True)
    for number, (rows, seconds) in enumerate(attack.measure(), 1):
        values = ", ".join(f"{row['model']} {row['value']:.1%}" for row in rows)
        first = rows[0]
        what = f"{first['attack']} {first['goal']}, made on {first['made_on']}, epsilon {first['epsilon']:g}"
        print(f"{what}: {first['metric']} of {values} ({number} of {len(attack)}, {seconds:.0f} s)", flush=True)
    print(f"\n{robustness.table(attack.rows)}\n")
    for sign in robustness.masking_signs(attack.rows):
        print(f"a sign of masked gradients: {sign}")
    print_pictures(attack.save_figures(options.output))
