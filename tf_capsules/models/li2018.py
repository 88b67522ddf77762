"""Networks of "Neural network encapsulation" (Li et al. 2018): EncapNet, CapNet, and those it compares with."""

from collections.abc import Sequence

import keras

from tf_capsules.argument_types import Shape, Size, Weights
from tf_capsules.layers import CapConv, CapFC, DynamicRouting, EMRouting
from tf_capsules.layers.arguments import CHANNELS_LAST, one_of, pair, positive_int, positive_ints, truth_value
from tf_capsules.layers.encapsulation import COEFFICIENTS, glorot_normal, unit_normal
from tf_capsules.models.backbones import ResNetBackbone, batch_normalized, check_unused, image_input, padded_convolution
from tf_capsules.models.classifier import CapsuleClassifier, classifier
from tf_capsules.models.weights import load_weights

_TYPES = 32

# Standard deviations of the kernels of CapNet's two layers with "scaled" initial values. Found by trials.
_SCALED = {"capsules": 0.3, "class_capsules": 1.0}


def CapNet(
    image_shape: Shape = (32, 32, 3),
    classes: int = 10,
    routing: str = "dynamic",
    dim: int = 16,
    grid: Size | None = None,
    iterations: int = 3,
    initial_logits: str = "zeros",
    normalization: float | str = "min_max",
    competition: str = "children",
    initialization: str = "released",
    votes_memory: str = "auto",
    weights: Weights = None,
    name: str | None = "capnet",
) -> CapsuleClassifier:
    """The baseline: four convolutions and two layers of fully connected capsules, routed.

    Source: Li et al. 2018, section 2.2, appendix A.i and table 1 (a), (b); trainable parameters 9,913,600 with dynamic
    and 9,991,540 with EM routing. All positions share a type's transformations, so by default no votes are made:
    dynamic routing handles 16 parents at a time, EM routing the children of one type at a time.

    Args:
        image_shape, classes, weights, name: as of all networks, see `tf_capsules.models`.
        routing: "dynamic" or "em".
        dim: entries of the poses of both layers.
        grid: (height, width) of the first routed layer, which has 32 types, or a number for both; None: those of the
            primary capsules. The released code has 4 x 4 for 8 x 8 primary capsules.
        iterations: of the routing.
        initial_logits, competition: of dynamic routing, see `DynamicRouting`.
        normalization: of EM routing, see `EMRouting`; 1.0: none.
        initialization: of the weights of dynamic routing. "released": as in the released code: biases normal with a
            deviation of 1, and kernels so small (a thousandth in the first layer) that votes hardly depend on the image
            at the start. "scaled": larger kernels, biases 0.
        votes_memory: "auto": as above; for competition between parents see `DynamicRouting`. "recompute": votes are not
            stored either, but all are routed at once. "store": all votes, as in other libraries.

    Example:
        >>> CapNet((8, 8, 3), grid=(1, 1)).encoder.get_layer("class_capsules").output.shape
        (None, 10, 16)
    """
    one_of("routing", routing, ("dynamic", "em"))
    scaled = one_of("initialization", initialization, ("released", "scaled")) == "scaled"
    unused = dict(normalization=normalization)
    if routing == "em":
        unused = dict(initial_logits=initial_logits, competition=competition, initialization=initialization)
    check_unused(CapNet, f"is no argument of {routing!r} routing", **unused)
    iterations = positive_int("iterations", iterations)
    images = image_input(image_shape, classes)
    features = _stem(images, ((32, 1), (64, 1), (128, 2), (256, 2)))
    poses = _capsules(features, 8)
    rows, columns = poses.shape[1:3] if grid is None else pair("grid", grid)
    dim = positive_int("dim", dim)

    def routed(x, capsules, name):
        # Each layer gets initializers of its own.
        options = dict(iterations=iterations, sharing="positions", votes_memory=votes_memory, name=name)
        # The released code has a grouped 1x1 convolution here; the fans are those of its whole kernel.
        deviation = _SCALED[name] if scaled else (2 / (x[0].shape[-1] + _TYPES * capsules * dim)) ** 0.5
        options |= dict(kernel_initializer=keras.initializers.RandomNormal(stddev=deviation), dtype="float32")
        if routing == "dynamic":
            options |= dict(competition=competition, initial_logits=initial_logits)
            options |= dict(use_vote_bias=True, vote_bias_initializer="zeros" if scaled else unit_normal())
            if votes_memory == "auto" and competition == "children":
                options["parents_per_chunk"] = 16
            return [DynamicRouting(capsules, dim, **options)(*x)]
        options |= dict(normalization=normalization, inverse_temperature=tuple(range(1, iterations + 1)))
        for beta in ("beta_u", "beta_a"):
            options[f"{beta}_initializer"] = keras.initializers.RandomUniform(0.0, 1.0)
        options |= dict(epsilon=1e-12, variance_floor=1e-12, use_bias=True, bias_initializer=unit_normal())
        if votes_memory == "auto":
            options |= dict(votes_memory="recompute", children_per_chunk=1)
        return EMRouting(capsules, dim, **options)(*x)[:2]

    children = [poses] if routing == "dynamic" else [poses, _stem(features, ((_TYPES, 1),))]
    parents = routed(children, rows * columns * _TYPES, "capsules")
    poses, *_ = routed([_on_grid(x, rows, columns) for x in parents], classes, "class_capsules")
    return classifier(images, {"poses": poses}, weights, name=name)


