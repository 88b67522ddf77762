"""Weights of a file or of a shipped set."""

import functools
import pathlib

import numpy as np
import pytest
from backend import array
from sweep import SMALL

from tf_capsules import recipes
from tf_capsules.models.heinsen2019 import TextCapsNet
from tf_capsules.models.sabour2017 import CapsNet
from tf_capsules.models.tsai2020 import AttentionCapsNet
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
    with pytest.raises(ValueError, match="`weights`: no such file, .*Received: 3"):
        tiny(weights=3)
    tiny(dim=7).save_weights(tmp_path / "other.weights.h5")
    message = "other.weights.h5 does not hold weights of the network .*: it lacks arrays of shape .*another size"
    with pytest.raises(ValueError, match=message):
        tiny(weights=tmp_path / "other.weights.h5")
    tiny(decoder_units=None).save_weights(tmp_path / "bare.weights.h5")
    with pytest.raises(ValueError, match="bare.weights.h5 does not hold .*: it has no weights of a decoder; make"):
        tiny(weights=tmp_path / "bare.weights.h5")
    tiny().save_weights(tmp_path / "set.weights.h5")
    assert tiny(decoder_units=None, weights=tmp_path / "set.weights.h5").decoder is None
    small = functools.partial(AttentionCapsNet, (9, 9, 1), classes=3, filters=2, types=2, convolutions=())
    small().save_weights(tmp_path / "normalized.weights.h5")
    small(weights=tmp_path / "normalized.weights.h5")
    with pytest.raises(ValueError, match=r"it has arrays of shape \(4, 4\) that the network lacks"):
        small(layer_norm=False, weights=tmp_path / "normalized.weights.h5")
    for name in ("text.weights.h5", "text.txt"):
        (tmp_path / name).write_text("no weights")
        with pytest.raises(ValueError, match=f"{name} does not hold weights"):
            tiny(weights=tmp_path / name)


def test_another_number_of_routing_iterations_than_in_the_training_is_told(recwarn):
    digits = functools.partial(CapsNet, (8, 8, 1), weights="sabour2017-digits")
    digits(**recipes.get("sabour2017-digits").model_options)
    assert not recwarn
    with pytest.warns(UserWarning, match="'sabour2017-digits' were trained with 3 routing .*has 2") as told:
        digits(**recipes.get("sabour2017-digits").model_options, iterations=2)
    assert told[0].filename == __file__


def test_names_are_those_of_the_files():
    assert all((FOLDER / f"{name}.weights.h5").is_file() and (FOLDER / f"{name}.md").is_file() for name in names())
    model = tiny()
    assert load_weights(model, None) is model


def test_a_set_that_an_older_version_shipped():
    older = TextCapsNet(7, 384, 2, weights=pathlib.Path(__file__).parent / "saved" / "older_sst2.weights.h5")
    shipped = TextCapsNet(7, 384, 2, weights="heinsen2019-sst2-minilm")
    for weight, same in zip(older.get_weights(), shipped.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, same)
