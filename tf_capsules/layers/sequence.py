"""Primary capsules of a sequence: poses and activation logits from the hidden states of a transformer's layers."""

import keras
from keras import ops

from tf_capsules.argument_types import Constraint, Initializer, Regularizer
from tf_capsules.layers.arguments import check_rank, known_axes, one_of, positive_int
from tf_capsules.layers.configured import Configured
from tf_capsules.layers.connections import alike
from tf_capsules.routing.net_benefit import mask_logits


@keras.saving.register_keras_serializable("tf_capsules")
class SequenceCapsules(Configured):
    """One capsule for each token and each hidden layer: depth embedding, layer normalization, dense, Swish.

    Capsules are ordered by token, then by layer.

    Source: Heinsen 2019, section 4.1.

    Args:
        dim: entries of a capsule's pose.
        norm: place of the layer normalization: "pre", before the dense layer (the paper), or "post", after Swish (the
            author's later code and published weights).
        kernel_initializer: of the dense layer; None: Kaiming's, normal.
        bias_initializer, kernel_regularizer, ..., bias_constraint: of the dense layer.

    Call arguments:
        embeddings: (batch, tokens, layers, width), finite even where masked.
        mask: (batch, tokens), the weight of each token, in [0, 1]; None: 1.

    Returns:
        Poses (batch, tokens * layers, 1, dim), and activation logits (batch, tokens * layers): the logits of the mask,
        plus infinity for 1 and minus infinity for 0.

    Raises:
        ValueError: `dim` below 1, another `norm`, embeddings of another rank, an unknown number of layers or width, a
            mask of another shape.

    Example:
        >>> poses, logits = SequenceCapsules(64)(np.zeros((2, 11, 7, 384)))
        >>> poses.shape, logits.shape
        (TensorShape([2, 77, 1, 64]), TensorShape([2, 77]))
    """

    def __init__(
        self,
        dim: int = 64,
        norm: str = "pre",
        kernel_initializer: Initializer = None,
        bias_initializer: Initializer = "zeros",
        kernel_regularizer: Regularizer = None,
        bias_regularizer: Regularizer = None,
        kernel_constraint: Constraint = None,
        bias_constraint: Constraint = None,
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)  # half precision would round the mask
        self.dim = positive_int("dim", dim)
        self.norm = one_of("norm", norm, ("pre", "post"))
        kaiming = keras.initializers.VarianceScaling(2.0, "fan_in", "untruncated_normal")
        self._set_weight_options(locals(), kernel=kaiming)
        self.dense = keras.layers.Dense(self.dim, **self._weight_options(), **self._inner, name="dense")
        self.normalization = keras.layers.LayerNormalization(epsilon=1e-5, **self._inner, name="norm")

    def build(self, embeddings_shape, mask_shape=None):
        check_rank(self, embeddings_shape, "embeddings (batch, tokens, layers, width)")
        known_axes(self, embeddings_shape, {2: "number of layers", 3: "width of the embeddings"})
        self.input_spec = keras.layers.InputSpec(ndim=4, axes=dict(enumerate(embeddings_shape[2:], 2)))
        self.depth = self.add_weight(embeddings_shape[2:], "zeros", name="depth")
        self.dense.build(embeddings_shape)
        hidden = (*embeddings_shape[:-1], self.dim)
        self.normalization.build(embeddings_shape if self.norm == "pre" else hidden)
        super().build(embeddings_shape)

    def call(self, embeddings, mask=None):
        shape = ops.shape(embeddings)
        mask = ops.ones(shape[:2], "float32") if mask is None else ops.convert_to_tensor(mask)
        self.compute_output_shape(embeddings.shape, mask.shape)
        x = ops.cast(embeddings, self.compute_dtype) + ops.cast(self.depth, self.compute_dtype)
        # Three axes: TensorFlow multiplies (batch, 1, layers, width) wrongly in bfloat16 on processors with AMX.
        x = ops.reshape(x, (shape[0], shape[1] * shape[2], shape[3]))
        x = keras.activations.silu(self.dense(self.normalization(x) if self.norm == "pre" else x))
        x = x if self.norm == "pre" else self.normalization(x)
        logits = ops.repeat(mask_logits(mask), embeddings.shape[2], axis=1)
        return ops.expand_dims(x, 2), ops.cast(logits, self.compute_dtype)

    def compute_mask(self, *args, **kwargs):
        return None

    def compute_output_spec(self, embeddings, mask=None):
        shapes = self.compute_output_shape(embeddings.shape, None if mask is None else mask.shape)
        return tuple(keras.KerasTensor(shape, self.compute_dtype) for shape in shapes)

    def compute_output_shape(self, embeddings_shape, mask_shape=None):
        batch, tokens, layers = embeddings_shape[:3]
        if mask_shape is not None and not alike(mask_shape, (batch, tokens)):
            wanted = f"(batch, tokens), here {(batch, tokens)}"
            raise ValueError(f"`mask` must be {wanted}. Received shape {tuple(mask_shape)}.")
        capsules = None if tokens is None else tokens * layers
        return (batch, capsules, 1, self.dim), (batch, capsules)
