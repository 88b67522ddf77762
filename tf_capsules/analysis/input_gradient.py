"""The gradient of a network's loss with respect to its input images, on every Keras backend."""

import keras
import numpy as np
from keras import ops

from tf_capsules.analysis.inference import graph_of, in_batches, labels_of, shape_of_images, to_numpy
from tf_capsules.layers.arguments import one_of, positive_int
from tf_capsules.lazy import jax, tf, torch
from tf_capsules.models import class_outputs
from tf_capsules.models.classifier import gives_logits, layer_of_logits
from tf_capsules.models.feedback import without_feedback
from tf_capsules.routing.precision import at_least_float32

LOSSES = ("crossentropy", "trained")

_TINY = 1e-37  # its inverse is a finite float32, too
_HALF_STEP = 2.0**-24  # from 1 down to the next float32


class InputGradient:
    """The gradient of a network's loss with respect to its input images, compiled once.

    Source: Goodfellow et al. 2015, section 4 (the loss of the right class); Hinton et al. 2018, section 5.2.

    The loss "crossentropy" suits networks of all kinds. For a plain classifier it is `-log p_t`, where p_t is the
    probability of the label. Capsule activations a are no distribution: each is the probability that its class is
    present. Their log odds, `log(a / (1 - a))`, correspond to a CNN's logits, so the loss takes the softmax of these.
    Log odds rank the classes as the network does. Their slope does not vanish where squashing or the logistic function
    is flat. Activations divided by their sum would not do: the step would raise all other capsules alike, and the
    network would look robust. No loss is the strongest everywhere: check a claim of robustness with a second one.

    The loss "trained" is the one the model was compiled with, without reconstruction. It is not the default: for an
    image that is classified well enough, margin loss and spread loss are exactly 0, and so are their gradients.

    Args:
        model: a `CapsuleClassifier`, or a functional or sequential Keras model from images to class probabilities.
        loss: "crossentropy" or "trained"; or a loss of class numbers and class outputs, for instance logits. Losses of
            Keras that are not for class numbers get one-hot rows.
        batch_size: images at a time. The last batch is filled up, so that one compiled program serves all.

    Call arguments:
        images: (batch, height, width, channels), any number of them.
        labels: (batch,), the classes of the loss.

    Returns:
        (batch, height, width, channels), float32, the gradient of each image's own loss, in inference mode.

    Raises:
        ValueError: an unknown loss, or one without a value for each image; other images or labels; infinite gradients.

    Example:
        >>> model = keras.Sequential([keras.Input((2, 3, 1)), keras.layers.Flatten(), keras.layers.Dense(4, "softmax")])
        >>> InputGradient(model)(np.ones((5, 2, 3, 1)), np.array([0, 1, 2, 3, 0])).shape
        (5, 2, 3, 1)
    """

    def __init__(self, model, loss="crossentropy", batch_size=100):
        compiled = getattr(model, "loss", None)
        self.model = model = without_feedback(model)
        self.batch_size = positive_int("batch_size", batch_size)
        self.classes = class_outputs(graph_of(model).output).shape[-1]
        self._outputs, self._gradient = _compiled(model, _loss_function(model, loss, compiled))

    def __call__(self, images, labels):
        labels = labels_of(images, labels, self.classes).astype("int32")
        gradients = self._in_batches(self._gradient, images, labels)
        if not np.isfinite(gradients).all():
            hint = "give a loss of logits, such as SparseCategoricalCrossentropy(from_logits=True)"
            raise ValueError(f"The gradient of {self.model.name!r} is not finite. If its outputs are logits, {hint}.")
        return gradients

    def classify(self, images):
        """The predicted classes (batch,): those with the highest output."""
        return self._in_batches(self._outputs, images).argmax(-1)

    def _in_batches(self, function, images, *columns):
        size = min(self.batch_size, max(1, len(images)))
        parts = []
        for number, batch in enumerate(in_batches(self.model, images, size)):
            rows = [batch, *(column[number * size : (number + 1) * size] for column in columns)]
            filled = [np.concatenate([x, np.repeat(x[-1:], size - len(x), axis=0)]) for x in rows]
            parts.append(to_numpy(function(*filled))[: len(batch)])
        return np.concatenate(parts)