def ShortEncapNet(
    image_shape: Shape = (32, 32, 3),
    classes: int = 10,
    coefficients: str | None = None,
    dim: int = 16,
    weights: Weights = None,
    name: str | None = "short_encapnet",
) -> CapsuleClassifier:
    """Six layers: four convolutions, one capsule convolution with its skip, class capsules.

    Source: Li et al. 2018, table 1 (e), (f); trainable parameters 1,689,856 with the master branch alone, 8,124,224
    with "own" or "crossed" coefficients and 8,133,440 with "both" (the printed size of (f) fits none of them).

    Args:
        image_shape, classes, weights, name: as of all networks, see `tf_capsules.models`.
        coefficients: of the capsule convolution, see `CapConv`.
        dim: entries of the poses of the class capsules and of those below.
    """
    images = image_input(image_shape, classes)
    x = _capsules(_stem(images, ((32, 1), (64, 1), (128, 2), (256, 2))), 8)
    x = CapConv(dim, 3, 2, coefficients, skip=True, name="capsules")(x)
    poses = CapFC(classes, dtype="float32", name="class_capsules")(x)
    return classifier(images, {"poses": poses}, weights, name=name)


def EncapNet(
    image_shape: Shape = (32, 32, 3),
    classes: int = 10,
    layers: Sequence[int] = (3, 3, 3, 3),
    coefficients: str | Sequence[str | None] | None = "both",
    skips: str | Sequence[str] = ("convolution", "stack"),
    types: int = _TYPES,
    exclude_own: bool = False,
    stem: str = "plain",
    weights: Weights = None,
    name: str | None = "encapnet",
) -> CapsuleClassifier:
    """EncapNet: modules of capsule convolutions. Each module doubles the entries of a pose.

    Source: Li et al. 2018, section 3.1, figure 3 and table 2. A module is a 3x3 capsule convolution (Type I), with
    strides 2 from the second module on, and several 1x1 ones (Type II). With 3 of these in each of four modules it has
    18 layers and, with "both" coefficients and both skips, 36,544,064 trainable parameters. The network of 101 layers
    is `layers=(3, 20, 60, 12), coefficients=(None, None, "both", "both"), skips=("convolution", "layer")`; how its 95
    layers are shared out is not published. Layers are "module_m_type_1" and "module_m_type_2_n", m and n from 1.

    Args:
        image_shape, classes, weights, name: as of all networks, see `tf_capsules.models`.
        layers: number of Type II layers of each module.
        coefficients: see `CapConv`, for all modules or for each.
        skips: any of "convolution": around layers of Type I; "stack": around all Type II layers of a module; "layer":
            around each of them. The last two exclude each other.
        types: number of capsule types, also channels of the stem.
        exclude_own: see `CapConv`.
        stem: "plain": a 3x3 convolution; or "strided": the same with strides 2, then 3x3 max pooling with strides 2,
            for images of 128 and more (not published).

    Example:
        >>> network = EncapNet((16, 16, 3), types=4, layers=(1, 1))
        >>> network.encoder.get_layer("module_2_type_2_1").output.shape
        (None, 8, 8, 4, 4)
    """
    layers = positive_ints("layers", layers, "module", (3, 3, 3, 3))
    each = coefficients if isinstance(coefficients, (list, tuple)) else (coefficients,) * len(layers)
    if len(each) != len(layers) or any(one not in COEFFICIENTS for one in each):
        expected = f"one of {COEFFICIENTS}, or one for each of {len(layers)} modules"
        raise ValueError(f"`coefficients` must be {expected}. Received: {coefficients!r}")
    positive_int("types", types)
    skips = skips if isinstance(skips, (list, tuple)) else (skips,)
    if set(skips) - {"convolution", "stack", "layer"} or {"stack", "layer"} <= set(skips):
        raise ValueError(f'`skips` may have "convolution", and "stack" or "layer". Received: {skips!r}')
    one_of("stem", stem, ("plain", "strided"))
    if truth_value("exclude_own", exclude_own) and not any(each):
        raise ValueError("`exclude_own` needs `coefficients`: with None no module has an aide branch.")
    images = image_input(image_shape, classes)
    x = _stem(images, ((types, 1 if stem == "plain" else 2),))
    if stem == "strided":
        x = keras.layers.MaxPooling2D(3, 2, padding="same", **CHANNELS_LAST)(x)
    x = _capsules(x, 1, types)
    for module, (count, coefficient) in enumerate(zip(layers, each, strict=True), start=1):
        options = dict(dim=2**module, coefficients=coefficient, exclude_own=exclude_own and coefficient is not None)
        strides, skip = 1 if module == 1 else 2, "convolution" in skips
        x = CapConv(kernel_size=3, strides=strides, skip=skip, name=f"module_{module}_type_1", **options)(x)
        start = x
        for number in range(1, count + 1):
            around = {"layer": x, "stack": start if number == count else None}
            residual = next((around[what] for what in skips if what in around), None)
            x = CapConv(kernel_size=1, name=f"module_{module}_type_2_{number}", **options)(x, residual=residual)
    poses = CapFC(classes, dtype="float32", name="class_capsules")(x)
    return classifier(images, {"poses": poses}, weights, name=name)


