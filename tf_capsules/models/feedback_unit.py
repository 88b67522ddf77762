"""The unit of feedback agreement: a higher feature map is trained to predict a lower one."""

import math
import warnings
from collections.abc import Sequence

import keras
from keras import ops

from tf_capsules.layers.arguments import CHANNELS_LAST, positive_int, positive_ints, truth_value
from tf_capsules.layers.batch_normalization import BatchNormalization
from tf_capsules.layers.encapsulation import flatten_types, glorot_normal, unit_normal
from tf_capsules.layers.inner_states import KeepsInnerStates
from tf_capsules.losses import SinkhornDivergence
from tf_capsules.routing.squash import squash as squashed


@keras.saving.register_keras_serializable("tf_capsules")
class FeedbackAgreement(KeepsInnerStates):
    """The divergence, a scalar, of a lower map from its prediction by a higher map, in the features of a critic.

    Source: Li et al. 2018, appendix B; sizes, strides and initial values are those of their released code. A generator
    predicts the lower map: a 3x3 transposed convolution in groups of capsule channels, batch normalization, ReLU and
    squash. A critic turns either map into features: two 3x3 convolutions, each with batch normalization and ReLU. Both
    learn together with the network. Kernels start Glorot normal, biases normal with a deviation of 1.

    Maps are features or capsules. The channels of features are read as `groups` capsules one after another.

    Args:
        groups: of the generator: the number of capsule types in both maps; 1 for the paper's "vanilla" generator, a
            plain transposed convolution, which goes with `squash=False`.
        squash: whether generated capsules are squashed.
        critic: whether a critic is used; False compares the maps themselves.
        critic_strides: of the critic's convolutions. None: (2, 2), as in the released code; for lower maps up to 4x4
            (2, 1), up to 2x2 (1, 1): larger strides would leave a single number, which has no direction to compare.
        divergence: a Keras loss of features (batch, features): its targets are from the lower map, its predictions from
            the generated one. None: `SinkhornDivergence()`.

    Call arguments:
        lower: (batch, height, width, channels) or (batch, height, width, types, dim).
        higher: likewise, of the same height and width, or half of it, rounded up.
        sample_weight: None, or weights (batch,) for the divergence.
        training: whether batch normalization uses the statistics of the batch.

    Raises:
        ValueError: arguments out of range; maps of other or unknown sizes, or with channels that aren't whole groups; a
            critic of lower maps of 1x1.

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
        if critic_strides is not None:
            critic_strides = positive_ints("critic_strides", critic_strides, "convolution of the critic", (2, 2))
            if len(critic_strides) != 2:
                raise ValueError(f"`critic_strides` must be two numbers. Received: {critic_strides}")
        self.critic_strides = critic_strides
        self.divergence = SinkhornDivergence() if divergence is None else divergence
        if not isinstance(self.divergence, keras.losses.Loss) or self.divergence.reduction in (None, "none"):
            raise ValueError(f"`divergence` must be a Keras loss that gives one number. Received: {divergence!r}")

    def build(self, lower_shape, higher_shape):
        shapes = self._shapes = tuple(lower_shape), tuple(higher_shape)
        received = f"Received a lower one of shape {shapes[0]} and a higher one of shape {shapes[1]}."
        if any(len(shape) not in (4, 5) or None in shape[1:] for shape in shapes):
            maps = "(batch, height, width, channels) or (batch, height, width, types, dim)"
            raise ValueError(f"FeedbackAgreement is between maps {maps} of known size. {received}")
        (*size, channels), (*smaller, higher_channels) = map(_features_of, shapes)
        if any(few not in (many, -(-many // 2)) for few, many in zip(smaller, size, strict=True)):
            raise ValueError(f"The higher map must have the lower one's size, or half of it, rounded up. {received}")
        if channels % self.groups or higher_channels % self.groups:
            groups = f"`groups`, which is {self.groups} (by default 32; 1 for any maps)"
            raise ValueError(f"The channels of both maps must be whole multiples of {groups}. {received}")
        self.size = tuple(size)
        self.strides = tuple(1 if few == many else 2 for few, many in zip(smaller, size, strict=True))
        dims = higher_channels // self.groups, channels // self.groups
        drawn = keras.initializers.RandomNormal(stddev=(2 / (9 * (dims[1] + higher_channels))) ** 0.5)
        self.kernel = self.add_weight((3, 3, self.groups, *dims), drawn, name="kernel")
        self.bias = self.add_weight((channels,), unit_normal(), name="bias")
        self.normalization = _normalization(self.dtype_policy)
        self.normalization.build((None, *self.size, channels))
        self.normalization.trainable = self.trainable
        if self.use_critic:
            first, second = self.critic_strides or _strides_of_critic(shapes, max(size))
            layers = [*self._convolution(max(1, channels // 4), first), *self._convolution(1, second)]
            self.critic = keras.Sequential(layers, name="critic")
            self.critic.build((None, *self.size, channels))
            self.critic.trainable = self.trainable
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
            known = f"{self._shapes[0]} and {self._shapes[1]}; others need a FeedbackAgreement of their own"
            received = f"Received maps of shapes {shapes[0]} and {shapes[1]}."
            raise ValueError(f"The unit {self.name!r} is for maps of shapes {known}. {received}")

    def _convolution(self, filters, strides):
        """Layers: zero padding, a 3x3 convolution, batch normalization, ReLU."""
        options = dict(kernel_initializer=glorot_normal(), bias_initializer=unit_normal())
        return [
            keras.layers.ZeroPadding2D(1, dtype=self.dtype_policy, **CHANNELS_LAST),
            keras.layers.Conv2D(filters, 3, strides, **options, dtype=self.dtype_policy, **CHANNELS_LAST),
            _normalization(self.dtype_policy),
            keras.layers.ReLU(dtype=self.dtype_policy),
        ]

    def generate(self, higher, training=False):
        """The lower map (batch, height, width, channels) that the generator makes of a higher one."""
        height, width = self.size
        higher, kernel, bias = (ops.cast(x, self.compute_dtype) for x in (higher, self.kernel, self.bias))
        # The groups are blocks of a dense kernel: grouped convolutions are slower by far where groups are small.
        # legend: p, q rows and columns of the kernel; g, h groups; i, o dims of higher and lower capsules
        blocks = ops.einsum("pqgio,gh->pqhogi", kernel, ops.eye(self.groups, dtype=self.compute_dtype))
        kernel = ops.reshape(blocks, (3, 3, bias.shape[0], -1))
        x = ops.conv_transpose(_flat(higher), kernel, self.strides, "valid", **CHANNELS_LAST)
        # With stride s, row r of the higher map writes rows s r - 1, s r and s r + 1. Row -1 is cut off.
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
        own = {name: getattr(self, name) for name in ("groups", "squash", "critic_strides")}
        own |= {"critic": self.use_critic, "divergence": keras.saving.serialize_keras_object(self.divergence)}
        return {**super().get_config(), **own}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "divergence": keras.saving.deserialize_keras_object(config["divergence"])})


def _normalization(dtype):
    return BatchNormalization(momentum=0.9, epsilon=1e-5, dtype=dtype)


def _strides_of_critic(shapes, size):
    """The largest strides that leave more than a single number of a lower map of this size."""
    if size == 1:
        sees = "a single number of a lower map of 1x1, which has no direction to compare: give critic=False"
        raise ValueError(f"The critic of FeedbackAgreement sees {sees}. Received a lower map of shape {shapes[0]}.")
    return (1, 1) if size == 2 else (2, 1) if size <= 4 else (2, 2)


def _features_of(shape):
    """Height, width and channels of a map."""
    return (*shape[1:3], math.prod(shape[3:]))


def _flat(x):
    """A map of features or of capsules, as (batch, height, width, channels)."""
    return x if len(x.shape) == 4 else flatten_types(x)
