"""Models that are trained with feedback agreement units. The units take part in training only."""

import collections
import copy
from collections.abc import Sequence

import keras
from keras import ops, tree

from tf_capsules.arguments import is_number
from tf_capsules.models.classifier import CapsuleClassifier
from tf_capsules.models.feedback_unit import FeedbackAgreement

# The results of a model with feedback in training: its outputs, and a pair of maps for each link.
TrainingOutputs = collections.namedtuple("TrainingOutputs", ["outputs", "maps"])


def with_feedback(
    model: keras.Model, links: Sequence[Sequence], weight: float = 10.0, name: str | None = None, **options
):
    """A model that trains the given one, whose weights it shares, with a feedback agreement unit for each link.

    Source: Li et al. 2018, "feedback agreement". The loss is the loss of the network plus `weight` times the sum of the
    units' divergences. At inference there are no units.

    Args:
        model: a functional or sequential model; or a `CapsuleClassifier`, with links between layers of its encoder.
        links: pairs of the names of a lower and a higher layer, whose outputs are maps (batch, height, width, channels)
            or (batch, height, width, types, dim); or two such names and your own `FeedbackAgreement`.
        weight: factor on the divergences.
        name: of the new model; None: the name of the given one plus "_feedback".
        options: arguments of `FeedbackAgreement`, for each link that has no unit.

    Returns:
        A `FeedbackModel`, or a `FeedbackClassifier` for a `CapsuleClassifier`. Not compiled.

    Raises:
        ValueError: a model of another kind, a name that no layer has, outputs that are not maps or don't fit, no links
            or the same twice, a negative weight, options although each link has a unit.

    Example:
        >>> images = keras.Input((8, 8, 3))
        >>> x = keras.layers.Conv2D(8, 3, padding="same", name="low")(images)
        >>> x = keras.layers.Conv2D(16, 3, 2, padding="same", name="high")(x)
        >>> network = keras.Model(images, keras.layers.Dense(5)(keras.layers.Flatten()(x)))
        >>> model = with_feedback(network, [("low", "high")], groups=4)
        >>> model.compile("adam", "mse")
        >>> history = model.fit(np.zeros((6, 8, 8, 3)), np.zeros((6, 5)), verbose=0)
        >>> sorted(history.history), model.model is network
        (['feedback', 'loss'], True)
    """
    of = FeedbackClassifier if isinstance(model, CapsuleClassifier) else FeedbackModel
    links = _with_units(links, options)
    return of(model, links, weight, name=name or f"{getattr(model, 'name', 'model')}_feedback")


@keras.saving.register_keras_serializable("tf_capsules")
class FeedbackModel(keras.Model):
    """A functional model in training with feedback agreement units: see `with_feedback`, which makes it.

    `fit` reports what the divergences add to the loss as "feedback"; `evaluate` and `predict` don't compute it. Sample
    weights, one an example, also weight the divergences; with several outputs, those of the first. A saved model can be
    loaded and trained further. `model` is the network without units: save or export it for inference.

    Args:
        model, weight: as of `with_feedback`; the model is functional or sequential.
        links: (lower layer's name, higher layer's name, `FeedbackAgreement`) for each.

    Call arguments:
        inputs, training: those of the model.

    Returns:
        The model's outputs; with `training` a named tuple: `outputs`, and `maps`, a pair of maps for each link.

    Raises:
        ValueError: see `with_feedback`.
    """

    def __init__(self, model: keras.Model, links: Sequence[Sequence], weight: float = 10.0, **kwargs):
        if not is_number(weight, 0):
            raise ValueError(f"`weight` must be a number of at least 0. Received: {weight!r}")
        links = _with_units(links, {})
        arguments, encoder = self._network(model, links)
        super().__init__(**{**arguments, **kwargs})
        self.model, self.encoder, self.weight = model, encoder, float(weight)
        if hasattr(model, "output_names"):
            self.output_names = model.output_names  # losses and metrics may be given by them
        self.links = [(lower, higher) for lower, higher, _ in links]
        self.units = [unit for _, _, unit in links]
        for (lower, higher), unit, maps in zip(self.links, self.units, encoder.output["maps"], strict=True):
            try:
                (unit.check_maps if unit.built else unit.build)(*(x.shape for x in maps))
            except ValueError as error:
                raise ValueError(f"The link from {lower!r} to {higher!r}: {error}") from error
        self.feedback = keras.metrics.Mean(name="feedback")
        self._evaluates = False
        self.built = True  # all parts are

    @staticmethod
    def _network(model, links):
        """Arguments of the parent class's constructor, and the network with the maps among its outputs."""
        inputs, outputs, maps = _graph(model, links)
        return {}, keras.Model(inputs, {"outputs": outputs, "maps": maps}, name="with_maps")

    def _outputs_and_maps(self, inputs, training):
        results = self.encoder(inputs, training=training)
        return results["outputs"], results["maps"]

    def call(self, inputs, training=False):
        results = TrainingOutputs(*self._outputs_and_maps(inputs, training))
        return results if training else results.outputs

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        if not isinstance(y_pred, TrainingOutputs):
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        loss = super().compute_loss(x, y, y_pred.outputs, sample_weight, training)
        # With several outputs or a dict of labels, the weights of the first. Keras copies weights to a dict's entries.
        weights = next(iter(tree.flatten(sample_weight)), None)
        parts = [unit(*maps, weights, training=True) for unit, maps in zip(self.units, y_pred.maps, strict=True)]
        divergence = self.weight * sum(parts)
        # Keras losses contain a replica's share, which is 1 without a strategy. A metric must not contain it.
        share = keras.losses.MeanAbsoluteError()(ops.ones((1, 1)), ops.zeros((1, 1)))
        # Each batch is weighted by its number of examples, as in Keras's "loss".
        self.feedback.update_state(divergence / share, ops.shape(y_pred.maps[0][0])[0])
        return loss + divergence

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        trains = isinstance(y_pred, TrainingOutputs)
        results = super().compute_metrics(x, y, y_pred.outputs if trains else y_pred, sample_weight)
        return results if trains else _without_feedback(results)

    def get_metrics_result(self):
        results = super().get_metrics_result()
        return _without_feedback(results) if self._evaluates else results

    def evaluate(self, *args, **kwargs):
        self._evaluates = True
        try:
            return super().evaluate(*args, **kwargs)
        finally:
            self._evaluates = False

    def export(self, *args, **kwargs):
        """Exports the network, which has no units; arguments as of `keras.Model.export`."""
        return self.model.export(*args, **kwargs)

    def get_config(self):
        serialize = keras.saving.serialize_keras_object
        links = [(*names, serialize(unit)) for names, unit in zip(self.links, self.units, strict=True)]
        return {**keras.Model.get_config(self), "model": serialize(self.model), "links": links, "weight": self.weight}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        def load(part):
            return keras.saving.deserialize_keras_object(part, custom_objects=custom_objects)

        config = copy.deepcopy(config)  # Keras empties what it deserializes
        links = [(lower, higher, load(unit)) for lower, higher, unit in config["links"]]
        return cls(**{**config, "model": load(config["model"]), "links": links})


