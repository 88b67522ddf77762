"""The classifier that the papers' networks share: class capsules, and an optional reconstruction of the input."""

import copy

import keras
from keras import ops

from tf_capsules.argument_types import Tensor, Weights
from tf_capsules.layers import CapsuleLength, LabelMask
from tf_capsules.layers.arguments import truth_value
from tf_capsules.layers.base import RoutingLayer
from tf_capsules.losses import ReconstructionLoss, SpreadLoss, SpreadMargin
from tf_capsules.models.weights import load_weights
from tf_capsules.routing.precision import at_least_float32


@keras.saving.register_keras_serializable("tf_capsules")
class CapsuleClassifier(keras.Model):
    """A classifier with class capsules, which may learn to reconstruct its input.

    It is called with the input of the encoder, and returns its outputs; their shapes are those of `encoder`. `compile`
    it with a loss and metrics on the activations. With a decoder, `fit` adds the reconstruction loss of the capsule
    that the label selects (Sabour et al. 2017, section 4.1). `compile` also adds the step count of a loss with a
    `SpreadMargin` to the network.

    Args:
        encoder: model from images (batch, height, width, channels), or other inputs, to a dict of "activations" (batch,
            classes), "poses" (batch, classes, *pose), and any further outputs.
        decoder: layer from masked poses to images, or None.
        reconstruction_weight: factor on the summed squared error of the reconstruction.
        logits: true: "activations" are logits of a softmax; false: they are probabilities, which need not sum to 1.

    Labels for `fit` and `evaluate` are class numbers (batch,), or one-hot or multi-hot rows (batch, classes). Where an
    image has several parts to reconstruct, they are a dict of "label" (rows), "parts" (batch, parts, height, width,
    channels) and "part_labels" (batch, parts): each part is reconstructed from the capsule of its label, unless that is
    -1. For mixed examples they are a dict of "label" (mixed rows, for the loss) and "unmixed" (numbers, for metrics).

    Raises:
        ValueError: an encoder without these outputs, or with several inputs beside a decoder; a decoder that is no
            layer; a negative weight; another `logits` than true or false.

    Example:
        >>> from tf_capsules.layers import CapsuleLength, DynamicRouting
        >>> children = keras.Input((9, 8))
        >>> poses = DynamicRouting(4, 6)(children)
        >>> encoder = keras.Model(children, {"activations": CapsuleLength()(poses), "poses": poses})
        >>> {name: each.shape for name, each in CapsuleClassifier(encoder)(np.zeros((2, 9, 8))).items()}
        {'activations': TensorShape([2, 4]), 'poses': TensorShape([2, 4, 6])}
    """

    def __init__(
        self,
        encoder: keras.Model,
        decoder: keras.Layer | None = None,
        reconstruction_weight: float = 0.0005,
        logits: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        needed = ["activations"] if decoder is None else ["activations", "poses"]
        outputs = getattr(encoder, "output", None)
        if not isinstance(outputs, dict) or not set(needed) <= set(outputs):
            raise ValueError(f"`encoder` must be a functional model that answers with {needed}. Received: {encoder!r}")
        if decoder is not None and not isinstance(decoder, keras.Layer):
            raise ValueError(f"`decoder` must be a Keras layer or None. Received: {decoder!r}")
        if decoder is not None and len(encoder.inputs) > 1:
            names = ", ".join(tensor.name for tensor in encoder.inputs)
            raise ValueError(f"With a decoder the encoder takes one input, the images. Received an encoder of: {names}")
        self.encoder = encoder
        self.decoder = decoder
        self.logits = truth_value("logits", logits)
        self.label_mask = LabelMask()
        self.reconstruction_weight = reconstruction_weight
        self.growing_margins: list[SpreadMargin] = []  # at most one; Keras stops tracking what a list drops
        self.label_mask.built = True  # it has no weights
        if decoder is not None and not decoder.built:
            decoder.build(outputs["poses"].shape)
        self.built = True  # all parts are

    @property
    def reconstruction_weight(self):
        """The factor on the reconstruction's error. If it is changed, `compile` again."""
        return self.reconstruction_loss.weight

    @reconstruction_weight.setter
    def reconstruction_weight(self, weight):
        self.reconstruction_loss = ReconstructionLoss(weight)

    @property
    def image_shape(self):
        """(height, width, channels) of the images; an AttributeError if the encoder takes several inputs."""
        images, *others = keras.tree.flatten(self.encoder.input)
        if others:
            raise AttributeError(f"The model {self.name!r} takes {1 + len(others)} inputs, not images alone.")
        return tuple(images.shape[1:])

    def compile(self, optimizer="rmsprop", loss=None, *args, **kwargs):
        if isinstance(loss, dict):
            raise ValueError(f"`loss` is one loss, of the activations. Received: {loss!r}")
        loss = loss[0] if isinstance(loss, (list, tuple)) and len(loss) == 1 else loss
        margin = loss.margin if isinstance(loss, SpreadLoss) else None
        growing = isinstance(margin, SpreadMargin) and margin not in self.encoder._flatten_layers()
        if growing and margin.built and margin not in self.growing_margins:
            raise ValueError(f"{loss.name!r} counts the steps of another training. Give each network its own loss.")
        self.growing_margins.clear()
        if growing:
            if not margin.built:
                margin.build(self.encoder.output["activations"].shape)
            self.growing_margins.append(margin)
        super().compile(optimizer, loss, *args, **kwargs)

    def compile_from_config(self, config):
        # Keras does the same, but not for models that override `compile`.
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def make_train_function(self, force=False):
        # If a step makes the optimizer's variables, TensorFlow traces it a second time.
        if not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)
        return super().make_train_function(force)

    def count_params(self):
        """The number of the network's parameters, without the step count of a growing margin."""
        return super().count_params() - sum(margin.count_params() for margin in self.growing_margins)

    def call(self, images, training=False):
        outputs = self.encoder(images, training=training)
        for margin in self.growing_margins:
            outputs = {**outputs, "activations": margin(outputs["activations"], training=training)}
        return outputs

    def export(self, filepath, format="tf_saved_model", verbose=None, input_signature=None, **kwargs):
        """As of `keras.Model`; the signature is by default that of the encoder's inputs."""
        inputs = keras.tree.map_structure(lambda x: keras.InputSpec(x.dtype, x.shape), self.encoder.input)
        return super().export(filepath, format, verbose, input_signature or [inputs], **kwargs)

    def reconstruct(self, poses, labels=None, training=False):
        """Images (batch, height, width, channels) in (0, 1), decoded from one class capsule a sample.

        Args:
            poses: (batch, classes, *pose).
            labels: the classes whose capsules are kept, class numbers (batch,) or one-hot rows; None keeps the longest.
            training: whether this is a training step, for the decoder.

        Raises:
            ValueError: the model has no decoder.
        """
        if self.decoder is None:
            raise ValueError(f"The model {self.name!r} has no decoder.")
        return self.decoder(self.label_mask(poses, labels=labels), training=training)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        labels, sample_weight = _of_label(y), _of_label(sample_weight)
        error = 0.0
        if self.decoder is not None and self.reconstruction_weight:  # first: the decoder's layers may add losses, too
            error = self._reconstruction_error(x, y, y_pred["poses"], sample_weight, training)
        return super().compute_loss(x, labels, y_pred["activations"], sample_weight, training) + error

    def _reconstruction_error(self, x, y, poses, sample_weight, training):
        if not isinstance(y, dict) or set(y) == {"label"}:
            decoded, added = self._decoded(poses, _of_label(y), training)
            (images,) = keras.tree.flatten(x)
            return self.reconstruction_loss(images, decoded, sample_weight) + added
        if "parts" not in y:
            raise ValueError(f"The decoder of {self.name!r} can't draw mixed examples. Received labels: {', '.join(y)}")
        count = y["parts"].shape[1]
        labels = ops.reshape(ops.maximum(y["part_labels"], 0), (-1,))
        decoded, added = self._decoded(ops.repeat(poses, count, axis=0), labels, training)
        decoded = ops.reshape(decoded, (-1, count, *decoded.shape[1:]))
        # A part that an image lacks, of the label -1, is not reconstructed.
        there = ops.reshape(y["part_labels"] >= 0, (-1, count, 1, 1, 1))
        decoded = ops.where(there, decoded, ops.cast(y["parts"], decoded.dtype))
        return self.reconstruction_loss(y["parts"], decoded, sample_weight) + added

    def _decoded(self, poses, labels, training):
        """Reconstructions, and the losses that the decoder's layers add where Keras does not collect them: on JAX."""
        if keras.backend.backend() != "jax":
            return self.reconstruct(poses, labels, training), 0.0
        state = [(variable, variable.value) for variable in self.decoder.variables]
        with keras.StatelessScope(state, collect_losses=True) as scope:
            decoded = self.reconstruct(poses, labels, training)
        for variable in self.decoder.non_trainable_variables:
            variable.assign(scope.get_current_value(variable))
        return decoded, sum(scope.losses)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        labels = y["unmixed"] if isinstance(y, dict) and "unmixed" in y else _of_label(y)
        return super().compute_metrics(x, labels, y_pred["activations"], _of_label(sample_weight))

    def get_config(self):
        own = {name: getattr(self, name) for name in ("encoder", "decoder", "reconstruction_weight", "logits")}
        return {**super().get_config(), **keras.saving.serialize_keras_object(own)}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = copy.deepcopy(config)  # Keras empties what it deserializes
        for part in ("encoder", "decoder"):
            config[part] = keras.saving.deserialize_keras_object(config[part], custom_objects=custom_objects)
        return cls(**config)


