"""`tf-capsules export`."""

from tf_capsules.cli.options import add_settings, add_weights, given_settings
from tf_capsules.runs.exporting import FORMATS, export_run, find_run_to_export, plan_export

HELP = "Export a run for serving without this package."


def add_parser(parser):
    parser.add_argument("folder", metavar="RUN", help="run folder, or the name of a recipe, with --weights FILE")
    parser.add_argument("target", nargs="?", metavar="TARGET", help="folder or file (default: inside the run folder)")
    parser.add_argument(
        "--format",
        choices=tuple(FORMATS),
        help="embeddings: for texts, a SavedModel that takes hidden states, without the transformer (default: litert "
        "if TARGET ends in .tflite, onnx if it ends in .onnx, else saved_model)",
    )
    parser.add_argument(
        "--version",
        metavar="N",
        help="write to TARGET/N, a version for TensorFlow Serving; next: the number after the highest there",
    )
    parser.add_argument(
        "--warmup", action="store_true", help="add requests that TensorFlow Serving runs when it loads the model"
    )
    parser.add_argument(
        "--default", choices=("float32", "uint8"), default="float32", help="the pixels that serving_default takes"
    )
    add_weights(parser)
    add_settings(parser, ("data_dir", "download", "transformer"))


def run(options):
    wanted = dict(default=options.default, warmup=options.warmup, version=options.version)
    form, _ = plan_export(options.target, options.format, **wanted)
    run = find_run_to_export(options.folder, form, options.weights, **given_settings(options))
    print(f"exported: {export_run(run, options.target, form, **wanted)}")
