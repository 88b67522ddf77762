"""Encoded image files as tensors."""

from tf_capsules.lazy import tf


def decode_image(file, channels=0):
    """The uint8 pixels (height, width, channels) of a JPEG, PNG, GIF, BMP or WebP file; the first picture of several.

    `file` is a scalar string tensor. 0 channels stand for those of the file; not every format allows a given number.
    """
    return tf.cond(
        tf.io.is_jpeg(file),
        # The pixels that Pillow reads: TensorFlow's default is a faster transform that rounds more.
        lambda: tf.io.decode_jpeg(file, channels, dct_method="INTEGER_ACCURATE"),
        lambda: tf.io.decode_image(file, channels, expand_animations=False),
    )