def _of_label(values):
    """Labels or their sample weights: the entry "label" of a dict, the one entry of a list, or the values."""
    if isinstance(values, (list, tuple)) and len(values) == 1:
        return values[0]
    if isinstance(values, dict) and "label" not in values:
        raise ValueError(f'Labels are an array, or a dict with "label". Received a dict of: {", ".join(values)}')
    return values["label"] if isinstance(values, dict) else values


def class_outputs(outputs: Tensor):
    """The (batch, classes) array in a model's outputs, for capsule networks and for plain classifiers.

    Raises:
        ValueError: several outputs, and no dict in which one is called "activations".
    """
    if isinstance(outputs, dict) and "activations" not in outputs:
        raise ValueError(f'A dict of outputs needs the key "activations". Received: {", ".join(outputs)}')
    if isinstance(outputs, (list, tuple)):
        received = f"Received {len(outputs)} outputs in a {type(outputs).__name__}."
        raise ValueError(f'A model of several outputs must give a dict of them, with the key "activations". {received}')
    return outputs["activations"] if isinstance(outputs, dict) else outputs


def gives_logits(model: keras.Model):
    """Whether the model declares that its outputs are logits; an attribute `logits` that is a layer does not count."""
    return getattr(model, "logits", None) is True


def layer_of_logits(tensor: Tensor):
    """The layer that gives this symbolic tensor, if the tensor holds logits; else None."""
    operation, node, index = tensor._keras_history
    while isinstance(operation, keras.Sequential):
        operation = operation.layers[-1]
    if hasattr(operation, "outputs"):  # a functional model within another
        return layer_of_logits(operation.outputs[index])
    linear = getattr(operation, "activation", None) is keras.activations.linear
    if linear and isinstance(operation, keras.layers.Activation):  # such as the last one under mixed precision
        return layer_of_logits(operation._inbound_nodes[node].input_tensors[0])
    routed = isinstance(operation, RoutingLayer) and operation.answers[index : index + 1] == ("logits",)
    return operation if linear or routed else None


def class_probabilities(model: keras.Model, outputs: Tensor):
    """The class probabilities (batch, classes), in at least float32, in a model's outputs."""
    found = at_least_float32(class_outputs(outputs))
    return ops.softmax(found) if gives_logits(model) else found


def classifier(inputs: Tensor, outputs: dict[str, Tensor], weights: Weights, **options):
    """The `CapsuleClassifier` of symbolic inputs and outputs, with its weights. By default "activations" are lengths.

    Activations are in float32 under every dtype policy: they are the model's answers.
    """
    if "activations" not in outputs:
        outputs = {"activations": CapsuleLength(dtype="float32", name="length")(outputs["poses"]), **outputs}
    encoder = keras.Model(inputs, outputs, name="encoder")
    return load_weights(CapsuleClassifier(encoder, **options), weights)
