"""The folder that a TensorFlow server loads: its place, signatures, weights, warm-up requests, and version number."""

import importlib.util
import pathlib
import re

import keras
import numpy as np

from tf_capsules.files import replacing, writable
from tf_capsules.layers.arguments import positive_int
from tf_capsules.lazy import tf

_SAVED_MODEL = "saved_model.pb"
_SAVED_MODEL_ENTRIES = {_SAVED_MODEL, "fingerprint.pb", "variables", "assets", "assets.extra"}
_WARMUP_FILE = "assets.extra/tf_serving_warmup_requests"


def is_saved_model(folder):
    return (pathlib.Path(folder) / _SAVED_MODEL).is_file()


def version_folder(folder, version=None):
    """The path of a new version of a model, where TensorFlow Serving looks for it: a number in the model's folder.

    Args:
        folder: the model's folder, which holds its versions. It need not exist.
        version: a new whole number of at least 1. None: one more than the highest that is there, or 1.

    Raises:
        ValueError: `version` is no such number or exists, or `folder` is a SavedModel itself.

    Example:
        >>> export_saved_model(model, version_folder("my_model"), warmup=True)
        PosixPath('my_model/3')
    """
    folder = pathlib.Path(folder)
    if is_saved_model(folder):
        raise ValueError(f"{folder} is a SavedModel; versions of one go into a folder of their own.")
    there = {int(path.name) for path in folder.glob("*") if path.name.isdecimal()}
    version = max(there, default=0) + 1 if version is None else positive_int("version", version)
    if version in there:
        raise ValueError(f"{folder / str(version)} exists already: give a new version another number.")
    return folder / str(version)


def free_folder(folder, warmup=False):
    """The path, if it does not exist, is an empty folder, or holds only a SavedModel; else a ValueError.

    An ImportError where warm-up requests are wanted and their package is not installed.
    """
    folder = loadable(writable(folder))
    if folder.absolute() == pathlib.Path.cwd() or folder.is_mount():
        raise ValueError(f"{folder} can't be replaced: you are in it, or a disk is mounted there. Name a folder in it.")
    if folder.is_dir():
        entries = {entry.name for entry in folder.iterdir()}
        others = sorted(entries - _SAVED_MODEL_ENTRIES if is_saved_model(folder) else entries)
    else:
        others = [folder.name] if folder.exists() else []
    if others:
        few = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
        raise ValueError(f"{folder} is not overwritten: it holds other files than a SavedModel ({few}).")
    if warmup and importlib.util.find_spec("tensorflow_serving") is None:
        package = "tensorflow-serving-api, which is not installed (pip install 'tf_capsules[export]')"
        raise ImportError(f"Warm-up requests need the package {package}")
    return folder


def loadable(folder):
    """The path; a ValueError for one from which TensorFlow can't load weights, as it takes the path for a pattern."""
    folder = pathlib.Path(folder)
    if re.search(r"\\|\[.*\]", folder.absolute().as_posix()):
        raise ValueError(f"TensorFlow can't load a SavedModel from a path with brackets or backslashes: {folder}")
    return folder


def write_saved_model(folder, signatures, warmup, **parts):
    """Writes a SavedModel with these signatures; the loaded object has `parts` as attributes."""
    module = tf.Module()
    for name, part in parts.items():
        setattr(module, name, part)
    # Keras's own export stores each variable twice.
    variables = (variable for signature in signatures.values() for variable in signature.graph.variables)
    module.weights = list({id(variable): variable for variable in variables}.values())
    with replacing(folder) as part:
        try:
            tf.saved_model.save(module, part, signatures)
            if warmup:
                _write_warmup(part / _WARMUP_FILE, signatures)
        except tf.errors.OpError as error:
            raise OSError(f"{folder} can't be written: {error.message}") from error
    return folder


def _write_warmup(file, signatures):
    """Writes a request of one example to each signature."""
    from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

    file.parent.mkdir()
    with tf.io.TFRecordWriter(str(file)) as writer:
        for name, signature in signatures.items():
            log = PredictionLog()
            log.predict_log.request.model_spec.signature_name = name
            for spec in keras.tree.flatten(signature.structured_input_signature):
                log.predict_log.request.inputs[spec.name].CopyFrom(tf.make_tensor_proto(_one_example(spec)))
            writer.write(log.SerializeToString())


def _one_example(spec):
    """One example for a signature's argument: ones in its shape; for strings the smallest picture, or a text."""
    if spec.dtype == tf.string:
        return [tf.io.encode_png(np.ones((1, 1, 1), np.uint8)).numpy() if spec.name == "files" else b"A text."]
    return np.ones([1 if size is None else size for size in spec.shape], spec.dtype.as_numpy_dtype)
