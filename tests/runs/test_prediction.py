import io

import numpy as np
import pytest

from tf_capsules.runs import prediction


@pytest.mark.parametrize("mode", ["1", "L", "RGB", "CMYK"])
def test_photographs_of_any_mode_are_turned_or_refused(mode, tmp_path):
    from PIL import ExifTags, Image

    exif, path = Image.Exif(), tmp_path / f"photograph.{'jpg' if mode == 'CMYK' else 'png'}"
    exif[ExifTags.Base.Orientation] = 6
    Image.effect_noise((64, 32), 50).convert("RGB").convert(mode).save(path, exif=exif)
    turned = Image.open(io.BytesIO(prediction._upright(path)))
    assert turned.size == (32, 64) and turned.mode == ("L" if mode in ("1", "L") else "RGB")
    path.write_bytes(path.read_bytes()[:-40])
    if mode == "CMYK":  # Pillow finds only when it turns the picture that data are missing
        with pytest.raises(ValueError, match="photograph.jpg can't be read as an image"):
            prediction._upright(path)


def test_a_transparent_picture_is_sent_on_white(tmp_path):
    from PIL import Image

    Image.new("RGBA", (2, 2), (0, 0, 0, 0)).save(tmp_path / "clear.png")
    sent = Image.open(io.BytesIO(prediction._upright(tmp_path / "clear.png")))
    assert sent.mode == "RGB" and sent.getpixel((0, 0)) == (255, 255, 255)


@pytest.mark.parametrize("ending", ["webp", "gif", "bmp"])
def test_animations_and_palettes_are_read_as_for_training(ending, tmp_path):
    from PIL import Image

    random = np.random.default_rng(0)
    first, second = (Image.fromarray(random.integers(0, 256, (8, 16, 3), np.uint8)) for _ in range(2))
    first, path = first.quantize(32) if ending == "bmp" else first, tmp_path / f"picture.{ending}"
    first.save(path, **({} if ending == "bmp" else {"save_all": True, "append_images": [second]}))
    sent = Image.open(io.BytesIO(prediction._upright(path)))
    assert (sent.format, sent.mode) == ("PNG", "RGB") and getattr(sent, "n_frames", 1) == 1
    with Image.open(path) as image:
        np.testing.assert_array_equal(sent, image.convert("RGB"))
