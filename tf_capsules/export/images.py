"""Turns the images that a client sends into the model's answer."""

import keras
import numpy as np

from tf_capsules.analysis.inference import network_of, shape_of_images
from tf_capsules.datasets import augment
from tf_capsules.datasets.encoded import decode_image
from tf_capsules.export import answers
from tf_capsules.layers.arguments import image_sizes
from tf_capsules.lazy import tf, tnp


def served_shape(model, preprocess, image_shape):
    """Checks what can be checked before work starts; returns (height, width, channels) of the served images."""
    answers.need_tensorflow()
    if answers.hidden_states(model) is not None:
        raise ValueError(f"The model takes hidden states of texts, not images: {model!r}")
    for taken in keras.tree.flatten(getattr(network_of(model), "inputs", None) or []):
        if "float" not in taken.dtype:
            unfit = f"Exports give a model float32 images in [0, 1]; {model.name} takes {taken.dtype}."
            raise ValueError(f"{unfit} Make a model of its layers whose input is float32.")
    steps = augment.check(preprocess)
    wanted = shape_of_images(model)
    image_shape = image_sizes(_shape_before(steps, wanted) if image_shape is None else image_shape)
    given = augment.output_shape(steps, image_shape)
    if any(size not in (None, given_size) for size, given_size in zip(wanted, given, strict=True)):
        received = f"images {image_shape} are {given} after the steps {steps!r}"
        raise ValueError(f"The model takes images {wanted}; {received}. `image_shape` is the shape before them.")
    return image_shape


def warn_of_image_logits(model, preprocess, shape):
    """`warn_of_logits` with a random image; `shape` is (height, width, channels) before `preprocess`."""
    shape = augment.output_shape(preprocess, shape)
    answers.warn_of_logits(model, np.random.default_rng(0).random((1, *shape), "float32"))


def image_answer(model, steps, shape, class_names=None):
    """The function from float32 images in [0, 1] to the dict that all signatures return."""
    steps = augment.in_evaluation(steps)

    def answer(images):
        images = tf.ensure_shape(images, (None, *shape))
        if steps:
            images = tf.map_fn(lambda image: augment.apply(steps, image, xp=tnp), images)
        return answers.class_answers(model, model(images, training=False), class_names)

    return answer


def in_unit_range(images):
    """Scales uint8 images to float32 in [0, 1]. Leaves float32 images as they are; the graph checks their range."""
    if images.dtype == tf.uint8:
        return tf.cast(images, tf.float32) / 255
    lowest, highest = tf.reduce_min(images), tf.reduce_max(images)
    inside = tf.reduce_all((images >= -answers.ROUNDING) & (images <= 1 + answers.ROUNDING))  # false for NaN
    said = "float32 images must be in [0, 1]; pixels of 0 to 255 are for serving_uint8. Received least and greatest:"
    with tf.control_dependencies([tf.debugging.Assert(inside, [said, lowest, highest])]):
        return tf.identity(images)


def decoded(file, shape):
    """An encoded image as float32 in [0, 1] of the given shape."""
    height, width, channels = shape
    # An animated WebP file would kill the process: TensorFlow's decoder frees its memory twice.
    head = tf.strings.join([tf.strings.substr(file, 0, 21), "\0" * 21])
    webp = tf.strings.substr(head, 12, 4) == "VP8X"
    animated = webp & (tf.bitwise.bitwise_and(tf.io.decode_raw(tf.strings.substr(head, 20, 1), tf.uint8)[0], 2) > 0)
    with tf.control_dependencies([tf.debugging.Assert(~animated, ["animated WebP files are not decoded"])]):
        file = tf.identity(file)
    image = in_unit_range(decode_image(file))  # 1 or 2 channels are grey (with alpha), 3 or 4 are colours
    colour = tf.shape(image)[-1] >= 3
    if channels == 1:
        luma = tf.constant([0.299, 0.587, 0.114])
        image = tf.cond(colour, lambda: tf.tensordot(image[..., :3], luma, 1)[..., None], lambda: image[..., :1])
    else:
        image = tf.cond(colour, lambda: image[..., :3], lambda: tf.repeat(image[..., :1], 3, axis=-1))
    fits = tf.reduce_all(tf.shape(image)[:2] == (height, width))
    image = tf.cond(fits, lambda: image, lambda: tf.image.resize(image, (height, width), antialias=True))
    return tf.ensure_shape(image, shape)


def _shape_before(steps, shape):
    """The shape of images before `steps`; a ValueError if it can't be told."""
    height, width, channels = shape
    if None in shape or any(name in ("crop", "resize") for name, *_ in steps):
        known = f"the model's {shape} and the steps {steps!r}"
        raise ValueError(f"The served size can't be told from {known}: give `image_shape`, before the steps.")
    for name, *values in reversed(steps):
        if name == "pad":
            height, width = height - 2 * values[0], width - 2 * values[0]
        elif name == "downscale":
            height, width = height * values[0], width * values[0]
    return height, width, channels
