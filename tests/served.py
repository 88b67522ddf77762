"""Small networks on images, and images for them, for tests of exports."""

import io

import keras
import numpy as np
from PIL import Image

from tf_capsules.models.sabour2017 import CapsNet

NAMES = ["ant", "bee", "cat", "dog", "eel"]
STEPS = (("downscale", 2), ("brightness", 63), ("crop", 8), ("standardize",))


def make_model(channels=1, width=7, **options):
    sizes = {"filters": 6, "kernel_size": 3, "types": 3, "pose": 4, "primary_kernel_size": 3, "primary_strides": 1}
    return CapsNet((8, width, channels), classes=5, dim=9, **sizes, decoder_units=(11,), **options)


def make_plain(channels=1, width=7):
    """A network without routing."""
    return keras.Sequential(
        [keras.Input((8, width, channels)), keras.layers.Flatten(), keras.layers.Dense(5, "softmax")]
    )


def make_images(shape=(4, 8, 7, 1), seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def encoded(image, kind="PNG"):
    file = io.BytesIO()
    Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).save(file, kind, lossless=True)  # of WebP
    return file.getvalue()


def call(model, images):
    return {name: keras.ops.convert_to_numpy(value) for name, value in model(np.float32(images)).items()}


def answering(outputs, dtype="float32"):
    """A model of images that answers with `outputs` of their 56 values."""
    images = keras.Input((8, 7, 1), dtype=dtype)
    return keras.Model(images, outputs(keras.layers.Flatten()(images)), name="own")
