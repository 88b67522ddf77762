"""Feedback agreement: higher maps are made to tell lower ones, by units that take part in the training alone."""

import collections
import math
import numbers
import warnings
from collections.abc import Sequence

import keras
from keras import ops, tree

from tf_capsules.layers.arguments import pair, positive_int, truth_value
from tf_capsules.layers.encapsulation import flatten_types, glorot_normal, unit_normal
from tf_capsules.losses import SinkhornDivergence
from tf_capsules.models.backbones import CHANNELS_LAST
from tf_capsules.models.classifier import CapsuleClassifier
from tf_capsules.routing.squash import squash as squashed

# What a model with feedback gives in training: its outputs, and a pair of maps for each link.
TrainingOutputs = collections.namedtuple("TrainingOutputs", ["outputs", "maps"])


@keras.saving.register_keras_serializable("tf_capsules")
class FeedbackAgreement(keras.layers.Layer):
    """How far a lower map is from what a generator makes of a higher map, as a critic sees both.

    Source: Li et al. 2018, appendix B; sizes, strides and initial values are those of their released code. The
    generator is a transposed convolution of 3x3, in groups of capsule channels, normalized, rectified and squashed. The
    critic, two convolutions of 3x3, each normalized and rectified, turns either map into features. Both learn along
    with the network. Weights start Glorot normal, biases normal with a deviation of 1.

    Maps are features (batch, height, width, channels) or capsules (batch, height, width, types, dim). The channels of
    the former are read as capsules, too, `groups` of them one after another.

    Args:
        groups: of the generator, the types of capsules in both maps; 1 for the paper's "vanilla" generator, a plain
            transposed convolution, which goes without `squash`.
        squash: whether generated capsules are squashed.
        critic: False compares the maps themselves.
        critic_strides: of its two convolutions; None for (2, 2), or (2, 1) for lower maps of 4x4 or less and (1, 1)
            of 2x2 or less, of which (2, 2) leaves a single number, and that has no direction to compare. (The released
            code has (2, 2) always.)
        divergence: a Keras loss of features (batch, features), of the lower map as targets and the generated one as
            predictions; None for `SinkhornDivergence()`.

    Call arguments:
        lower: (batch, height, width, channels) or (batch, height, width, types, dim).
        higher: likewise, of the same height and width, or half of it, rounded up.
        sample_weight: None, or weights (batch,) for the divergence.
        training: whether the batch's own statistics normalize it.

    Returns:
        A scalar, the divergence.

    Raises:
        ValueError: arguments out of range; maps of other or unknown sizes, or with channels that aren't whole groups;
            a critic of lower maps of 1x1.

    Example:
        >>> unit = FeedbackAgreement(groups=4)
        >>> divergence = unit(np.ones((2, 7, 7, 8)), np.ones((2, 4, 4, 4, 4)), training=True)
        >>> divergence.shape, unit.count_params()
        (TensorShape([]), 505)
    """

    def __init__(
        self,
        groups: int = 32,
        squash: bool = True,
        critic: bool = True,
        critic_strides: Sequence[int] | None = None,
        divergence: keras.Loss | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.groups = positive_int("groups", groups)
        self.squash, self.use_critic = truth_value("squash", squash), truth_value("critic", critic)
        self.critic_strides = None if critic_strides is None else pair("critic_strides", critic_strides)
        self.divergence = SinkhornDivergence() if divergence is None else divergence
        if not isinstance(self.divergence, keras.losses.Loss) or self.divergence.reduction in (None, "none"):
            raise ValueError(f"`divergence` must be a Keras loss that gives one number. Received: {divergence!r}")

    def build(self, lower_shape, higher_shape):
        shapes = self._shapes = tuple(lower_shape), tuple(higher_shape)
        if any(len(shape) not in (4, 5) or None in shape[1:] for shape in shapes):
            raise ValueError(
                "FeedbackAgreement is between maps (batch, height, width, channels) or (batch, height, width, types, "
                f"dim) of known size. Received a lower one of shape {shapes[0]} and a higher one of shape {shapes[1]}."
            )
        (_, *size, channels), (_, *smaller, higher_channels) = ((*shape[:3], math.prod(shape[3:])) for shape in shapes)
        if any(few not in (many, -(-many // 2)) for few, many in zip(smaller, size, strict=True)):
            raise ValueError(
                "The higher map of FeedbackAgreement must have the size of the lower one or half of it, rounded up. "
                f"Received a lower one of shape {shapes[0]} and a higher one of shape {shapes[1]}."
            )
        if channels % self.groups or higher_channels % self.groups:
            raise ValueError(
                f"The channels of both maps must be whole multiples of `groups`, which is {self.groups} (by default "
                "32; 1 for any maps). "
                f"Received a lower one of shape {shapes[0]} and a higher one of shape {shapes[1]}."
            )
        self.size = tuple(size)
        self.strides = tuple(1 if few == many else 2 for few, many in zip(smaller, size, strict=True))
        dims = higher_channels // self.groups, channels // self.groups
        deviation = (2 / (9 * (dims[1] + higher_channels))) ** 0.5
        self.kernel = self.add_weight(
            (3, 3, self.groups, *dims), keras.initializers.RandomNormal(stddev=deviation), name="kernel"
        )
        self.bias = self.add_weight((channels,), unit_normal(), name="bias")
        self.normalization = _normalization(self.dtype_policy)
        self.normalization.build((None, *self.size, channels))
        if self.use_critic:
            first, second = self.critic_strides or _strides_of_critic(shapes, max(size))
            layers = [*self._convolution(max(1, channels // 4), first), *self._convolution(1, second)]
            self.critic = keras.Sequential(layers, name="critic")
            self.critic.build((None, *self.size, channels))
            if math.prod(self.critic.output_shape[1:]) == 1:
                warnings.warn(
                    f"The critic's strides {self.critic_strides} leave a single number of a lower map of shape "
                    f"{shapes[0]}: it has no direction, and a divergence of directions is always 0.",
                    stacklevel=2,
                )
        super().build(lower_shape)

    def check_maps(self, lower_shape, higher_shape):
        """Raises a ValueError unless these are shapes that the unit was built for."""
        shapes = tuple(lower_shape), tuple(higher_shape)
        if [_features_of(shape) for shape in shapes] != [_features_of(shape) for shape in self._shapes]:
            raise ValueError(
                f"The unit {self.name!r} is for maps of shapes {self._shapes[0]} and {self._shapes[1]}; others need a "
                f"FeedbackAgreement of their own. Received maps of shapes {shapes[0]} and {shapes[1]}."
            )

    def _convolution(self, filters, strides):
        """Layers: zeros on every side, a convolution of 3x3, and what follows it."""
        options = dict(kernel_initializer=glorot_normal(), bias_initializer=unit_normal())
        return [
            keras.layers.ZeroPadding2D(1, dtype=self.dtype_policy, **CHANNELS_LAST),
            keras.layers.Conv2D(filters, 3, strides, **options, dtype=self.dtype_policy, **CHANNELS_LAST),
            _normalization(self.dtype_policy),
            keras.layers.ReLU(dtype=self.dtype_policy),
        ]

    def generate(self, higher, training=False):
        """The lower map (batch, height, width, channels) that the generator makes of a higher one.

        Its groups are blocks of a dense kernel, the rest of which is zeros: grouped convolutions are the slower ones
        by far where groups are small, most of all on the CPU.
        """
        height, width = self.size
        higher, kernel, bias = (ops.cast(x, self.compute_dtype) for x in (higher, self.kernel, self.bias))
        # legend: p, q rows and columns of the kernel; g, h groups; i, o dims of higher and lower capsules
        blocks = ops.einsum("pqgio,gh->pqhogi", kernel, ops.eye(self.groups, dtype=self.compute_dtype))
        kernel = ops.reshape(blocks, (3, 3, bias.shape[0], -1))
        x = ops.conv_transpose(_flat(higher), kernel, self.strides, "valid", **CHANNELS_LAST)
        # Row r of the higher map writes rows s r - 1, s r and s r + 1: the first row of all is outside.
        x = x[:, 1 : 1 + height, 1 : 1 + width] + bias
        x = ops.relu(self.normalization(x, training=training))
        if not self.squash:
            return x
        capsules = ops.reshape(x, (-1, height, width, self.groups, x.shape[-1] // self.groups))
        return ops.cast(ops.reshape(squashed(capsules), (-1, *x.shape[1:])), self.compute_dtype)

    def call(self, lower, higher, sample_weight=None, training=False):
        self.check_maps(lower.shape, higher.shape)
        maps = _flat(lower), self.generate(higher, training)
        if self.use_critic:
            maps = [self.critic(x, training=training) for x in maps]
        features = [ops.reshape(x, (-1, math.prod(x.shape[1:]))) for x in maps]
        return self.divergence(*features, sample_weight)

    def get_config(self):
        return {
            **super().get_config(),
            "groups": self.groups,
            "squash": self.squash,
            "critic": self.use_critic,
            "critic_strides": self.critic_strides,
            "divergence": keras.saving.serialize_keras_object(self.divergence),
        }

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "divergence": keras.saving.deserialize_keras_object(config["divergence"])})


def _normalization(dtype):
    return keras.layers.BatchNormalization(momentum=0.9, epsilon=1e-5, dtype=dtype)


def _strides_of_critic(shapes, size):
    """The largest that leave more than a single number of a lower map of this size."""
    if size == 1:
        raise ValueError(
            "The critic of FeedbackAgreement sees a single number of a lower map of 1x1, which has no direction to "
            f"compare: give critic=False. Received a lower map of shape {shapes[0]}."
        )
    return (1, 1) if size == 2 else (2, 1) if size <= 4 else (2, 2)


def _features_of(shape):
    """Height, width and channels of a map."""
    return (*shape[1:3], math.prod(shape[3:]))


def _flat(x):
    """Features, of capsules too, as (batch, height, width, channels)."""
    return x if len(x.shape) == 4 else flatten_types(x)


def with_feedback(
    model: keras.Model, links: Sequence[Sequence], weight: float = 10.0, name: str | None = None, **options
):
    """A model that trains the given one, with the same weights, along with a feedback agreement unit for each link.

    Source: Li et al. 2018, "feedback agreement": the loss is that of the network and `weight` times the sum of the
    units' divergences; at inference there are no units.

    Args:
        model: a functional or sequential model; or a `CapsuleClassifier`, the links of which are in its encoder.
        links: pairs of the names of a lower and a higher layer, whose outputs are maps (batch, height, width,
            channels) or (batch, height, width, types, dim); or such names and a `FeedbackAgreement` of one's own.
        weight: factor on the divergences.
        name: of the new model; None for that of the given one and "_feedback".
        options: arguments of the `FeedbackAgreement` of each link that comes without.

    Returns:
        A `FeedbackModel`; of a `CapsuleClassifier`, a `FeedbackClassifier`. Not compiled.

    Raises:
        ValueError: a model of another kind, a name that is no layer's, outputs that are no maps or don't fit.

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
    links = _links(links)
    if options and all(len(link) == 3 for link in links):
        raise ValueError(f"Every link has a unit of its own, for which options are not. Received: {options!r}")
    links = [(*link, FeedbackAgreement(**options)) if len(link) == 2 else link for link in links]
    return of(model, links, weight, name=name or f"{getattr(model, 'name', 'model')}_feedback")


@keras.saving.register_keras_serializable("tf_capsules")
class FeedbackModel(keras.Model):
    """A functional model in training with feedback agreement units: see `with_feedback`, which makes it.

    `fit` shows what the divergences add to the loss as "feedback"; `evaluate` and `predict` don't compute it.
    Sample weights, one an example, are weights of the units, too; of several outputs those of the first. What is saved
    goes on training when it is loaded; `model` is the network without units, to be saved or exported for inference.

    Args:
        model: a functional or sequential model.
        links: (lower layer's name, higher layer's name, `FeedbackAgreement`) for each.
        weight: factor on the divergences.

    Call arguments:
        inputs, training: those of the model.

    Returns:
        The model's outputs; with `training`, these as `outputs` and the pairs of maps as `maps` of a named tuple.

    Raises:
        ValueError: see `with_feedback`.
    """

    def __init__(self, model: keras.Model, links: Sequence[Sequence], weight: float = 10.0, **kwargs):
        number = isinstance(weight, numbers.Real) and not isinstance(weight, bool)
        if not (number and 0 <= weight < math.inf):
            raise ValueError(f"`weight` must be a number of at least 0. Received: {weight!r}")
        links = [_checked(link) for link in _links(links)]
        arguments, encoder = self._network(model, links)
        super().__init__(**arguments, **kwargs)
        self.model, self.encoder, self.weight = model, encoder, float(weight)
        if hasattr(model, "output_names"):
            self.output_names = model.output_names  # by which losses and metrics may be given
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
        """Arguments of the class above this one, and the network with the maps among its outputs."""
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
        # Of several outputs or a dict of labels: the weights of the first, to whose entries Keras copies them.
        weights = next(iter(tree.flatten(sample_weight)), None)
        divergence = self.weight * sum(
            unit(*maps, weights, training=True) for unit, maps in zip(self.units, y_pred.maps, strict=True)
        )
        # A replica's share, 1 without a strategy, is in what Keras losses give, but not in what a metric takes.
        share = keras.losses.MeanAbsoluteError()(ops.ones((1, 1)), ops.zeros((1, 1)))
        # Each batch weighs as many examples as it has, as in Keras' "loss".
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

        links = [(lower, higher, load(unit)) for lower, higher, unit in config["links"]]
        return cls(**{**config, "model": load(config["model"]), "links": links})


@keras.saving.register_keras_serializable("tf_capsules")
class FeedbackClassifier(FeedbackModel, CapsuleClassifier):
    """A `CapsuleClassifier` in training with feedback agreement units: see `with_feedback`, which makes it.

    It is compiled and trained as a `CapsuleClassifier` is, and has its outputs; the rest is as in `FeedbackModel`.

    Args:
        model: a `CapsuleClassifier`.
        links, weight: see `FeedbackModel`, of layers of its encoder.
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


def _without_feedback(results):
    return {name: value for name, value in results.items() if name != "feedback"}


def _links(links):
    """The links as tuples, if there are any and none is there twice."""
    pairs = isinstance(links, (list, tuple)) and all(isinstance(link, (list, tuple)) for link in links)
    if not pairs or not links:
        raise ValueError(
            '`links` must be a list of at least one pair of layers\' names, such as [("low", "high")]. '
            f"Received: {links!r}"
        )
    links = [tuple(link) for link in links]
    twice = [names for names, count in collections.Counter(link[:2] for link in links).items() if count > 1]
    if twice:
        raise ValueError(f"A link is there once. Received {twice[0]!r} again.")
    return links


def _checked(link):
    """A link, if it is one."""
    if len(link) != 3 or not isinstance(link[2], FeedbackAgreement):
        raise ValueError(
            "A link must be the names of a lower and a higher layer, and a FeedbackAgreement or nothing. "
            f"Received: {link!r}"
        )
    if link[0] == link[1]:
        raise ValueError(f"A link is between two layers. Received {link[0]!r} with itself.")
    return link


def _refused(model):
    return ValueError(
        "`model` must be a functional or sequential Keras model that is built, or a CapsuleClassifier with such an "
        "encoder: of a subclassed model it isn't known what its layers give, nor whether it trains as others do. "
        f"Received: {model!r}"
    )


def _graph(model, links):
    """Inputs, outputs, and the pair of maps of each link, symbolic, of a functional model's layers called once more."""
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
            raise ValueError(
                "A link is between maps (batch, height, width, channels) or (batch, height, width, types, dim). "
                f"Received: the layer {name!r} with outputs of shape {shape}."
            )
    return graph.input, graph.output, [(given[lower], given[higher]) for lower, higher, _ in links]
