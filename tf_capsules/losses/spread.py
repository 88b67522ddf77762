"""Spread loss on class activations, and its margin that grows with the training."""

import keras
from keras import ops

from tf_capsules.argument_types import Dtype
from tf_capsules.arguments import is_positive
from tf_capsules.layers.arguments import one_of, positive_int
from tf_capsules.layers.labels import class_rows
from tf_capsules.losses.base import Loss


@keras.saving.register_keras_serializable("tf_capsules")
class SpreadMargin(keras.layers.Layer):
    """The margin of a `SpreadLoss`, which grows with the training steps.

    Source: Hinton et al. 2018, section 4.1, "linear" (0.2 to 0.9); "sigmoid": the authors' answers to readers,
    `0.2 + 0.79 sigmoid(min(10, step / scale - 4))`, with a scale of 50,000 steps; "ramp": the released code of Li et
    al. 2018: linear between the first and the last thirtieth of the training, constant within them.

    The step count is a weight of this layer, to which each call with `training` adds 1. It is saved and loaded with the
    network, so resumed training goes on from it. A `CapsuleClassifier` takes the layer over from the loss that it is
    compiled with. Any other network must contain the layer. After `load_model`, compile such a network with a new
    `SpreadLoss` of its margin layer: the loaded loss has lost the link.

    Args:
        schedule: "sigmoid", "linear" or "ramp".
        scale: "sigmoid" is at its midpoint after `4 * scale` steps, the other schedules end after `scale` steps.

    Call arguments:
        activations: of any shape, returned as they are.
        training: whether this is a training step.

    Raises:
        ValueError: an unknown schedule, or a scale below 1.

    Example:
        >>> margin = SpreadMargin()
        >>> [round(float(margin.at(step)), 4) for step in (0, 200_000)]
        [0.2142, 0.595]
        >>> from tf_capsules.models.hinton2018 import MatrixCapsNet
        >>> model = MatrixCapsNet()
        >>> model.compile("adam", loss=SpreadLoss(margin))
    """

    def __init__(self, schedule: str = "sigmoid", scale: int = 50_000, **kwargs):
        super().__init__(**{"autocast": False, **kwargs})  # activations stay in float32
        self.schedule = one_of("schedule", schedule, ("sigmoid", "linear", "ramp"))
        self.scale = positive_int("scale", scale)
        self.supports_masking = True

    @classmethod
    def over(cls, steps, schedule="sigmoid"):
        """A margin whose schedule ends after so many steps; "sigmoid" is then at 0.976, and at 0.595 halfway.

        With the authors' scale the margin reaches 0.976 only after 400,000 steps.
        """
        steps = positive_int("steps", steps)
        return cls(schedule, scale=-(-steps // 8) if schedule == "sigmoid" else steps)

    def build(self, input_shape):
        options = dict(dtype="int", trainable=False, aggregation="only_first_replica")
        # As Keras counts: XLA on a GPU can't reach TensorFlow's variables of int32, which are always the host's.
        self.steps = self.add_weight((), "zeros", name="steps", **options)
        super().build(input_shape)

    def call(self, activations, training=False):
        if training:
            self.steps.assign_add(1)
        return activations

    def at(self, step):
        """The margin at a training step."""
        share = ops.cast(step, "float32") / self.scale
        if self.schedule == "ramp":
            share = ops.maximum((30 * share - 1) / 28, 0.0)
        if self.schedule != "sigmoid":
            return 0.2 + 0.7 * ops.minimum(share, 1.0)
        return 0.2 + 0.79 * ops.sigmoid(ops.minimum(share - 4.0, 10.0))

    def compute_output_shape(self, input_shape):
        return input_shape

    def load_own_variables(self, store):
        # A copied loss has a margin that is not built: the count stays with the network. Weights without a count come
        # from training with another loss: it starts at 0.
        if self.built and store.keys():
            super().load_own_variables(store)
        elif self.built:
            self.steps.assign(0)

    def get_config(self):
        return {**super().get_config(), "schedule": self.schedule, "scale": self.scale}


@keras.saving.register_keras_serializable("tf_capsules")
class SpreadLoss(Loss):
    """The activation of the right class should exceed that of each other class by a margin.

    Source: Hinton et al. 2018, eq. 3, for each sample `sum_(i != t) max(0, margin - (a_t - a_i))^2`, t the right class.

    Args:
        margin: a number; or a `SpreadMargin`, which grows.
        name, reduction, dtype: of `keras.losses.Loss`; computed in at least float32.

    Call arguments:
        y_true: class numbers (batch,) or (batch, 1), or one-hot rows (batch, classes). A row that does not name exactly
            one class makes the loss NaN.
        y_pred: class activations (batch, classes) in (0, 1), without softmax.

    Raises:
        ValueError: a margin that is not a number above 0, or a margin layer outside the network; labels or predictions
            of other shapes.

    Example:
        >>> round(float(SpreadLoss(0.5)(np.array([1]), np.array([[0.2, 0.4, 0.6]]))), 4)
        0.58
    """

    def __init__(
        self,
        margin: float | SpreadMargin = 0.9,
        name: str | None = "spread_loss",
        reduction: str | None = "sum_over_batch_size",
        dtype: Dtype = None,
    ):
        super().__init__(name, reduction, dtype)
        if isinstance(margin, dict):
            margin = SpreadMargin.from_config(margin)
        if not isinstance(margin, SpreadMargin) and not is_positive(margin):
            raise ValueError(f"`margin` must be a number above 0 or a SpreadMargin. Received: {margin!r}")
        self.margin = margin

    def call(self, y_true, y_pred):
        targets, y_pred = class_rows("SpreadLoss takes activations", y_true, y_pred)
        margin = self.margin
        if isinstance(margin, SpreadMargin):
            if not margin.built:
                raise ValueError(
                    f"The margin {margin.name!r} of SpreadLoss is not a layer of the network, so it would not grow. "
                    "Compile with SpreadLoss of a SpreadMargin that is a layer of it, also after `load_model`."
                )
            margin = ops.cast(margin.at(margin.steps), y_pred.dtype)
        one = ops.logical_and(ops.any(targets == 1, axis=-1), ops.sum(targets, axis=-1) == 1)
        targets = ops.where(one[:, None], targets, float("nan"))
        right = ops.sum(targets * y_pred, axis=-1, keepdims=True)
        return ops.sum((1 - targets) * ops.square(ops.relu(margin - (right - y_pred))), axis=-1)

    def get_config(self):
        scheduled = isinstance(self.margin, SpreadMargin)
        return {**super().get_config(), "margin": self.margin.get_config() if scheduled else self.margin}
