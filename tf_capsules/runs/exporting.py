"""Exports a run for users without this package, and tries the export as they will use it."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

from tf_capsules import export, text
from tf_capsules.files import writable
from tf_capsules.runs.folder import EXPORTED, RunFolder
from tf_capsules.runs.run import find_run

FORMATS = {
    "saved_model": "saved_model",
    "litert": "model.tflite",
    "onnx": "model.onnx",
    "embeddings": "saved_model_embeddings",
}
CONVERTED = {".tflite": "litert", ".onnx": "onnx"}  # formats of a single file, by its ending

# A new Python process runs this. It imports TensorFlow and nothing of this package.
_SERVE = """
import json, sys
import numpy as np, tensorflow as tf
inputs = dict(np.load(sys.argv[2]))
if "texts" in inputs:
    import tensorflow_text
    inputs["texts"] = np.char.encode(inputs["texts"], "utf-8")
signatures = tf.saved_model.load(sys.argv[1]).signatures
served = signatures["serving_float32" if "serving_float32" in signatures else "serving_default"]
answer = served(**{name: tf.constant(value) for name, value in inputs.items()})
print(json.dumps({key: value.numpy().tolist() for key, value in answer.items() if key in ("class", "probabilities")}))
"""


def plan_export(target=None, format=None, default="float32", warmup=False, version=None):
    """The format and the path of an export, None for one in the run folder; arguments and errors: see `export_run`."""
    if target is not None:
        writable(target)
    suffix = pathlib.Path(target or "").suffix.lower()
    if suffix in (".keras", ".h5"):
        endings = " or ".join(CONVERTED)
        raise ValueError(f"TARGET is a folder for a SavedModel, or a file that ends in {endings}. Received: {target}")
    ending = CONVERTED.get(suffix)
    format = format or ending or "saved_model"
    if format not in FORMATS:
        raise ValueError(f"--format is one of {', '.join(FORMATS)}. Received: {format!r}")
    if ending and format != ending:
        raise ValueError(f"--format {format} does not write a file that ends in {suffix}. Received: {target}")
    for name, given in (("version", version is not None), ("warmup", warmup), ("default", default != "float32")):
        if given and format in CONVERTED.values():
            raise ValueError(f"--{name} is for SavedModels. Received: --format {format}")
    if version is not None:
        if target is None:
            raise ValueError("--version needs TARGET, the folder of the model's versions.")
        number = int(version) if str(version).isdecimal() else version
        target = export.version_folder(target, None if number == "next" else number)
    return format, None if target is None else pathlib.Path(target)


def find_run_to_export(folder, format, weights="last", **changes):
    """A run in the dtype that the format needs; arguments and errors: see `tf_capsules.runs.find_run`."""
    # Converters take only float32. The weights are float32 under every dtype policy.
    dtype = {"dtype": "float32"} if format in CONVERTED.values() else {}
    return find_run(folder, weights, **{**changes, **dtype})


def export_run(run, target=None, format=None, default="float32", warmup=False, version=None):
    """Exports a run's model with the recipe's preprocessing and the names of the classes, and returns the path.

    Args:
        run: a `Run`, for "litert" and "onnx" from `find_run_to_export`.
        target: a folder or file; None for one in the run folder.
        format: "saved_model"; "litert" or "onnx", for images; "embeddings", for texts: a SavedModel of hidden states.
            None: "litert" or "onnx" if the target ends in .tflite or .onnx, else "saved_model".
        default, warmup: see `tf_capsules.export.export_saved_model`.
        version: number of the subfolder that the export goes to; "next": the number after the highest there.

    Raises a ValueError for arguments that do not go together, or do not fit the run's inputs.
    """
    format, target = plan_export(target, format, default, warmup, version)
    inside = run.folder / FORMATS[format]
    target = inside if target is None else target
    steps, spec = run.recipe.preprocess, run.trained_on
    of_texts = run.recipe.transformer is not None
    if of_texts and default != "float32":
        raise ValueError(f"--default {default} is for images. Received: {run.recipe.name}")
    if format in (CONVERTED.values() if of_texts else ("embeddings",)):
        raise ValueError(f"--format {format} is for {'images' if of_texts else 'texts'}. Received: {run.recipe.name}")
    if of_texts:
        transformer = text.load(run.recipe.transformer) if format == "saved_model" else None
        if transformer is not None and transformer.engine == "keras-hub":
            export.export_text_saved_model(run.model, transformer, target, spec.class_names, warmup)
        else:
            if transformer is not None:
                print(f"{transformer!r} can't be part of a SavedModel: the export takes hidden states, not texts")
            export.export_embeddings_saved_model(run.model, target, spec.class_names, warmup)
    elif format == "saved_model":
        export.export_saved_model(run.model, target, steps, spec.class_names, default, spec.raw_shape, warmup)
    else:
        convert = export.export_litert if format == "litert" else export.export_onnx
        convert(run.model, target, steps, spec.raw_shape)
    if format == "saved_model" and run.history and target.resolve() == inside.resolve():
        RunFolder(run.folder).write_json(EXPORTED, {"epochs": len(run.history)})
    return target


def serve_example(run, target):
    """Serves a run's first test example from its exported model, in a process without this package.

    Returns what served it, in words, and a dict: the example's "label", the predicted "class" and its "probability".
    A ValueError says why the model could not be served.
    """
    examples, labels = run.examples(1, raw=True)
    inputs = {"images": examples}
    of_texts = run.recipe.transformer is not None
    if of_texts:
        strings = run.data.transformer.engine == "keras-hub"
        inputs = {"texts": np.array(examples, str)} if strings else run.examples(1)[0]
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "inputs.npz"
        np.savez(file, **inputs)
        command = [sys.executable, "-c", _SERVE, str(target), str(file)]
        on_cpu = os.environ | {"CUDA_VISIBLE_DEVICES": "-1"}  # this process has taken the memory of the GPU
        done = subprocess.run(command, env=on_cpu, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"The exported model could not be served: {(done.stderr.strip() or 'no message')[-500:]}")
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    label = labels["part_labels"][0].tolist() if isinstance(labels, dict) else int(labels[0])
    by = "TensorFlow and tensorflow-text" if of_texts else "TensorFlow"
    return by, {"label": label, "class": answer["class"][0], "probability": max(answer["probabilities"][0])}
