"""Networks of "An algorithm for routing capsules in all domains" (Heinsen 2019)."""

import keras

from tf_capsules.layers import CoordinateChannels, HeinsenRouting, PrimaryCapsules, SequenceCapsules
from tf_capsules.models.classifier import CapsuleClassifier
from tf_capsules.models.weights import load_weights

SMALLEST_IMAGE = 29


def ImageCapsNet(
    image_shape=(96, 96, 2),
    classes=5,
    filters=64,
    types=64,
    parts=64,
    pose=(4, 4),
    iterations=3,
    density="gaussian",
    pointwise_initializer="kaiming",
    weights=None,
    name="image_capsnet",
):
    """The network for smallNORB: six convolutions, primary capsules, two routing layers.

    Source: Heinsen 2019, section 4.1; 271,688 trainable parameters, with the moving statistics of the batch
    normalizations 272,592 (the paper says 273K). Its activations are scores: logits of the class probabilities.

    Args:
        image_shape: (height, width, channels), at least 29 x 29.
        classes: number of classes.
        filters: channels of each convolution.
        types: types of primary capsules.
        parts: capsules between the two routing layers.
        pose: rows and columns of every pose.
        iterations, density: see `HeinsenRouting`.
        pointwise_initializer: of the two 1x1 convolutions: "kaiming" (the paper) or "uniform" (the author's code).
        weights: None; the path of a weights file, or of an .npz of the author's published weights
            (`tf_capsules.models.published`); or the name of a shipped set.
        name: of the model.

    Returns:
        A `CapsuleClassifier`, not compiled.

    Raises:
        ValueError: arguments out of range, an image that is too small, unknown weights.

    Example:
        >>> ImageCapsNet().count_params()
        272592
    """
    if min(image_shape[:2]) < SMALLEST_IMAGE:
        raise ValueError(f"Images must be at least {SMALLEST_IMAGE} x {SMALLEST_IMAGE}. Received: {image_shape}")
    if pointwise_initializer not in ("kaiming", "uniform"):
        raise ValueError(f'`pointwise_initializer` must be "kaiming" or "uniform". Received: {pointwise_initializer!r}')
    scaling = keras.initializers.VarianceScaling
    pointwise = dict(kernel_initializer=scaling(2.0, "fan_in", "untruncated_normal"))
    if pointwise_initializer == "uniform":
        limit = filters**-0.5
        pointwise["kernel_initializer"] = scaling(1 / 3, "fan_in", "uniform")
        pointwise["bias_initializer"] = keras.initializers.RandomUniform(-limit, limit)

    def normalized(x, name):
        return keras.layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name=name)(x)

    images = keras.Input(image_shape, name="images")
    x = CoordinateChannels(name="coordinates")(images)
    for block in range(6):
        x = keras.layers.Conv2D(
            filters,
            3,
            strides=1 + block % 2,
            activation="silu",
            kernel_initializer=scaling(2.0, "fan_in", "untruncated_normal"),
            name=f"convolution_{block + 1}",
        )(normalized(x, f"norm_{block + 1}"))
    scores = keras.layers.Conv2D(types, 1, name="scores", **pointwise)(normalized(x, "norm_scores"))
    poses = PrimaryCapsules(types, pose, activation=None, name="poses", **pointwise)(normalized(x, "norm_poses"))
    # In float32 under every dtype policy: these are the model's answers.
    options = dict(iterations=iterations, density=density, dtype="float32")
    poses, scores, _ = HeinsenRouting(parts, pose[1], sharing="all", name="parts", **options)(poses, scores)
    poses, scores, variances = HeinsenRouting(classes, pose[1], name="classes", **options)(poses, scores)
    encoder = keras.Model(images, {"activations": scores, "poses": poses, "variances": variances}, name="encoder")
    return load_weights(CapsuleClassifier(encoder, logits=True, name=name), weights)


def TextCapsNet(
    layers=37,
    width=1280,
    classes=5,
    dim=64,
    parts=64,
    pose=2,
    iterations=3,
    density="gaussian",
    norm="pre",
    weights=None,
    name="text_capsnet",
):
    """The network for the Stanford Sentiment Treebank: hidden states of a frozen transformer, two routing layers.

    Source: Heinsen 2019, section 4.2; 142,912 parameters for five classes, 141,376 for two, on GPT-2 large.

    Args:
        layers, width: of the hidden states: GPT-2 large has 37 of 1,280.
        classes: number of classes.
        dim: length of a token's capsule.
        parts: capsules between the two routing layers.
        pose: columns of the poses after routing; every pose has one row.
        iterations, density: see `HeinsenRouting`.
        norm: "pre" (the paper) or "post" (the author's later code, 140,480 and 138,944 parameters, and the weights that
            he published): see `SequenceCapsules`.
        weights: None; the path of a weights file, or of an .npz of the author's published weights
            (`tf_capsules.models.published`); or the name of a shipped set.
        name: of the model.

    Returns:
        A `CapsuleClassifier`, not compiled, called with a dict of "embeddings" (batch, tokens, layers, width) and
        "mask" (batch, tokens) in [0, 1]. Its activations are scores: logits of the class probabilities.

    Raises:
        ValueError: arguments out of range, unknown weights.

    Example:
        >>> TextCapsNet().count_params()
        142912
    """
    embeddings = keras.Input((None, layers, width), name="embeddings")
    mask = keras.Input((None,), name="mask")
    poses, scores = SequenceCapsules(dim, norm, name="capsules")(embeddings, mask=mask)
    options = dict(iterations=iterations, density=density, dtype="float32")
    poses, scores, _ = HeinsenRouting(parts, pose, sharing="all", name="parts", **options)(poses, scores)
    poses, scores, variances = HeinsenRouting(classes, pose, name="classes", **options)(poses, scores)
    encoder = keras.Model(
        {"embeddings": embeddings, "mask": mask},
        {"activations": scores, "poses": poses, "variances": variances},
        name="encoder",
    )
    return load_weights(CapsuleClassifier(encoder, logits=True, name=name), weights)
