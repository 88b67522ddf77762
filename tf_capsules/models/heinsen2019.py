"""Networks of "An algorithm for routing capsules in all domains" (Heinsen 2019)."""

import keras

from tf_capsules.argument_types import Shape, Size, Weights
from tf_capsules.layers import CoordinateChannels, HeinsenRouting, PrimaryCapsules, SequenceCapsules
from tf_capsules.layers.arguments import CHANNELS_LAST, one_of, positive_int
from tf_capsules.models import backbones
from tf_capsules.models.classifier import CapsuleClassifier, classifier
from tf_capsules.models.weights import load_weights


def ImageCapsNet(
    image_shape: Shape = (96, 96, 2),
    classes: int = 5,
    filters: int = 64,
    types: int = 64,
    parts: int = 64,
    pose: Size = (4, 4),
    iterations: int = 3,
    density: str = "gaussian",
    pointwise_initializer: str = "kaiming",
    backbone: keras.Model | None = None,
    weights: Weights = None,
    name: str | None = "image_capsnet",
) -> CapsuleClassifier:
    """The network for smallNORB: six convolutions, primary capsules, two routing layers.

    Source: Heinsen 2019, section 3.1; 271,688 trainable parameters, with the moving statistics of the batch
    normalizations 272,592 (the paper says 273K). Its activations are logits.

    Args:
        image_shape: (height, width, channels), at least 29 x 29 without a backbone.
        classes, name: as of all networks, see `tf_capsules.models`.
        filters: channels of each convolution.
        types: types of primary capsules.
        parts: capsules between the two routing layers.
        pose: of every capsule: (rows, columns), or the number of entries of a vector.
        iterations, density: see `HeinsenRouting`.
        pointwise_initializer: of the two 1x1 convolutions: "kaiming" (the paper) or "uniform" (the author's code).
        backbone: None; or a Keras model from images to a feature map, in place of coordinates and convolutions:
            then leave out `filters`.
        weights: as of all networks; or a PyTorch file (.pt) that the author published, see
            `tf_capsules.models.weights.heinsen2019_published`.

    Example:
        >>> ImageCapsNet().count_params()
        272592
    """
    one_of("pointwise_initializer", pointwise_initializer, ("kaiming", "uniform"))
    images = backbones.image_input(image_shape, classes, 29 if backbone is None else 1)
    scaling = keras.initializers.VarianceScaling
    # Normalization is in float32 under every dtype policy: in bfloat16 it is slower on CPUs.
    if backbone is None:
        x = CoordinateChannels(name="coordinates")(images)
        for block in range(6):
            kernel = scaling(2.0, "fan_in", "untruncated_normal")
            options = dict(kernel_initializer=kernel, name=f"convolution_{block + 1}", **CHANNELS_LAST)
            x = backbones.batch_normalized(x, f"norm_{block + 1}", "float32")
            x = keras.layers.Conv2D(filters, 3, 1 + block % 2, **options)(x)
            x = keras.layers.Activation("silu", dtype="float32", name=f"silu_{block + 1}")(x)
    else:
        backbones.check_unused(ImageCapsNet, filters=filters)
        x = backbones.features_of(images, backbone)

    def pointwise():
        """Options of a pointwise convolution, for one layer each: a shared initializer would draw the same numbers."""
        if pointwise_initializer == "kaiming":
            return {"kernel_initializer": scaling(2.0, "fan_in", "untruncated_normal")}
        bias = backbones.fan_in_uniform(x.shape[-1])
        return {"kernel_initializer": scaling(1 / 3, "fan_in", "uniform"), "bias_initializer": bias}

    logits = backbones.batch_normalized(x, "norm_scores", "float32")
    logits = keras.layers.Conv2D(types, 1, **CHANNELS_LAST, name="scores", **pointwise())(logits)
    poses = backbones.batch_normalized(x, "norm_poses", "float32")
    poses = PrimaryCapsules(types, pose, activation=None, name="poses", **pointwise())(poses)
    columns = backbones.columns_of(pose)
    return _classifier(images, poses, logits, parts, classes, columns, iterations, density, weights, name)


def TextCapsNet(
    layers: int = 37,
    width: int = 1280,
    classes: int = 5,
    dim: int = 64,
    parts: int = 64,
    pose: int = 2,
    iterations: int = 3,
    density: str = "gaussian",
    norm: str = "pre",
    weights: Weights = None,
    name: str | None = "text_capsnet",
) -> CapsuleClassifier:
    """The network for the Stanford Sentiment Treebank: hidden states of a frozen transformer, two routing layers.

    Source: Heinsen 2019, section 4.1; 142,912 parameters for five classes, 141,376 for two, on GPT-2 large. The network
    is called with a dict of "embeddings" (batch, tokens, layers, width) and "mask" (batch, tokens) in [0, 1]. Its
    activations are logits.

    Args:
        layers, width: number and width of the hidden states; GPT-2 large has 37 of width 1,280.
        dim: entries of a token's capsule.
        pose: columns of the poses after routing; every pose has one row.
        classes, parts, iterations, density, weights, name: see `ImageCapsNet`.
        norm: see `SequenceCapsules`: "pre" (the paper) or "post" (the author's later code and published weights;
            140,480 and 138,944 parameters).

    Example:
        >>> TextCapsNet().count_params()
        142912
    """
    inputs, embeddings, mask = _hidden_states(layers, width)
    poses, logits = SequenceCapsules(dim, norm, name="capsules")(embeddings, mask=mask)
    return _classifier(inputs, poses, logits, parts, classes, pose, iterations, density, weights, name)


