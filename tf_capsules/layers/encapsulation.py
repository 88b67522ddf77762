"""Capsule convolutions and connections without routing iterations: the layers of EncapNet (Li et al. 2018)."""

import keras
from keras import ops

from tf_capsules.layers.arguments import known_axes, one_of, pair, positive_int
from tf_capsules.layers.connections import children_of, flatten_grid, on_grid
from tf_capsules.routing.squash import squash

COEFFICIENTS = (None, "own", "crossed", "both")


def glorot_normal():
    """Normal of variance `2 / (fan in + fan out)`, not truncated; the fans are those of a kernel's shape."""
    return keras.initializers.VarianceScaling(1.0, "fan_avg", "untruncated_normal")


@keras.saving.register_keras_serializable("tf_capsules")
class CapConv(keras.layers.Layer):
    """Convolutional capsules whose parents sum two predictions, weighted by learned gates in place of routing.

    Source: Li et al. 2018, section 3.2 and figure 1 (c), in the form of the released code. The master branch predicts a
    capsule from the capsules of its own type below, in a window of `kernel_size`: `M = Act(conv(U))`. The aide branch
    does so from all types, in a larger window: `A = Act(conv(U))`. Each co-efficient is a convolution of 3x3 that sees
    a capsule's own type in the branches and gives one number a capsule: with these `m1` and `m2` the parents are
    `Act(m1 M + m2 A + skip)`, or `Act(conv(U) + skip)` with the master branch alone. `Act` is batch normalization, ReLU
    and squash. All convolutions are padded with zeros, `(size - 1) / 2` on every side. Different from the paper: it
    takes all types but its own for the aide branch, which `exclude_own` does; "both" is in no released code, and is
    made here by convolving the poses of both branches, one behind the other.

    Args:
        dim: length of a parent's pose.
        kernel_size: of the master branch, odd; the paper has 3 (its Type I, with strides 2) and 1 (Type II).
        strides: of both branches.
        coefficients: where each branch's co-efficient comes from: "own" (the paper's version 1), the branch itself;
            "crossed" (version 2), the other one; "both" (version 3); or None: no aide branch and no co-efficients.
        skip: whether a convolution of 3x3 of all types (the paper's skip of Type I) is added before the last `Act`.
        aide_kernel_size: of the aide branch, odd; None: `kernel_size + 4`.
        exclude_own: whether the aide branch leaves out the type itself.

    Call arguments:
        poses: (batch, height, width, types, d).
        residual: added before the last `Act`, of the shape of the result; or None. The paper's skip of Type II, which
            starts where the caller says.

    Returns:
        (batch, ceil(height / strides), ceil(width / strides), types, dim), of length below 1.

    Raises:
        ValueError: arguments out of range, poses that are not vectors on a grid, a residual of another shape.

    Example:
        >>> CapConv(dim=4, strides=2, coefficients="both")(np.zeros((2, 9, 8, 32, 2))).shape
        TensorShape([2, 5, 4, 32, 4])
    """

    def __init__(
        self,
        dim,
        kernel_size=3,
        strides=1,
        coefficients=None,
        skip=False,
        aide_kernel_size=None,
        exclude_own=False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.dim = positive_int("dim", dim)
        self.kernel_size = _odd("kernel_size", kernel_size)
        self.strides = pair("strides", strides)
        self.coefficients = one_of("coefficients", coefficients, COEFFICIENTS)
        self.skip = skip
        self.aide_kernel_size = self.kernel_size + 4
        if aide_kernel_size is not None:
            self.aide_kernel_size = _odd("aide_kernel_size", aide_kernel_size)
        self.exclude_own = exclude_own

    def build(self, input_shape):
        if len(input_shape) != 5:
            raise ValueError(
                f"CapConv takes poses (batch, height, width, types, d). Received input shape {tuple(input_shape)}."
            )
        known_axes(self, input_shape, {3: "number of capsule types", 4: "length of a child's pose"})
        self.types, columns = input_shape[3:]
        below = (*input_shape[:3], self.types * columns)
        above = (*self.compute_output_shape(input_shape)[:3], self.types * self.dim)
        channels = above[-1]
        self.master = self._convolution("master", below, channels, self.kernel_size, self.strides, self.types)
        self.normalization = self._normalization("normalization", above)
        self.aide = self.skip_convolution = None
        if self.coefficients is not None:
            one = (self.types, self.dim) if self.exclude_own else None
            self.aide = self._convolution("aide", below, channels, self.aide_kernel_size, self.strides, 1, one)
            self.master_normalization = self._normalization("master_normalization", above)
            self.aide_normalization = self._normalization("aide_normalization", above)
            source = (*above[:3], channels * (2 if self.coefficients == "both" else 1))
            self.master_coefficient, self.aide_coefficient = (
                self._convolution(f"{branch}_coefficient", source, self.types, 3, (1, 1), self.types)
                for branch in ("master", "aide")
            )
        if self.skip:
            self.skip_convolution = self._convolution("skip", below, channels, 3, self.strides, 1)
        super().build(input_shape)

    def _convolution(self, name, shape, channels, size, strides, groups, exclude=None):
        options = dict(strides=strides, groups=groups, padding="valid", data_format="channels_last")
        options |= dict(
            kernel_initializer=glorot_normal(), bias_initializer=keras.initializers.RandomNormal(stddev=1.0)
        )
        if exclude is not None:
            options["exclude"] = exclude
        of = keras.layers.Conv2D if exclude is None else _ConvOfOtherTypes
        layer = of(channels, size, **options, dtype=self.dtype_policy, name=name)
        layer.build((shape[0], None, None, shape[3]))
        return layer

    def _normalization(self, name, shape):
        layer = keras.layers.BatchNormalization(momentum=0.9, epsilon=1e-5, dtype=self.dtype_policy, name=name)
        layer.build((None, None, None, shape[3]))
        return layer

    def _activate(self, normalization, x, training):
        x = self._by_type(ops.relu(normalization(x, training=training)))
        return ops.cast(squash(x), self.compute_dtype)

    def _by_type(self, x):
        return ops.reshape(x, (*ops.shape(x)[:3], self.types, self.dim))

    def call(self, poses, residual=None, training=False):
        below = _flat(poses)
        x = _padded(self.master, below)
        if self.aide is not None:
            master = self._activate(self.master_normalization, x, training)
            aide = self._activate(self.aide_normalization, _padded(self.aide, below), training)
            sources = {"own": (master, aide), "crossed": (aide, master)}.get(self.coefficients)
            if sources is None:
                sources = [ops.concatenate([master, aide], axis=-1)] * 2
            convolutions = (self.master_coefficient, self.aide_coefficient)
            gates = [_padded(gate, _flat(source)) for gate, source in zip(convolutions, sources, strict=True)]
            x = _flat(gates[0][..., None] * master + gates[1][..., None] * aide)
        if self.skip_convolution is not None:
            x = x + _padded(self.skip_convolution, below)
        if residual is not None:
            wanted = self.compute_output_shape(poses.shape)
            given = tuple(residual.shape)
            if len(given) != 5 or any(None not in ab and ab[0] != ab[1] for ab in zip(given, wanted, strict=True)):
                raise ValueError(f"`residual` must have the shape of the result, {wanted}. Received shape {given}.")
            x = x + _flat(ops.cast(residual, x.dtype))
        return self._activate(self.normalization, x, training)

    def compute_output_shape(self, input_shape, **other_shapes):
        grid = [
            None if n is None else -(-n // stride) for n, stride in zip(input_shape[1:3], self.strides, strict=True)
        ]
        return (input_shape[0], *grid, input_shape[3], self.dim)

    def compute_output_spec(self, poses, residual=None, training=False):
        return keras.KerasTensor(self.compute_output_shape(poses.shape), self.compute_dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "dim": self.dim,
            "kernel_size": self.kernel_size,
            "strides": self.strides,
            "coefficients": self.coefficients,
            "skip": self.skip,
            "aide_kernel_size": self.aide_kernel_size,
            "exclude_own": self.exclude_own,
        }


@keras.saving.register_keras_serializable("tf_capsules")
class CapFC(keras.layers.Layer):
    """Fully connected capsules of the children's length, each entry of a pose on its own, without routing.

    Source: Li et al. 2018 ("capFC") in the form of the released code: entry k of parent j's sum is
    `sum_i W_kij x_ik`, and parents are squashed. There is no bias.

    Args:
        capsules: number of parents.

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

    def __init__(self, capsules, **kwargs):
        super().__init__(**kwargs)
        self.capsules = positive_int("capsules", capsules)

    def build(self, input_shape):
        if len(input_shape) not in (3, 5):
            raise ValueError(
                "CapFC takes poses (batch, children, d) or (batch, height, width, types, d). "
                f"Received input shape {tuple(input_shape)}."
            )
        axes = (1, 2, 3) if on_grid(input_shape) else (1,)
        known_axes(self, input_shape, {axis: "number of children" for axis in axes} | {-1: "length of a pose"})
        children = children_of(input_shape)
        limit = children**-0.5
        self.kernel = self.add_weight(
            (input_shape[-1], children, self.capsules),
            keras.initializers.RandomUniform(-limit, limit),
            name="kernel",
            autocast=False,
        )
        own = {axis: input_shape[axis] for axis in (*axes, -1)}
        self.input_spec = keras.layers.InputSpec(ndim=len(input_shape), axes=own)
        super().build(input_shape)

    def call(self, poses):
        # b batch, i child, j parent, k entry of a pose
        x = ops.cast(flatten_grid(poses), self.kernel.dtype)
        return ops.cast(squash(ops.einsum("bik,kij->bjk", x, self.kernel)), self.compute_dtype)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], self.capsules, input_shape[-1])

    def get_config(self):
        return {**super().get_config(), "capsules": self.capsules}


class _ConvOfOtherTypes(keras.layers.Conv2D):
    """A convolution in which a capsule type does not see itself."""

    def __init__(self, *args, exclude, **kwargs):
        super().__init__(*args, **kwargs)
        self.types, self.dim = exclude

    def convolution_op(self, inputs, kernel):
        columns = kernel.shape[2] // self.types
        below, above = (ops.repeat(ops.arange(self.types), size) for size in (columns, self.dim))
        others = ops.cast(below[:, None] != above[None], kernel.dtype)
        return super().convolution_op(inputs, kernel * others)


def _padded(convolution, x):
    rows, columns = (size // 2 for size in convolution.kernel_size)
    return convolution(ops.pad(x, [[0, 0], [rows, rows], [columns, columns], [0, 0]]))


def _flat(poses):
    """(batch, height, width, types, d) as (batch, height, width, types * d)."""
    return ops.reshape(poses, (*ops.shape(poses)[:3], poses.shape[3] * poses.shape[4]))


def _odd(name, size):
    if positive_int(name, size) % 2 == 0:
        raise ValueError(f"`{name}` must be odd. Received: {size!r}")
    return positive_int(name, size)
