import io

import numpy as np
import pytest
from PIL import Image

tf = pytest.importorskip("tensorflow")

from tf_capsules.datasets.encoded import decode_image  # noqa: E402


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP", "GIF"])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_pixels_are_those_that_pillow_reads(mode, kind):
    """Of a JPEG, too: TensorFlow's default transform is up to 12 off."""
    blocks = np.random.default_rng(0).integers(0, 256, (8, 8, 3), "uint8")
    file = io.BytesIO()
    Image.fromarray(np.kron(blocks, np.ones((5, 5, 1), "uint8"))).convert(mode).save(file, kind)
    pixels = np.array(Image.open(file).convert("RGB"))
    found = tf.function(decode_image)(file.getvalue()).numpy()
    np.testing.assert_array_equal(np.broadcast_to(found, pixels.shape), pixels)
    np.testing.assert_array_equal(decode_image(tf.constant(file.getvalue()), 3), pixels)
