"""Running a network on any number of images, with NumPy arrays in and out."""

import inspect
import itertools

import keras
import numpy as np
from keras import ops

from tf_capsules.arguments import is_whole, positive_int
from tf_capsules.models import CapsuleClassifier, FeedbackModel, class_probabilities


def predict(model, images, batch_size=100):
    """The outputs of a model in inference mode: a dict of arrays, or one array for a plain network."""
    outputs = [model(batch, training=False) for batch in in_batches(model, images, batch_size)]
    return keras.tree.map_structure(lambda *parts: np.concatenate([to_numpy(part) for part in parts]), *outputs)


def predict_probabilities(model, inputs):
    """The class probabilities (batch, classes); the outputs, if a plain network does not give probabilities."""
    return to_numpy(class_probabilities(model, model(inputs, training=False)))


def network_of(model):
    """The network of a model: the encoder of a classifier or a model with feedback, the graph of a Sequential."""
    network = model.encoder if isinstance(model, (CapsuleClassifier, FeedbackModel)) else model
    return network._functional if isinstance(network, keras.Sequential) else network


def graph_of(model):
    """The functional model that has a network's layers; a ValueError if there is none."""
    graph = network_of(model)
    if not hasattr(graph, "operations"):
        expected = "a CapsuleClassifier, a functional model, or a Sequential that knows its input"
        raise ValueError(f"This needs {expected}. Received: {model!r}")
    return graph


def inputs_at(layer, model):
    """A function from a model's inputs to the arguments of a layer's first call, in order, up to the last array."""
    graph, is_tensor = graph_of(model), keras.utils.is_keras_tensor
    nodes = itertools.chain(*graph._nodes_by_depth.values())  # of this network; others may call the layer, too
    call = min((node for node in nodes if node.operation is layer), key=layer._inbound_nodes.index)
    given, tensors = call.arguments, call.input_tensors
    bound = inspect.signature(layer.call).bind(*given.args, **given.kwargs)
    bound.apply_defaults()
    places = [place for place, value in enumerate(bound.args) if is_tensor(value)]
    # In lists, or by keyword alone: one after the other.
    arguments = bound.args[: places[-1] + 1] if len(places) == len(tensors) else tensors
    network = keras.Model(graph.input, list(filter(is_tensor, arguments)))

    def arguments_for(inputs):
        arrays = iter(keras.tree.flatten(network(inputs, training=False)))
        return tuple(next(arrays) if is_tensor(value) else value for value in arguments)

    return arguments_for


def shape_of_images(model):
    """(height, width, channels) of a model's images, None for an unknown size; a ValueError for other inputs."""
    own = hasattr(model, "image_shape")
    given = (None, *model.image_shape) if own else getattr(network_of(model), "input_shape", (None,) * 4)
    if not isinstance(given, tuple) or len(given) != 4 or not all(size is None or is_whole(size) for size in given):
        raise ValueError(f"This needs a model of images (height, width, channels). {model.name!r} takes {given}.")
    return given[1:]


def in_batches(model, images, batch_size):
    """The images as a list of float32 batches; a ValueError for no images, or images of another shape."""
    shape, batch_size = shape_of_images(model), positive_int("batch_size", batch_size)
    images = np.asarray(images, None if isinstance(images, dict) else "float32")
    fits = images.ndim == 4 and all(size in (None, given) for size, given in zip(shape, images.shape[1:], strict=True))
    if not fits or not len(images):
        raise ValueError(f"The model takes one or more images {shape}. Received an array of shape {images.shape}.")
    return [images[start : start + batch_size] for start in range(0, len(images), batch_size)]


def to_numpy(tensor):
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))


def check_labels(labels, classes):
    """Raises a ValueError unless all labels are class numbers."""
    labels = np.asarray(labels)
    if not np.issubdtype(labels.dtype, np.integer) or not ((labels >= 0) & (labels < classes)).all():
        few = np.array2string(labels, threshold=9, separator=", ")
        raise ValueError(f"Labels must be whole numbers from 0 to {classes - 1}. Received: {few}")


def check_label(label, classes):
    """Raises a ValueError unless the label is the number of one class."""
    if not is_whole(label, 0, classes - 1):
        raise ValueError(f"The label must be a whole number from 0 to {classes - 1}. Received: {label!r}")


def check_counts(right, wrong, found=True):
    """Raises a ValueError unless these are numbers of images to show, and images were found."""
    given = f"right={right} and wrong={wrong}"
    if not (is_whole(right, 0) and is_whole(wrong, 0)):
        raise ValueError(f"`right` and `wrong` must be whole numbers of at least 0. Received: {given}")
    if not found:
        raise ValueError(f"There is no image to show with {given}.")


def labels_of(images, labels, classes):
    """The labels of images, as an array (batch,); a ValueError unless each image has one, the number of a class."""
    labels = np.asarray(labels).reshape(-1)
    if len(labels) != len(images):
        raise ValueError(f"Each image needs one label. Received {len(images)} images and {len(labels)} labels.")
    check_labels(labels, classes)
    return labels


def classes_of(model):
    """The number of a `CapsuleClassifier`'s classes; a ValueError for another model."""
    if not isinstance(model, CapsuleClassifier):
        raise ValueError(f"This needs a CapsuleClassifier. Received: {model!r}")
    return model.encoder.output["activations"].shape[-1]


def predict_classes(model, images, labels):
    """The most active class of each image and its label, (batch,) both; for errors see `labels_of`."""
    labels = labels_of(images, labels, classes_of(model))
    return predict(model, images)["activations"].argmax(-1), labels
