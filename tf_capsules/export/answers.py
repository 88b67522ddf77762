"""The answers of every export, and the checks that a model can give them."""

import warnings

import keras
import numpy as np

from tf_capsules.analysis.inference import network_of
from tf_capsules.lazy import tf
from tf_capsules.models import class_outputs, class_probabilities
from tf_capsules.models.classifier import gives_logits, layer_of_logits

ROUNDING = 0.01  # how far values may lie outside [0, 1], because of half precision or of resizing an image


def need_tensorflow():
    if keras.backend.backend() != "tensorflow":
        here = f"Models are exported on the TensorFlow backend; Keras runs on {keras.backend.backend()!r} here."
        how = "Save the weights (train with --no-export), and export them in a process with KERAS_BACKEND=tensorflow."
        raise RuntimeError(f"{here} {how}")


def hidden_states(model):
    """The symbolic hidden states (batch, tokens, layers, width) that a text network takes, or None."""
    inputs = getattr(network_of(model), "input", None)
    return inputs["embeddings"] if isinstance(inputs, dict) and set(inputs) == {"embeddings", "mask"} else None


def check_outputs(model, outputs):
    """Raises a ValueError unless a model answers with (batch, classes): an array, or one in a dict."""
    answers = outputs.get("activations") if isinstance(outputs, dict) else outputs
    shape = tuple(getattr(answers, "shape", ()))
    if len(shape) != 2 or (shape[1] == 1 and answers is outputs):
        given = keras.tree.map_structure(lambda x: tuple(x.shape), outputs)
        wanted = '(batch, classes), two or more, or a dict with these "activations" and perhaps "poses"'
        raise ValueError(f"Exports need a model that answers with {wanted}. {model.name} answers with {given}.")


def named(class_names):
    """Names of classes as a tensor of strings."""
    if isinstance(class_names, (str, bytes, dict, set, frozenset)) or not hasattr(class_names, "__len__"):
        raise ValueError(f"`class_names` has a name for each class, in their order. Received: {class_names!r}")
    return tf.constant([name if isinstance(name, bytes) else str(name) for name in class_names])


def class_answers(model, outputs, class_names):
    """Turns a model's outputs into the dict that a signature returns."""
    check_outputs(model, outputs)
    probabilities = tf.cast(class_probabilities(model, outputs), tf.float32)
    classes = probabilities.shape[-1]
    names = None if class_names is None else named(class_names)
    if names is not None and names.shape[0] != classes:
        raise ValueError(f"The model has {classes} classes. Received {names.shape[0]} names: {class_names!r}")
    answers = {"probabilities": probabilities, "class": tf.argmax(probabilities, axis=-1)}
    if isinstance(outputs, dict) and "poses" in outputs:
        answers["poses"] = tf.cast(outputs["poses"], tf.float32)
    if names is not None:
        answers["label"] = tf.gather(names, answers["class"])
    return answers


def for_any_number(answer):
    """Extends `answer` to empty batches, on which a convolution with bias fails: adds zeros, and drops their answer."""

    def answer_any_number(*inputs):
        # Not every server checks shapes before it runs a graph, so the graph does.
        inputs = [tf.ensure_shape(x, x.shape) for x in inputs]
        count = tf.shape(inputs[0])[0]
        none = tf.cast(count == 0, tf.int32)
        inputs = [tf.concat([x, tf.zeros([none, *tf.unstack(tf.shape(x))[1:]], x.dtype)], axis=0) for x in inputs]
        return {name: value[:count] for name, value in answer(*inputs).items()}

    return answer_any_number


def warn_of_logits(model, example):
    """Warns if a model answers with logits: its last layer gives them, or its answer to `example` leaves [0, 1]."""
    outputs = getattr(network_of(model), "output", None)
    if outputs is not None:
        check_outputs(model, outputs)
    layer = None if outputs is None or gives_logits(model) else layer_of_logits(class_outputs(outputs))
    if layer is not None:
        sign = f"its layer {layer.name!r} gives logits"
    else:
        answer = keras.ops.convert_to_numpy(class_probabilities(model, model(example, training=False)))
        farthest = answer.ravel()[np.abs(answer - 0.5).argmax()]
        if abs(farthest - 0.5) <= 0.5 + ROUNDING:
            return
        sign = f"it answers with numbers such as {farthest:.2f}"
    served = f"The outputs of {model.name} are served as probabilities, but they are not probabilities: {sign}."
    warnings.warn(f"{served} Add keras.layers.Softmax() after them.", stacklevel=4)
