"""`tf-capsules export`."""

import pathlib

from tf_capsules.cli.options import add_weights

HELP = "Export a run for serving without this package."

_ENDINGS = {".tflite": "litert", ".onnx": "onnx"}


def add_parser(parser):
    parser.add_argument("folder", metavar="RUN", help="run folder, or the name of a recipe, with --weights FILE")
    parser.add_argument("target", nargs="?", metavar="TARGET", help="folder or file (default: inside the run folder)")
    parser.add_argument(
        "--format",
        choices=("saved_model", "litert", "onnx", "embeddings"),
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


def run(options):
    from tf_capsules import export
    from tf_capsules.runs import find_run
    from tf_capsules.runs.exporting import export_run

    suffix = pathlib.Path(options.target or "").suffix
    if suffix in (".keras", ".h5"):
        raise ValueError(
            f"TARGET is a folder for a SavedModel, or a file that ends in {' or '.join(_ENDINGS)}. "
            f"Received: {options.target}"
        )
    ending = _ENDINGS.get(suffix)
    form = options.format or ending or "saved_model"
    of_file = form in _ENDINGS.values()
    if ending and form != ending:
        raise ValueError(f"--format {form} does not write a file that ends in {suffix}. Received: {options.target}")
    for name, least in (("version", None), ("warmup", False), ("default", "float32")):
        if of_file and getattr(options, name) != least:
            raise ValueError(f"--{name} is for SavedModels. Received: --format {form}")
    target = options.target
    if options.version is not None:
        if target is None:
            raise ValueError("--version needs TARGET, the folder of the model's versions.")
        number = int(options.version) if options.version.isdecimal() else options.version
        target = export.version_folder(target, None if number == "next" else number)
    # Converters take only float32. The weights are float32 under every dtype policy.
    changes = {"dtype": "float32"} if of_file else {}
    exported = find_run(options.folder, options.weights, **changes)
    print(f"exported: {export_run(exported, target, form, options.default, options.warmup)}")
