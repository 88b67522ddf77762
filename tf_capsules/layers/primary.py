"""Primary capsules: the first poses, read off a feature map."""

import math
from collections.abc import Callable

import keras
from keras import ops

from tf_capsules.argument_types import Constraint, Initializer, Regularizer, Size
from tf_capsules.arguments import positive_number
from tf_capsules.layers.arguments import CHANNELS_LAST, check_feature_map, one_of, pair, positive_int, truth_value
from tf_capsules.layers.configured import Configured
from tf_capsules.layers.folded_convolution import FoldedConv2D
from tf_capsules.layers.pose_normalization import PoseNormalization
from tf_capsules.routing.squash import squash


@keras.saving.register_keras_serializable("tf_capsules")
class PrimaryCapsules(Configured):
    """A convolution whose output channels are read as capsules: `channel = type * size of a pose + entry`.

    Source: Sabour et al. 2017, section 4 (vectors, squash); Hinton et al. 2018 (matrices with activations); Tsai et
    al. 2020 (layer norm); Li et al. 2018 (none).

    Args:
        types: capsule types, that is capsules at each position.
        pose: size of a pose: a number for vectors, (rows, columns) for matrices.
        kernel_size, strides: of the convolution, each a number or (rows, columns).
        padding: "valid" or "same".
        activation: of each pose: "squash", "layer_norm" (over the entries of a pose, with one learned scale and offset
            for all types), None, or any callable or Keras activation name, applied to the entries.
        capsule_activation: None: poses alone; or a Keras activation name or callable of a second convolution, which
            gives each capsule a number: "sigmoid" an activation, "linear" an activation logit.
        scale: factor on the poses' convolution before the bias is added. The released code of Sabour et al. has
            1 / types in effect, and 1 / (types + 1) with leaky routing; the paper has none.
        use_bias: whether the convolutions have a bias.
        kernel_initializer, ..., bias_constraint: initializers, regularizers and constraints of both convolutions.

    Call arguments:
        features: (batch, height, width, channels).

    Returns:
        Poses (batch, new height, new width, types, *pose); with `capsule_activation` also the capsules' activations, or
        their logits, (batch, new height, new width, types).

    Raises:
        ValueError: sizes below 1, an unknown activation, an unknown number of channels, or an image smaller than the
            kernel.

    Example:
        >>> PrimaryCapsules(types=4, pose=8, kernel_size=9, strides=2)(np.zeros((1, 20, 20, 3))).shape
        TensorShape([1, 6, 6, 4, 8])
    """

    older_names = {"scores": "capsule_activation"}

    def __init__(
        self,
        types: int,
        pose: Size,
        kernel_size: Size = 1,
        strides: Size = 1,
        padding: str = "valid",
        activation: str | Callable | None = "squash",
        capsule_activation: str | Callable | None = None,
        scale: float = 1.0,
        use_bias: bool = True,
        kernel_initializer: Initializer = "glorot_uniform",
        bias_initializer: Initializer = "zeros",
        kernel_regularizer: Regularizer = None,
        bias_regularizer: Regularizer = None,
        kernel_constraint: Constraint = None,
        bias_constraint: Constraint = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.types = positive_int("types", types)
        self.pose = tuple(pose) if isinstance(pose, (tuple, list)) else pose
        self.pose_shape = self.pose if isinstance(self.pose, tuple) else (pose,)
        if len(self.pose_shape) not in (1, 2):
            raise ValueError(f"`pose` must be a number or (rows, columns). Received: {pose!r}")
        for size in self.pose_shape:
            positive_int("pose", size)
        self.activation = activation if activation in ("squash", "layer_norm") else keras.activations.get(activation)
        self.kernel_size, self.strides = pair("kernel_size", kernel_size), pair("strides", strides)
        self.padding = one_of("padding", padding.lower() if isinstance(padding, str) else padding, ("valid", "same"))
        self.scale, self.use_bias = float(positive_number("scale", scale)), truth_value("use_bias", use_bias)
        self._set_weight_options(locals())
        options = dict(kernel_size=self.kernel_size, strides=self.strides, padding=padding, use_bias=use_bias)
        options |= {**self._weight_options(), **self._inner, **CHANNELS_LAST}
        # Two layers must not share an initializer: it would draw the same numbers for both.
        self.convolution = FoldedConv2D(self.types * math.prod(self.pose_shape), **options, name="poses")
        self.score_convolution = None  # an older name, which saved weights hold
        if capsule_activation is not None:
            options |= {**self._weight_options(clone=True), "activation": self.capsule_activation}
            self.score_convolution = FoldedConv2D(self.types, **options, name="scores")
        self.normalization = None
        if activation == "layer_norm":
            self.normalization = PoseNormalization(self.pose_shape, **self._inner)

    def build(self, input_shape):
        check_feature_map(self, input_shape, kernel_size=self.kernel_size if self.padding == "valid" else (0, 0))
        self.convolution.build(input_shape)
        if self.score_convolution is not None:
            self.score_convolution.build(input_shape)
        if self.normalization is not None:
            self.normalization.build((None, None, None, self.types, *self.pose_shape))
        super().build(input_shape)

    def call(self, features):
        x = self.convolution(features)
        if self.scale != 1.0:
            bias = ops.cast(self.convolution.bias, x.dtype) if self.convolution.use_bias else 0.0
            x = (x - bias) * self.scale + bias
        shape = ops.shape(x)
        poses = ops.reshape(x, (*shape[:3], self.types, *self.pose_shape))
        if self.activation == "squash":
            poses = ops.cast(squash(poses, tuple(range(-len(self.pose_shape), 0))), self.compute_dtype)
        elif self.normalization is not None:
            poses = self.normalization(poses)
        else:
            poses = self.activation(poses)
        return poses if self.score_convolution is None else (poses, self.score_convolution(features))

    def compute_output_shape(self, input_shape):
        grid = self.convolution.compute_output_shape(input_shape)[:3]
        poses = (*grid, self.types, *self.pose_shape)
        return poses if self.score_convolution is None else (poses, (*grid, self.types))
