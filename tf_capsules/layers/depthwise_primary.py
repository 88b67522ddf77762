"""Primary capsules by a depthwise convolution."""

import keras
from keras import ops

from tf_capsules.argument_types import Constraint, Initializer, Regularizer, Size
from tf_capsules.layers.arguments import CHANNELS_LAST, check_feature_map, pair, positive_int, truth_value
from tf_capsules.layers.configured import Configured
from tf_capsules.routing.squash import squash_exponential
from tf_capsules.routing.windowed.windows import grid_of_parents


@keras.saving.register_keras_serializable("tf_capsules")
class DepthwisePrimaryCapsules(Configured):
    """Primary capsules by a depthwise convolution: one filter for each channel, then read as capsules.

    Source: Mazzia et al. 2021, section 3.1, where the filter is as large as the feature map. The result then has one
    position, and a product and a sum replace the convolution: they are faster on a CPU.

    Args:
        pose: entries of a pose; it divides the number of channels. Capsule c holds `pose` channels, from `c * pose` on.
        kernel_size: of the convolution, a number or (rows, columns); None for the whole feature map.
        strides: of the convolution, one number for both axes.
        use_bias: whether the convolution has a bias.
        kernel_initializer, ..., bias_constraint: initializers, regularizers and constraints of the convolution.

    Call arguments:
        features: (batch, height, width, channels).

    Returns:
        (batch, new height, new width, channels // pose, pose), of length below 1.

    Raises:
        ValueError: sizes below 1, unknown sizes, channels that `pose` does not divide, a map smaller than the kernel.

    Example:
        >>> DepthwisePrimaryCapsules(pose=8)(np.zeros((1, 9, 9, 128))).shape
        TensorShape([1, 1, 1, 16, 8])
    """

    def __init__(
        self,
        pose: int,
        kernel_size: Size | None = None,
        strides: int = 1,
        use_bias: bool = True,
        kernel_initializer: Initializer = "he_normal",
        bias_initializer: Initializer = "zeros",
        kernel_regularizer: Regularizer = None,
        bias_regularizer: Regularizer = None,
        kernel_constraint: Constraint = None,
        bias_constraint: Constraint = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.pose = positive_int("pose", pose)
        self.kernel_size = None if kernel_size is None else pair("kernel_size", kernel_size)
        self.strides = positive_int("strides", strides)
        self.use_bias = truth_value("use_bias", use_bias)
        self._set_weight_options(locals())

    def build(self, input_shape):
        check_feature_map(self, input_shape, ("height", "width", "number of channels"), self.kernel_size or (0, 0))
        *grid, channels = input_shape[1:]
        if channels % self.pose:
            raise ValueError(f"`pose` {self.pose} must divide the {channels} channels of input shape {input_shape}.")
        self.input_spec = keras.layers.InputSpec(shape=(None, *input_shape[1:]))
        # Laid out like a grouped convolution's kernel, so that initializers count one channel in the fan-in.
        self.kernel = self._add("kernel", (*(self.kernel_size or grid), 1, channels))
        self.bias = self._add("bias", (channels,)) if self.use_bias else None
        super().build(input_shape)

    def call(self, features):
        rows, columns, _, channels = self.kernel.shape
        grid = self.compute_output_shape(features.shape)[1:3]
        if grid == (1, 1):
            x = ops.sum(ops.multiply(features[:, :rows, :columns], self.kernel[:, :, 0]), axis=(1, 2))
        else:
            kernel = ops.transpose(self.kernel, (0, 1, 3, 2))
            x = ops.depthwise_conv(features, kernel, self.strides, "valid", **CHANNELS_LAST)
        if self.bias is not None:
            x = x + self.bias
        poses = ops.reshape(x, (-1, *grid, channels // self.pose, self.pose))
        return ops.cast(squash_exponential(poses), self.compute_dtype)

    def compute_output_shape(self, input_shape):
        check_feature_map(self, input_shape, kernel_size=self.kernel_size or (0, 0))
        batch, *grid, channels = input_shape
        grid = grid_of_parents(grid, self.kernel_size or grid, (self.strides, self.strides))
        return (batch, *grid, channels // self.pose, self.pose)