def SameShapeCNN(
    image_shape: Shape = (32, 32, 3), classes: int = 10, weights: Weights = None, name: str | None = "same_shape_cnn"
) -> keras.Model:
    """The convolutional network with CapNet's shapes, 1,575,690 trainable parameters (Li et al. 2018, table 1 (c)).

    Its outputs (batch, classes) are linear; the paper's margin loss is on them.

    Args:
        image_shape, classes, weights, name: as of all networks, see `tf_capsules.models`.
    """
    return _convolutional(image_shape, classes, ((32, 1), (64, 1), (128, 2), (256, 2), (512, 1)), weights, name)


def SameSizeCNN(
    image_shape: Shape = (32, 32, 3), classes: int = 10, weights: Weights = None, name: str | None = "same_size_cnn"
) -> keras.Model:
    """The convolutional network with CapNet's size, 9,624,782 trainable parameters (Li et al. 2018, table 1 (d)).

    Arguments and outputs are as of `SameShapeCNN`.
    """
    return _convolutional(image_shape, classes, ((32, 1), (256, 1), (512, 2), (512, 2), (1300, 1)), weights, name)


def ResNetTwin(
    image_shape: Shape = (32, 32, 3),
    classes: int = 10,
    filters: Sequence[int] = (64, 128, 256, 512),
    blocks: Sequence[int] = (2, 2, 2, 2),
    weights: Weights = None,
    name: str | None = "resnet_twin",
) -> keras.Model:
    """The residual network whose stages have the shapes of EncapNet's modules: 11,156,778 parameters for 10 classes.

    Source: Li et al. 2018, table 2; of basic blocks: the released code lacks it. Stage s, from 1, ends with "stage_s".

    Args:
        image_shape, classes, weights, name: as of all networks, see `tf_capsules.models`.
        filters, blocks: of each stage.

    Example:
        >>> ResNetTwin().get_layer("stage_4").output.shape
        (None, 4, 4, 512)
    """
    positive_int("classes", classes)
    backbone = ResNetBackbone(image_shape, 32, filters, blocks, convolution=_convolution)
    x = keras.layers.GlobalAveragePooling2D(**CHANNELS_LAST)(backbone.output)
    options = dict(kernel_initializer=glorot_normal(), dtype="float32", name="probabilities")
    x = keras.layers.Dense(classes, "softmax", **options)(x)
    # The layers of the backbone are those of this model, too: feedback units link its stages.
    return load_weights(keras.Model(backbone.input, x, name=name), weights)


def _convolutional(image_shape, classes, convolutions, weights, name):
    images = image_input(image_shape, classes)
    x = keras.layers.GlobalAveragePooling2D(**CHANNELS_LAST)(_stem(images, convolutions))
    options = dict(kernel_initializer=glorot_normal(), bias_initializer=unit_normal())
    scores = keras.layers.Dense(classes, dtype="float32", name="scores", **options)(x)
    return load_weights(keras.Model(images, scores, name=name), weights)


def _convolution(x, filters, kernel_size=3, strides=1, use_bias=True):
    drawn = glorot_normal(), unit_normal()
    return padded_convolution(x, filters, kernel_size, strides, use_bias=use_bias, initializers=drawn)


def _stem(x, convolutions):
    """Convolutions of 3x3, (channels, strides) each, normalized, ReLU."""
    for filters, strides in convolutions:
        x = keras.layers.ReLU()(batch_normalized(_convolution(x, filters, 3, strides)))
    return x


def _capsules(x, dim, types=_TYPES):
    """A feature map read as capsules of so many types."""
    return keras.layers.Reshape((*x.shape[1:3], types, dim), name="primary_capsules")(x)


def _on_grid(x, rows, columns):
    """Values of capsules in the order type, row, column, as (batch, rows, columns, types, ...)."""
    axes = range(4, 3 + len(x.shape[1:]))
    x = keras.layers.Reshape((_TYPES, rows, columns, *x.shape[2:]), dtype="float32")(x)
    return keras.layers.Permute((2, 3, 1, *axes), dtype="float32")(x)
