"""What capsule layers have in common that are routed: parents, and a kernel of transformations."""

import keras

from tf_capsules.hints import Initializer
from tf_capsules.layers.arguments import positive_int


class RoutedCapsules(keras.layers.Layer):
    """So many parents of so many columns, and the kernel that votes are made with.

    Without `kernel_initializer` it is a truncated normal of the spread that a layer names, or the layer's own affair.
    """

    default_kernel_stddev: float | None = None

    def __init__(
        self,
        capsules: int,
        dim: int,
        kernel_initializer: Initializer = None,
        kernel_regularizer: Initializer = None,
        **kwargs,
    ):
        if kernel_initializer is None and self.default_kernel_stddev is not None:
            kernel_initializer = keras.initializers.TruncatedNormal(stddev=self.default_kernel_stddev)
        super().__init__(**kwargs)
        self.capsules = positive_int("capsules", capsules)
        self.dim = positive_int("dim", dim)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.supports_masking = True

    def _add_kernel(self, groups, poses_shape, initializer=None):
        """Kernel (*groups, capsules, columns, dim), drawn by the layer's own initializer unless another is given."""
        self.kernel = self.add_weight(
            (*groups, self.capsules, poses_shape[-1], self.dim),
            self.kernel_initializer if initializer is None else initializer,
            regularizer=self.kernel_regularizer,
            name="kernel",
            autocast=False,
        )

    def compute_mask(self, *args, **kwargs):
        return None

    def get_config(self):
        return {
            **super().get_config(),
            "capsules": self.capsules,
            "dim": self.dim,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "kernel_regularizer": keras.regularizers.serialize(self.kernel_regularizer),
        }
