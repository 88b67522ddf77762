"""The papers' baselines without capsules: convolutions, hidden layers, one output a class."""

from collections.abc import Callable, Sequence

import keras

from tf_capsules.argument_types import Shape, Weights
from tf_capsules.layers.arguments import CHANNELS_LAST
from tf_capsules.models.backbones import image_input
from tf_capsules.models.weights import load_weights


def convolutional_network(
    image_shape: Shape,
    classes: int,
    convolutions: Sequence[Sequence[int]],
    hidden: Sequence[int],
    pooling: bool = False,
    dropout: float = 0.0,
    activation: str | Callable | None = "softmax",
    weights: Weights = None,
    name: str | None = None,
):
    """A convolutional network, as a Keras model from images to class probabilities (batch, classes), not compiled.

    Args:
        image_shape, classes, weights, name: as of all networks, see `tf_capsules.models`.
        convolutions: (channels, kernel size) of each convolution, "same" padding, ReLU.
        hidden: units of each hidden layer, ReLU.
        pooling: whether 2x2 max pooling follows each convolution.
        dropout: share of the last hidden units that is dropped in training.
        activation: "sigmoid" where several classes may be present, "softmax" where one is.
    """
    layers = keras.layers
    stack = [image_input(image_shape, classes, 2 ** len(convolutions) if pooling else 1)]
    for channels, kernel_size in convolutions:
        stack += [layers.Conv2D(channels, kernel_size, padding="same", activation="relu", **CHANNELS_LAST)]
        stack += [layers.MaxPooling2D(**CHANNELS_LAST)] if pooling else []
    stack += [layers.Flatten(**CHANNELS_LAST), *(layers.Dense(units, "relu") for units in hidden)]
    stack += [layers.Dropout(dropout)] if dropout else []
    stack += [layers.Dense(classes, activation, dtype="float32", name="probabilities")]
    return load_weights(keras.Sequential(stack, name=name), weights)
