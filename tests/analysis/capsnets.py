"""Small networks for the tests of the analysis, and helpers that read figures."""

import keras
import numpy as np

from tf_capsules.models.heinsen2019 import ImageCapsNet
from tf_capsules.models.hinton2018 import MatrixCapsNet
from tf_capsules.models.sabour2017 import CapsNet
from tf_capsules.models.tsai2020 import AttentionCapsNet


def small_capsnet(**options):
    """A CapsNet of images (8, 7, 1) with 5 classes."""
    keras.utils.set_random_seed(0)
    sizes = {"filters": 6, "kernel_size": 3, "types": 3, "pose": 4, "primary_kernel_size": 3, "primary_strides": 1}
    return CapsNet((8, 7, 1), **sizes, **{"classes": 5, "dim": 9, "decoder_units": (11,)} | options)


def small_images():
    return np.random.default_rng(0).random((6, 8, 7, 1), dtype="float32")


def strengthen(model, factor):
    """Scales the decoder's last kernel: an untrained decoder then draws something, or (factor < 1) hardly anything."""
    kernel = next(weight for weight in reversed(model.decoder.trainable_variables) if len(weight.shape) == 2)
    kernel.assign(kernel * factor)


def array(tensor):
    return keras.ops.convert_to_numpy(tensor)


def legend(figure):
    """The names in a figure's legend; checks that the legend covers no panel."""
    (one,) = figure.legends
    figure.draw_without_rendering()
    box = one.get_window_extent()
    assert not any(axes.bbox.overlaps(box) for axes in figure.axes)
    return [text.get_text() for text in one.get_texts()]


def lines(axes):
    return {line.get_label(): line.get_xydata().tolist() for line in axes.get_lines()}


def picture(axes):
    return np.asarray(axes.get_images()[0].get_array())


def ticks(axis):
    """The labels of the visible ticks."""
    low, high = sorted(axis.get_view_interval())
    places = axis.get_ticklocs()
    labels = axis.get_major_formatter().format_ticks(places)
    return [label for place, label in zip(places, labels, strict=True) if low <= place <= high]


def routed_network(kind, **options):
    """A network with this kind of routing and 5 classes; options are for attention."""
    keras.utils.set_random_seed(0)
    if kind == "dynamic":
        return small_capsnet(decoder_units=None)
    if kind == "EM":
        return MatrixCapsNet((25, 23, 1), classes=5, filters=6, types=3, capsules=(4, 2), iterations=2)
    if kind == "attention":
        return AttentionCapsNet((24, 22, 3), 5, types=4, convolutions=((3, 3, 2), (2, 3, 1)), **options)
    model = ImageCapsNet((45, 37, 2), classes=5, filters=6, types=4, parts=9, pose=(3, 2))
    for weight in model.weights:  # with betas of zero all scores are equal
        if "beta" in weight.name:
            weight.assign(np.random.default_rng(1).normal(scale=0.1, size=weight.shape))
    return model


def image_of(model):
    return np.random.default_rng(0).random(model.image_shape, dtype="float32")
