import numpy as np
import pytest
from backend import array
from sweep import SMALL

from tf_capsules.models.sabour2017 import CapsNet
from tf_capsules.models.weights import FOLDER, load_weights, names


def tiny(**options):
    return CapsNet(**{"image_shape": (9, 9, 1), "classes": 3, **SMALL, **options})


def test_weights_of_a_file(tmp_path):
    model = tiny()
    model.save_weights(tmp_path / "set.weights.h5")
    images = np.random.default_rng(0).uniform(size=(2, 9, 9, 1))
    for path in (tmp_path / "set.weights.h5", str(tmp_path / "set.weights.h5")):
        other = tiny(weights=path)
        np.testing.assert_array_equal(array(other(images)["poses"]), array(model(images)["poses"]))


def test_errors_name_what_was_received(tmp_path):
    with pytest.raises(ValueError, match="`weights`: no such file, nor a shipped set .*Received: 'nowhere'"):
        tiny(weights="nowhere")
    with pytest.raises(ValueError, match="`weights`: no such file"):
        tiny(weights=tmp_path)
    tiny(dim=7).save_weights(tmp_path / "other.weights.h5")
    with pytest.raises(ValueError, match="other.weights.h5 does not hold weights of the network 'capsnet'"):
        tiny(weights=tmp_path / "other.weights.h5")
    tiny(decoder_units=None).save_weights(tmp_path / "bare.weights.h5")
    with pytest.raises(ValueError, match="bare.weights.h5 does not hold"):
        tiny(weights=tmp_path / "bare.weights.h5")
    for name in ("text.weights.h5", "text.txt"):
        (tmp_path / name).write_text("no weights")
        with pytest.raises(ValueError, match=f"{name} does not hold weights"):
            tiny(weights=tmp_path / name)


def test_names_are_those_of_the_files():
    assert all((FOLDER / f"{name}.weights.h5").is_file() and (FOLDER / f"{name}.md").is_file() for name in names())
    model = tiny()
    assert load_weights(model, None) is model
