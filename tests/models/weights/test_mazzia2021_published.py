import pathlib
import shutil

import numpy as np
import pytest
from backend import array
from models.test_mazzia2021 import SMALLNORB_NETWORK

from tf_capsules.models.mazzia2021 import EfficientCapsNet

PUBLISHED = pathlib.Path(__file__).parents[4] / "shared" / "oracles" / "efficient_capsnet"


published = pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the authors' weights are not beside the checkout")


@published
@pytest.mark.parametrize("decoder", ["upsampling", None])
def test_the_authors_weights_give_the_authors_outputs(decoder):
    cases = np.load(PUBLISHED / "cases.npz")
    model = EfficientCapsNet(
        **{**SMALLNORB_NETWORK, "decoder": decoder}, weights=PUBLISHED / "efficient_capsnet_SMALLNORB.h5"
    )
    answer = model(cases["images"])
    np.testing.assert_allclose(array(answer["poses"]), cases["poses"], atol=1e-5)
    np.testing.assert_allclose(array(answer["activations"]), cases["lengths"], atol=1e-5)
    if decoder:
        images = array(model.reconstruct(answer["poses"], cases["labels"]))
        assert images.shape == (24, 48, 48, 2) and 0 <= images.min() < images.max() <= 1


@published
def test_weights_of_another_network_are_named(tmp_path):
    path = PUBLISHED / "efficient_capsnet_SMALLNORB.h5"
    with pytest.raises(ValueError, match=r"conv2d_4/kernel:0 has shape \(7, 7, 2, 32\)"):
        EfficientCapsNet(**{**SMALLNORB_NETWORK, "image_shape": (48, 48, 3)}, weights=path)
    with pytest.raises(ValueError, match="the network of smallNORB and its decoder, not of 'efficient_capsnet'"):
        EfficientCapsNet(weights=path)
    import h5py

    broken = shutil.copy(path, tmp_path / "broken.h5")
    with h5py.File(broken, "r+") as file:
        del file["CapsNet/digit_caps/W:0"]
    with pytest.raises(ValueError, match="broken.h5 does not hold weights of the network"):
        EfficientCapsNet(**SMALLNORB_NETWORK, weights=broken)
    with h5py.File(shutil.copy(path, broken), "r+") as file:
        file["CapsNet/digit_caps/W:0"][0, 0, 0, 0] = np.nan
    with pytest.raises(ValueError, match="digit_caps/W:0 has values that are not finite"):
        EfficientCapsNet(**SMALLNORB_NETWORK, weights=broken)
