"""Capsule convolutions and connections without routing iterations: the layers of EncapNet (Li et al. 2018)."""

import keras
from keras import ops

from tf_capsules.argument_types import Constraint, Initializer, Regularizer
from tf_capsules.layers.arguments import CHANNELS_LAST, check_rank, known_axes, one_of, positive_int, truth_value
from tf_capsules.layers.batch_normalization import BatchNormalization
from tf_capsules.layers.configured import Configured
from tf_capsules.layers.connections import alike, count_groups, flatten_grid, input_spec
from tf_capsules.routing.squash import squash

COEFFICIENTS = (None, "own", "crossed", "both")


def glorot_normal():
    """Normal of variance `2 / (fan in + fan out)`, not truncated, with the fans of a kernel's shape."""
    return keras.initializers.VarianceScaling(1.0, "fan_avg", "untruncated_normal")


def unit_normal():
    """Normal of standard deviation 1, the released code's initializer of all convolutions' biases."""
    return keras.initializers.RandomNormal(stddev=1.0)


def flatten_types(poses):
    """Capsules (batch, height, width, types, d) as features (batch, height, width, types * d)."""
    return ops.reshape(poses, (*ops.shape(poses)[:3], poses.shape[3] * poses.shape[4]))


@keras.saving.register_keras_serializable("tf_capsules")
class CapConv(Configured):
    """Convolutional capsules without routing: a parent is one branch, or two weighted by learned coefficients.

    The master branch predicts a capsule from the capsules of its own type, in a window of `kernel_size`:
    `M = Act(conv(U))`. The aide branch predicts it from all types, in a larger window: `A = Act(conv(U))`. Each branch
    has a coefficient, one number a capsule: a 3x3 convolution of the capsules of the same type in one or both branches.
    With the coefficients `m1` and `m2` the parents are `Act(m1 M + m2 A + skip)`; with only the master branch they are
    `Act(conv(U) + skip)`. `Act` is batch normalization, ReLU and squash. All convolutions have zero padding.

    Source: Li et al. 2018, section 3.1 and figure 1 (c), in the form of the released code. In the paper the aide branch
    leaves out the capsule's own type (`exclude_own`). The code lacks "both"; here it convolves the joined branches.

    Args:
        dim: entries of a parent's pose.
        kernel_size: of the master branch, odd; the paper has 3 (its Type I, with strides 2) and 1 (Type II).
        strides: of both branches, for both axes.
        coefficients: input of each branch's coefficient: "own" (the paper's version 1), the branch itself; "crossed"
            (version 2), the other branch; "both" (version 3); or None: no aide branch and no coefficients.
        skip: whether a 3x3 convolution of all types (the paper's skip of Type I) is added before the last `Act`.
        aide_kernel_size: of the aide branch, odd; None: `kernel_size + 4`.
        exclude_own: whether the aide branch leaves out the capsule's own type.
        kernel_initializer: of all convolutions; None: normal of variance `2 / (fan in + fan out)`, not truncated.
        bias_initializer: of all convolutions; None: normal of standard deviation 1.
        kernel_regularizer, ..., bias_constraint: of all convolutions.

    Call arguments:
        poses: (batch, height, width, types, d).
        residual: added before the last `Act`, of the shape of the result; or None. It is the paper's skip of Type II.
        return_coefficients: also return the coefficients of the master and of the aide branch.

    Returns:
        (batch, ceil(height / strides), ceil(width / strides), types, dim), of length below 1; with
        `return_coefficients` also two arrays of that shape, with a last axis of 1.

    Raises:
        ValueError: arguments out of range, arguments of coefficients for a layer without, poses that are not vectors on
            a grid, a residual of another shape.

    Example:
        >>> CapConv(dim=4, strides=2, coefficients="both")(np.zeros((2, 9, 8, 32, 2))).shape
        TensorShape([2, 5, 4, 32, 4])
    """

    def __init__(
        self,
        dim: int,
        kernel_size: int = 3,
        strides: int = 1,
        coefficients: str | None = None,
        skip: bool = False,
        aide_kernel_size: int | None = None,
        exclude_own: bool = False,
        kernel_initializer: Initializer = None,
        bias_initializer: Initializer = None,
        kernel_regularizer: Regularizer = None,
        bias_regularizer: Regularizer = None,
        kernel_constraint: Constraint = None,
        bias_constraint: Constraint = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self._set_weight_options(locals())
        self.dim = positive_int("dim", dim)
        self.kernel_size = _odd("kernel_size", kernel_size)
        self.strides = positive_int("strides", strides)
        self.coefficients = one_of("coefficients", coefficients, COEFFICIENTS)
        self.skip = truth_value("skip", skip)
        self.aide_kernel_size = None if aide_kernel_size is None else _odd("aide_kernel_size", aide_kernel_size)
        self.exclude_own = truth_value("exclude_own", exclude_own)
        branch = {"exclude_own": exclude_own, "aide_kernel_size": aide_kernel_size is not None}
        if coefficients is None and any(branch.values()):
            names = " and ".join(f"`{name}`" for name, given in branch.items() if given)
            raise ValueError(f"{names}: without `coefficients` there is no aide branch.")

    def build(self, input_shape):
        check_rank(self, input_shape, "poses (batch, height, width, types, d)")
        known_axes(self, input_shape, {3: "number of capsule types", 4: "size of a child's pose"})
        self.types, columns = input_shape[3:]
        self.input_spec = keras.layers.InputSpec(ndim=5, axes={3: self.types, 4: columns})
        below, channels = self.types * columns, self.types * self.dim
        self.master = self._grouped("master", columns, self.dim, self.kernel_size, self.strides)
        self.normalization = self._normalization("normalization", channels)
        self.aide = self.skip_convolution = None
        if self.coefficients is not None:
            size = self.aide_kernel_size or self.kernel_size + 4
            self.aide = self._dense("aide", below, channels, size, self.exclude_own)
            self.master_normalization = self._normalization("master_normalization", channels)
            self.aide_normalization = self._normalization("aide_normalization", channels)
            source = self.dim * (2 if self.coefficients == "both" else 1)
            self.master_coefficient = self._grouped("master_coefficient", source, 1, 3, 1)
            self.aide_coefficient = self._grouped("aide_coefficient", source, 1, 3, 1)
        if self.skip:
            self.skip_convolution = self._dense("skip", below, channels, 3)
        super().build(input_shape)

    def _grouped(self, name, columns, dim, size, strides):
        fans = size**2 * (columns + self.types * dim)
        options = self._options(keras.initializers.RandomNormal(stddev=(2 / fans) ** 0.5))
        if self.kernel_initializer is not None:
            options["kernel_initializer"] = _by_types(options["kernel_initializer"])
        layer = _GroupedConvolution(dim, size, strides, options, **self._inner, name=name)
        layer.build((None, None, None, self.types, columns))
        return layer

    def _dense(self, name, below, channels, size, exclude_own=False):
        options = {**self._options(glorot_normal()), **CHANNELS_LAST, **self._inner, "name": name}
        if exclude_own:
            layer = _ConvOfOtherTypes(self.types, channels, size, self.strides, **options)
        else:
            layer = keras.layers.Conv2D(channels, size, self.strides, **options)
        layer.build((None, None, None, below))
        return layer

    def _options(self, kernel_initializer):
        """Arguments for the weights of one convolution, with initializers of its own."""
        options = self._weight_options(clone=True)
        defaults = {"kernel_initializer": kernel_initializer, "bias_initializer": unit_normal()}
        return options | {name: options[name] or value for name, value in defaults.items()}

    def _normalization(self, name, channels):
        layer = BatchNormalization(momentum=0.9, epsilon=1e-5, **self._inner, name=name)
        layer.build((None, None, None, channels))
        return layer

    def _activate(self, normalization, x, training):
        x = ops.relu(normalization(x, training=training))
        x = ops.reshape(x, (*ops.shape(x)[:3], self.types, self.dim))
        return ops.cast(squash(x), self.compute_dtype)

    def call(self, poses, residual=None, training=False, return_coefficients=False):
        self._check_call(poses, residual, return_coefficients)
        below, gates = flatten_types(poses), []
        x = flatten_types(self.master(poses))
        if self.aide is not None:
            master = self._activate(self.master_normalization, x, training)
            aide = self.aide(_padded(below, self.aide.kernel_size[0]))
            aide = self._activate(self.aide_normalization, aide, training)
            sources = (aide, master) if self.coefficients == "crossed" else (master, aide)
            if self.coefficients == "both":
                sources = [ops.concatenate(sources, axis=-1)] * 2
            gates = [self.master_coefficient(sources[0]), self.aide_coefficient(sources[1])]
            x = flatten_types(gates[0] * master + gates[1] * aide)
        if self.skip_convolution is not None:
            x = x + self.skip_convolution(_padded(below, 3))
        if residual is not None:
            x = x + flatten_types(ops.cast(residual, x.dtype))
        parents = self._activate(self.normalization, x, training)
        return (parents, *gates) if return_coefficients else parents

    def _check_call(self, poses, residual, return_coefficients):
        if return_coefficients and self.coefficients is None:
            needed = "a layer with `coefficients`. Received: coefficients=None"
            raise ValueError(f"`return_coefficients=True` needs {needed}")
        wanted, given = self.compute_output_shape(poses.shape), getattr(residual, "shape", None)
        if residual is not None and (given is None or not alike(given, wanted)):
            received = f": {residual!r}" if given is None else f" shape {tuple(given)}."
            raise ValueError(f"`residual` must have the shape of the result, {wanted}. Received{received}")

    def compute_output_shape(self, input_shape, **other_shapes):
        grid = [None if size is None else -(-size // self.strides) for size in input_shape[1:3]]
        return (input_shape[0], *grid, input_shape[3], self.dim)

    def compute_output_spec(self, poses, residual=None, training=False, return_coefficients=False):
        self._check_call(poses, residual, return_coefficients)
        shape = self.compute_output_shape(poses.shape)
        parents = keras.KerasTensor(shape, self.compute_dtype)
        gates = [keras.KerasTensor((*shape[:-1], 1), self.compute_dtype) for _ in range(2)]
        return (parents, *gates) if return_coefficients else parents


@keras.saving.register_keras_serializable("tf_capsules")
class CapFC(Configured):
    """Fully connected capsules without routing: entry k of a parent depends on the children's entries k only.

    Source: Li et al. 2018 ("capFC") in the form of the released code: entry k of parent j's sum is
    `sum_i W_kij x_ik`, and parents are squashed. There is no bias.

    Args:
        capsules: number of parents.
        kernel_initializer: of the kernel (d, children, capsules), whose first axis Keras counts among the fans; None:
            uniform, at most `1 / sqrt(children)` from 0.
        kernel_regularizer, kernel_constraint: of the kernel.

    Call arguments:
        poses: (batch, children, d), or the same on a grid (batch, height, width, types, d).

    Returns:
        (batch, capsules, d), of length below 1.

    Raises:
        ValueError: arguments out of range, poses that are no vectors, an unknown number of children.

    Example:
        >>> CapFC(capsules=10)(np.zeros((2, 4, 4, 32, 16))).shape
        TensorShape([2, 10, 16])
    """

    def __init__(
        self,
        capsules: int,
        kernel_initializer: Initializer = None,
        kernel_regularizer: Regularizer = None,
        kernel_constraint: Constraint = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self._set_weight_options(locals())
        self.capsules = positive_int("capsules", capsules)

    def build(self, input_shape):
        check_rank(self, input_shape, "poses (batch, children, d) or (batch, height, width, types, d)")
        children = count_groups(self, input_shape, "none")
        limit = children**-0.5
        initializer = self.kernel_initializer or keras.initializers.RandomUniform(-limit, limit)
        self.kernel = self._add("kernel", (input_shape[-1], children, self.capsules), initializer, autocast=False)
        self.input_spec = input_spec(input_shape, "none")
        super().build(input_shape)

    def call(self, poses):
        # b batch, i child, j parent, k entry of a pose
        x = ops.cast(flatten_grid(poses), self.kernel.dtype)
        return ops.cast(squash(ops.einsum("bik,kij->bjk", x, self.kernel)), self.compute_dtype)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], self.capsules, input_shape[-1])


class _GroupedConvolution(Configured):
    """A convolution of each capsule type by itself, with zero padding."""

    def __init__(self, dim: int, kernel_size: int, strides: int, weight_options: dict, **kwargs):
        super().__init__(**kwargs)
        self.dim, self.kernel_size, self.strides, self.weight_options = dim, kernel_size, strides, weight_options
        self._set_weight_options(weight_options)

    def build(self, input_shape):
        types, columns = input_shape[3:]
        self.kernel = self._add("kernel", (self.kernel_size, self.kernel_size, types, columns, self.dim))
        self.bias = self._add("bias", (types, self.dim))
        super().build(input_shape)

    def call(self, poses):
        *size, types, columns, dim = self.kernel.shape
        x = _padded(flatten_types(poses), self.kernel_size)
        # On a CPU the gradient of TensorFlow's own grouped convolution is slower by orders of magnitude.
        kernel = ops.reshape(self.kernel, (*size, types * columns, dim))
        x = ops.depthwise_conv(x, kernel, strides=self.strides, padding="valid", **CHANNELS_LAST)
        # Not the shape of x: of no examples TensorFlow's depthwise convolution gives a larger grid.
        batch, *grid = ops.shape(poses)[:3]
        shape = batch, *(-(-places // self.strides) for places in grid), types, columns, dim
        return ops.sum(ops.reshape(x, shape), axis=4) + self.bias


def _by_types(initializer):
    """Makes an initializer draw a kernel (..., types, d, dim) as one from d channels to `types * dim` channels."""

    def draw(shape, dtype=None):
        *size, types, columns, dim = shape
        drawn = ops.reshape(initializer((*size, columns, types * dim), dtype), (*size, columns, types, dim))
        return ops.swapaxes(drawn, -2, -3)

    return draw


class _ConvOfOtherTypes(keras.layers.Conv2D):
    """A convolution in which a capsule type does not see itself."""

    def __init__(self, types: int, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.types = types

    def convolution_op(self, inputs, kernel):
        below, above = (ops.repeat(ops.arange(self.types), size // self.types) for size in kernel.shape[2:])
        others = ops.cast(below[:, None] != above[None], kernel.dtype)
        return super().convolution_op(inputs, kernel * others)


def _padded(x, kernel_size):
    rim = [kernel_size // 2] * 2
    return ops.pad(x, [[0, 0], rim, rim, [0, 0]]) if kernel_size > 1 else x


def _odd(name, size):
    size = positive_int(name, size)
    if size % 2 == 0:
        raise ValueError(f"`{name}` must be odd. Received: {size!r}")
    return size