@keras.saving.register_keras_serializable("tf_capsules")
class FeedbackClassifier(FeedbackModel, CapsuleClassifier):
    """A `CapsuleClassifier` in training with feedback agreement units: see `with_feedback`, which makes it.

    It is compiled and trained like a `CapsuleClassifier`, and has its outputs; the rest is as in `FeedbackModel`.

    Args:
        model, links, weight: see `FeedbackModel`; the model is a `CapsuleClassifier`, the layers are in its encoder.
    """

    @staticmethod
    def _network(model, links):
        if type(model) is not CapsuleClassifier:
            raise _refused(model)
        inputs, outputs, maps = _graph(model.encoder, links)
        encoder = keras.Model(inputs, {**outputs, "maps": maps}, name="with_maps")
        parts = dict(decoder=model.decoder, reconstruction_weight=model.reconstruction_weight, logits=model.logits)
        return {"encoder": encoder, **parts}, encoder

    def _outputs_and_maps(self, inputs, training):
        outputs = dict(CapsuleClassifier.call(self, inputs, training=training))
        return outputs, outputs.pop("maps")

    def get_config(self):
        return {**super().get_config(), "reconstruction_weight": self.reconstruction_weight}


def _without_feedback(results):
    return {name: value for name, value in results.items() if name != "feedback"}


def _with_units(links, options):
    """The links as tuples of two layers' names and a unit. A link without a unit gets one with these options."""
    pairs = isinstance(links, (list, tuple)) and all(isinstance(link, (list, tuple)) for link in links)
    if not pairs or not links:
        expected = 'a list of at least one pair of layers\' names, such as [("low", "high")]'
        raise ValueError(f"`links` must be {expected}. Received: {links!r}")
    if options and all(len(link) == 3 for link in links):
        raise ValueError(f"Options are for links without a unit, and every link has one. Received: {options!r}")
    links = [(*link, FeedbackAgreement(**options)) if len(link) == 2 else tuple(link) for link in links]
    for place, link in enumerate(links):
        if len(link) != 3 or not isinstance(link[2], FeedbackAgreement):
            expected = "the names of a lower and a higher layer, and a FeedbackAgreement or nothing"
            raise ValueError(f"A link must be {expected}. Received: {link!r}")
        if link[0] == link[1]:
            raise ValueError(f"A link is between two layers. Received {link[0]!r} with itself.")
        if link[:2] in [other[:2] for other in links[:place]]:
            raise ValueError(f"Links must differ. Received {link[:2]!r} twice.")
    return links


def _refused(model):
    return ValueError(
        "`model` must be a functional or sequential Keras model that is built, or a CapsuleClassifier with such an "
        "encoder. The layer outputs and the training step of a subclassed model are not known. "
        f"Received: {model!r}"
    )


def _graph(model, links):
    """Calls a functional model's layers once more; returns symbolic inputs, outputs, and each link's pair of maps."""
    if not isinstance(model, keras.Model) or not hasattr(model, "inputs"):
        raise _refused(model)
    if type(model) is keras.Sequential:
        model = keras.Model(model.inputs[0], model.outputs[0])
    if type(model) is not type(keras.Model(model.inputs, model.outputs)):
        raise _refused(model)
    given = {}

    def call(layer, *args, **kwargs):
        outputs = layer(*args, **kwargs)
        given.setdefault(layer.name, outputs)
        return outputs

    graph = keras.models.clone_model(model, clone_function=lambda layer: layer, call_function=call)
    for name in (name for lower, higher, _ in links for name in (lower, higher)):
        if name not in given:
            raise ValueError(f"A link is between layers of the model, {', '.join(given)}. Received: {name!r}")
        shape = tree.map_structure(lambda x: tuple(x.shape), given[name])
        if not keras.backend.is_keras_tensor(given[name]) or len(shape) not in (4, 5):
            maps = "(batch, height, width, channels) or (batch, height, width, types, dim)"
            raise ValueError(f"A link joins maps {maps}. Received: the layer {name!r} with outputs of shape {shape}.")
    return graph.input, graph.output, [(given[lower], given[higher]) for lower, higher, _ in links]


def without_feedback(model: keras.Model):
    """The network itself, for a model with feedback units; any other model is returned unchanged."""
    return model.model if isinstance(model, FeedbackModel) else model
