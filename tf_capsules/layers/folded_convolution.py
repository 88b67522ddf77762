"""A strided convolution as one of stride 1, which CPUs compute faster in bfloat16."""

import math

import keras
from keras import ops

from tf_capsules.lazy import tf


class FoldedConv2D(keras.layers.Conv2D):
    """Keras's convolution, faster in bfloat16 on CPUs where a large kernel over many channels has strides.

    oneDNN, TensorFlow's library on CPUs, has fast kernels in bfloat16 for stride 1 alone (measured on a CPU with AMX).
    Weights, arguments and, but for rounding, results are Keras's. Keras's own computation runs for stride 1, padding
    "same", groups, dilation, maps of unknown size or with fewer than 64 channels, and where zeros would make the kernel
    more than a quarter larger: 9 x 9 with stride 2 becomes 10 x 10, but 3 x 3 would become 4 x 4. It also runs in other
    dtypes, on other backends, and where TensorFlow sees other devices than CPUs.
    """

    def convolution_op(self, inputs, kernel):
        if self._is_folded(inputs):
            return folded_convolution(inputs, ops.convert_to_tensor(kernel, inputs.dtype), self.strides)
        return super().convolution_op(inputs, kernel)

    def _is_folded(self, inputs):
        sides = zip(self.kernel_size, self.strides, strict=True)
        filled = math.prod(-(-length // stride) * stride for length, stride in sides)
        return (
            keras.backend.backend() == "tensorflow"
            and keras.backend.standardize_dtype(inputs.dtype) == "bfloat16"
            and max(self.strides) > 1
            and filled <= 1.25 * math.prod(self.kernel_size)
            and (self.padding, self.data_format) == ("valid", "channels_last")
            and (self.groups, max(self.dilation_rate)) == (1, 1)
            and None not in inputs.shape[1:]
            and inputs.shape[-1] >= 64
            and all(device.device_type == "CPU" for device in tf.config.list_logical_devices())
        )


def folded_convolution(x, kernel, strides):
    """The convolution of x (batch, rows, columns, channels) with a kernel (rows, columns, channels, filters), "valid".

    Pixels a stride apart meet the same weights. So each block of pixels, as large as the strides, becomes one pixel
    with more channels. The kernel is filled up with zeros and folded likewise.
    """
    x_padding, kernel_padding, sizes = [], [], []
    for size, length, stride in zip(x.shape[1:3], kernel.shape[:2], strides, strict=True):
        blocks = -(-length // stride)
        sizes.append(((size - length) // stride + blocks) * stride)  # what the kernel sees of x, filled up
        x_padding.append((0, max(sizes[-1] - size, 0)))
        kernel_padding.append((0, blocks * stride - length))
    x = _folded(ops.pad(x, [(0, 0), *x_padding, (0, 0)])[:, : sizes[0], : sizes[1]], strides)
    kernel = ops.moveaxis(ops.pad(kernel, [*kernel_padding, (0, 0), (0, 0)]), -1, 0)
    return _convolution(x, ops.moveaxis(_folded(kernel, strides), 0, -1))


def _folded(x, strides):
    rows, columns = x.shape[1] // strides[0], x.shape[2] // strides[1]
    x = ops.reshape(x, (-1, rows, strides[0], columns, strides[1], x.shape[3]))
    return ops.reshape(ops.transpose(x, (0, 1, 3, 2, 4, 5)), (-1, rows, columns, strides[0] * strides[1] * x.shape[5]))


@ops.custom_gradient
def _convolution(x, kernel):
    def gradient(*args, upstream=None):
        upstream = args[0] if upstream is None else upstream
        rows, columns, channels, filters = kernel.shape
        height, width = (size - length + 1 for size, length in zip(x.shape[1:3], kernel.shape[:2], strict=True))
        errors = ops.reshape(upstream, (-1, filters))

        def weight_gradient(i, j):  # a product of matrices: oneDNN's own kernel takes twice as long
            seen = ops.reshape(x[:, i : i + height, j : j + width], (-1, channels))
            return ops.matmul(ops.transpose(seen), errors)

        d_kernel = ops.stack([ops.stack([weight_gradient(i, j) for j in range(columns)]) for i in range(rows)])
        return ops.conv_transpose(upstream, kernel, 1, "valid", data_format="channels_last"), d_kernel

    return ops.conv(x, kernel, 1, "valid", data_format="channels_last"), gradient