def _loss_function(model, loss, compiled):
    """A function of class numbers and the model's outputs that returns the loss of each sample."""
    if isinstance(loss, str):
        one_of("loss", loss, LOSSES)
    if loss == "crossentropy":
        return lambda labels, outputs: _crossentropy(model, labels, outputs)
    if loss == "trained":
        loss = compiled
        if isinstance(loss, dict):
            loss = loss.get("activations")
        elif isinstance(loss, (list, tuple)):
            loss = loss[0] if len(loss) == 1 else None
        if loss is None:
            needed = "a compiled model, with a loss of its class outputs"
            raise ValueError(f'The loss "trained" needs {needed}. Received: {model.name!r} with loss {compiled!r}')
    loss = keras.losses.get(loss)
    of_samples, named = (loss.call, type(loss)) if isinstance(loss, keras.losses.Loss) else (loss, loss)
    rows = named.__module__.startswith("keras.") and "sparse" not in named.__name__.lower()

    def of_outputs(labels, outputs):
        found = at_least_float32(class_outputs(outputs))
        values = of_samples(ops.one_hot(labels, found.shape[-1], dtype=found.dtype) if rows else labels, found)
        if len(values.shape) != 1:
            raise ValueError(f"The loss must have a value for each image. Received: {loss!r}, shape {values.shape}")
        return values

    return of_outputs


def _crossentropy(model, labels, outputs):
    found = at_least_float32(class_outputs(outputs))
    if gives_logits(model):
        logits = found
    elif not isinstance(outputs, dict):
        given = layer_of_logits(graph_of(model).output) is not None  # they have any sign
        logits = found if given else ops.log(found + _TINY)
    elif "logits" in outputs:
        # Activations that are exactly 0 or 1 in float32 have no gradient; their logits have.
        logits = at_least_float32(outputs["logits"])
    else:
        logits = ops.log(found + _TINY) - ops.log(ops.maximum(1 - found, _HALF_STEP))
    return -ops.sum(ops.one_hot(labels, logits.shape[-1], dtype=logits.dtype) * ops.log_softmax(logits), axis=-1)


def _compiled(model, loss):
    """Two functions on the current backend: images to class outputs, and images and labels to the gradient."""

    def outputs_of(images):
        return class_outputs(model(images, training=False))

    def total(images, labels):
        return ops.sum(loss(labels, model(images, training=False)))

    if keras.backend.backend() == "tensorflow":

        def gradient(images, labels):
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(images)
                value = total(images, labels)
            return tape.gradient(value, images, unconnected_gradients="zero")

        specs = tf.TensorSpec((None, *shape_of_images(model)), tf.float32), tf.TensorSpec((None,), tf.int32)
        return tf.function(outputs_of, specs[:1], autograph=False), tf.function(gradient, specs, autograph=False)
    if keras.backend.backend() == "jax":
        variables = *model.trainable_variables, *model.non_trainable_variables

        def compiled(function, transform=lambda scoped: scoped):
            # Weights are arguments, because constants would become a part of the compiled program.
            def scoped(images, values, *labels):
                with keras.StatelessScope(state_mapping=zip(variables, values, strict=True)):
                    return function(images, *labels)

            program = jax.jit(transform(scoped))
            return lambda images, *labels: program(images, [variable.value for variable in variables], *labels)

        return compiled(outputs_of), compiled(total, jax.grad)

    def gradient(images, labels):
        images = ops.convert_to_tensor(images).requires_grad_()
        return torch.autograd.grad(total(images, ops.convert_to_tensor(labels)), images, materialize_grads=True)[0]

    return torch.no_grad()(outputs_of), gradient
