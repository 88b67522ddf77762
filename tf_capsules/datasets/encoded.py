"""Encoded image files as tensors."""

from tf_capsules.lazy import tf


def decode_image(file, channels=0):
    """The uint8 pixels (height, width, channels) of a JPEG, PNG, GIF, BMP or WebP file; the first picture of several.

    Those of a JPEG are the same that Pillow reads: TensorFlow's own default is a faster transform that rounds more.

    Args:
        file: the bytes, a scalar string tensor.
        channels: 0 for those of the file; not every format can be decoded to a given number.
    """

    def jpeg():
        return tf.io.decode_jpeg(file, channels, dct_method="INTEGER_ACCURATE")

    return tf.cond(tf.io.is_jpeg(file), jpeg, lambda: tf.io.decode_image(file, channels, expand_animations=False))
