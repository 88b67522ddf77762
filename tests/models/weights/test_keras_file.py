"""Files of Keras weights: what is read, and what is refused."""

import zipfile

import h5py
import numpy as np
import pytest
from backend import array
from sweep import SMALL

from tf_capsules.losses import SpreadLoss, SpreadMargin
from tf_capsules.models.sabour2017 import CapsNet
from tf_capsules.models.weights.keras_file import fill, seal


def tiny(**options):
    return CapsNet(**{"image_shape": (9, 9, 1), "classes": 3, **SMALL, **options})


def test_damaged_weights_are_refused(tmp_path):
    model = tiny()
    path = tmp_path / "set.weights.h5"
    model.save_weights(path)
    whole = path.read_bytes()
    for content in (b"", whole[:100], whole[: len(whole) // 2], whole[:-1]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"^{path} does not hold weights of the network 'capsnet': .*Unable to"):
            tiny(weights=path)
    model.weights[0].assign(np.full(model.weights[0].shape, np.nan))
    model.save_weights(path)
    with pytest.raises(ValueError, match=r"set.weights.h5 does not hold .* has values that are not finite"):
        tiny(weights=path)


def test_a_flipped_bit_is_noticed_in_sealed_weights(tmp_path):
    path = tmp_path / "set.weights.h5"
    tiny().save_weights(path)
    seal(path)
    assert fill(tiny(), path).built
    content = bytearray(path.read_bytes())
    with h5py.File(path) as file:
        place = file["encoder/layers/conv2d/vars/0"].id.get_offset()
    content[place + 5] ^= 4
    path.write_bytes(content)
    with pytest.raises(ValueError, match="set.weights.h5 does not .*: its numbers are not those that were written"):
        tiny(weights=path)


def test_of_a_keras_file_the_weights_are_read_and_nothing_else(tmp_path):
    model, images = tiny(), np.random.default_rng(0).uniform(size=(2, 9, 9, 1))
    path = tmp_path / "net.keras"
    model.save(path)
    np.testing.assert_array_equal(array(tiny(weights=path)(images)["poses"]), array(model(images)["poses"]))
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (parts | {"config.json": b"of an unknown class"}).items():
            archive.writestr(name, content)
    assert tiny(weights=path).built
    whole = path.read_bytes()
    place = whole.index(parts["model.weights.h5"][:8]) + 3000
    for content in (whole[: len(whole) // 2], whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="net.keras does not hold .*(no .*zip file|not a zip file|Bad CRC-32)"):
            tiny(weights=path)


def test_a_keras_file_of_another_size_is_named_by_its_shapes(tmp_path):
    model = tiny()
    model.save(tmp_path / "net.keras")
    assert tiny(decoder_units=None, weights=tmp_path / "net.keras").decoder is None
    kernel, other = (tuple(net.encoder.get_layer("class_capsules").kernel.shape) for net in (model, tiny(dim=7)))
    received = f"lacks arrays of shape .*{other}.* that the network has and has arrays of shape .*{kernel}"
    with pytest.raises(ValueError, match=received.replace("(", r"\(").replace(")", r"\)")):
        tiny(dim=7, weights=tmp_path / "net.keras")


@pytest.mark.filterwarnings("ignore:Skipping variable loading for optimizer")
def test_a_growing_margin_starts_at_0_with_weights_that_have_none(tmp_path):
    tiny(decoder_units=None).save_weights(tmp_path / "set.weights.h5")
    model = tiny(decoder_units=None)
    model.compile("adam", SpreadLoss(SpreadMargin.over(100)))
    (margin,) = model.growing_margins
    margin.steps.assign(7)
    fill(model, tmp_path / "set.weights.h5")
    assert int(array(margin.steps)) == 0