def SelfAttentionCapsNet(
    layers: int = 37,
    width: int = 1280,
    classes: int = 5,
    dim: int = 64,
    heads: int = 4,
    blocks: int = 2,
    parts: int | None = None,
    pose: int = 16,
    iterations: int = 3,
    density: str = "gaussian",
    dropout: float = 0.0,
    weights: Weights = None,
    name: str | None = "self_attention_capsnet",
) -> CapsuleClassifier:
    """A small text network: self-attention blocks over frozen word embeddings, and a routing layer on top.

    Source: ours, after the suggestion of Heinsen 2019, section 6; blocks of Vaswani et al. 2017, section 3, with the
    normalization before each part and GELU. The network reads only the lowest hidden state of the transformer: the
    frozen embeddings of words and positions. Tokens become capsules as in `TextCapsNet`, but one each, routed to the
    classes directly. The kernel of that routing layer has classes x pose x pose numbers, that of a second layer parts x
    classes x pose x pose. That soon is most of the network: 21 million for 64 parts and poses of 256.

    Mixed examples have masks between 0 and 1: attention treats such a token like any other; routing uses the fraction.

    Args:
        layers, width: number (any) and width of the hidden states; inputs and outputs are those of `TextCapsNet`.
        classes, weights, name: as of all networks, see `tf_capsules.models`.
        iterations, density: see `HeinsenRouting`.
        dim: width of the blocks, a multiple of `heads`.
        heads, blocks: attention heads of each block; number of self-attention blocks.
        parts: None, or the number of capsules of a further layer between tokens and classes, as in `TextCapsNet`.
        pose: columns of every pose, from the tokens to the classes; every pose has one row.
        dropout: rate of dropout on the attention's weights and on the output of each part of a block.

    Example:
        >>> SelfAttentionCapsNet(layers=7, width=384, pose=4).count_params()
        124658
    """
    heads, blocks = positive_int("heads", heads), positive_int("blocks", blocks)
    if positive_int("dim", dim) % heads:
        raise ValueError(f"`dim` must be a multiple of `heads`, {heads}. Received: {dim}")

    def normalized(x, name):
        return keras.layers.LayerNormalization(epsilon=1e-5, name=name)(x)

    inputs, embeddings, mask = _hidden_states(layers, width)
    present = keras.ops.expand_dims(mask > 0, 1)  # the same keys for every query
    x = keras.layers.Dense(dim, name="projection")(embeddings[:, :, 0])
    for block in range(1, blocks + 1):
        # No biases: that of the keys cancels in the softmax, and the normalization's offset replaces the others.
        attend = keras.layers.MultiHeadAttention(
            heads, dim // heads, dropout=dropout, use_bias=False, name=f"attention_{block}"
        )
        y = normalized(x, f"attention_norm_{block}")
        y = attend(y, y, attention_mask=present)
        x = x + keras.layers.Dropout(dropout, name=f"attention_dropout_{block}")(y)
        y = normalized(x, f"feed_forward_norm_{block}")
        y = keras.layers.Dense(4 * dim, activation="gelu", name=f"feed_forward_{block}")(y)
        y = keras.layers.Dense(dim, name=f"feed_forward_output_{block}")(y)
        x = x + keras.layers.Dropout(dropout, name=f"feed_forward_dropout_{block}")(y)
    poses, logits = SequenceCapsules(pose, name="capsules")(keras.ops.expand_dims(x, 2), mask=mask)
    return _classifier(inputs, poses, logits, parts, classes, pose, iterations, density, weights, name)


def MeanPooling(
    layers: int = 37, width: int = 1280, classes: int = 5, weights: Weights = None, name: str | None = "mean_pooling"
) -> keras.Model:
    """The baseline without capsules: hidden states, averaged over the tokens, and one dense layer.

    Args:
        layers, width: see `TextCapsNet`, whose inputs it takes.
        classes, weights, name: as of all networks, see `tf_capsules.models`.
    """
    positive_int("classes", classes)
    inputs, embeddings, mask = _hidden_states(layers, width)
    # A Keras mask is true or false; this one has weights.
    total = keras.ops.einsum("bn,bnlm->blm", mask, embeddings)
    mean = total / keras.ops.maximum(keras.ops.sum(mask, axis=1), 1e-6)[:, None, None]
    mean = keras.layers.Flatten(name="mean")(mean)
    outputs = keras.layers.Dense(classes, "softmax", dtype="float32", name="classes")(mean)
    return load_weights(keras.Model(inputs, outputs, name=name), weights)


def _hidden_states(layers, width):
    """A text network's symbolic inputs: as a dict, and one by one."""
    layers, width = positive_int("layers", layers), positive_int("width", width)
    embeddings = keras.Input((None, layers, width), name="embeddings")
    mask = keras.Input((None,), name="mask")
    return {"embeddings": embeddings, "mask": mask}, embeddings, mask


def _classifier(inputs, poses, logits, parts, classes, dim, iterations, density, weights, name):
    """The network above the primary capsules: routing to parts, unless `parts` is None, and to the classes."""
    positive_int("classes", classes)
    positive_int("pose", dim)
    options = dict(iterations=iterations, density=density, dtype="float32")
    if parts is not None:
        positive_int("parts", parts)
        poses, logits, _ = HeinsenRouting(parts, dim, sharing="all", name="parts", **options)(poses, logits)
    sharing = "all" if parts is None else "none"
    poses, logits, variances = HeinsenRouting(classes, dim, sharing=sharing, name="classes", **options)(poses, logits)
    outputs = {"activations": logits, "poses": poses, "variances": variances}
    return classifier(inputs, outputs, weights, logits=True, name=name)
