import dataclasses
import pathlib

import keras
import numpy as np
import pytest
from small_runs import DIGITS, SHORT, TINY, plain_network

from tf_capsules import recipes
from tf_capsules.runs import Settings, TrainingError, load_run, train


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (Settings(epochs=0), "--epochs must be at least 1. Received: 0"),
        (Settings(learning_rate=-1.0), "--learning-rate must be above 0. Received: -1.0"),
        (Settings(seed=-1), "--seed"),
        (Settings(dtype="float8"), "--dtype must be .* Received: float8"),
        (Settings(jit="maybe"), "--jit must be auto or on or off. Received: maybe"),
        (Settings(strategy="magic"), "--strategy must be none or mirrored. Received: magic"),
        (Settings(dataset="mnits"), "--dataset must be one of .* Received: mnits"),
        (Settings(data="absent.npz"), "absent.npz: there is no such file"),
        (Settings(data="absent.npz", dataset="mnist"), "--data absent.npz replaces the data set: leave out --dataset"),
        (Settings(cache_limit=3.0), "--cache-limit 3.0 is for recipes on texts; sabour2017-digits is on images"),
        (Settings(devices=2), "--devices 2 needs --strategy mirrored"),
        (Settings(image_size=16), "--image-size 16 is for a folder of images. Received: digits"),
        (
            Settings(image_size=16, data=__file__),
            "--image-size 16 is for a folder of images. Received: .*test_settings",
        ),
        (Settings(iterations=0), "--iterations must be at least 1. Received: 0"),
        (Settings(warmup=1.0), "--warmup must be between 0 and 1. Received: 1.0"),
        (Settings(mixup=0.0), "--mixup must be above 0. Received: 0.0"),
        (Settings(stop_at=95.0), "--stop-at must be a share above 0, at most 1. Received: 95.0"),
        (Settings(warmup=0.1, decay_steps=9), "--decay-steps 9 and --warmup 0.1 exclude each other"),
    ],
)
def test_bad_settings_fail_before_anything_is_made(tmp_path, settings, message):
    with pytest.raises(TrainingError, match=message):
        train(TINY, tmp_path / "run", settings)
    assert not (tmp_path / "run").exists()


def test_iterations_are_those_of_every_routing_layer(tmp_path):
    recipe = Settings(iterations=2).apply(TINY)
    assert recipe.model_options == {**TINY.model_options, "iterations": 2}
    assert (
        recipe.model(image_shape=(8, 8, 1), **recipe.model_options).encoder.get_layer("class_capsules").iterations == 2
    )
    with pytest.raises(TrainingError, match="--iterations 2 needs a network that routes; BaselineCNN of .* does not"):
        train(recipes.get("sabour2017-mnist-cnn"), tmp_path / "run", Settings(iterations=2))


@pytest.mark.long
def test_arguments_of_the_network_are_set_kept_and_told(eager, tmp_path):
    settings = dataclasses.replace(SHORT, epochs=1, decay_steps=40, network={"dim": 5, "decoder_units": [6, 7]})
    trained = train(DIGITS, tmp_path / "run", settings, verbose=0)
    assert trained.model.encoder.get_layer("class_capsules").dim == 5
    assert trained.result["settings"].endswith("network decoder_units=6,7; network dim=5; train_limit 120")
    again = load_run(tmp_path / "run")
    assert again.model.count_params() == trained.model.count_params()
    once = load_run(tmp_path / "run", iterations=1, test_limit=20)
    assert once.model.encoder.get_layer("class_capsules").iterations == 1
    for a, b in zip(once.model.get_weights(), trained.model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    images, _ = once.examples(20)
    two = [one.model.encoder.predict(images, verbose=0)["activations"] for one in (once, again)]
    assert np.abs(two[0] - two[1]).max() > 1e-4
    for network, message in (
        ({"dims": 5}, "--network dims=5: CapsNet has no such argument .* it has .*dim, .*filters"),
        ({"classes": 5}, "--network classes=5: CapsNet has no such argument"),
        ({"dim": 0}, "dim"),
        ({"decoder_units": 5}, "--network decoder_units must be a list .* or none. Received: 5"),
    ):
        with pytest.raises(TrainingError, match=message):
            train(TINY, tmp_path / "other", Settings(network=network))
    with pytest.raises(TrainingError, match="--network iterations=2: give --iterations 2"):
        train(TINY, tmp_path / "other", Settings(network={"iterations": 2}))
    with pytest.raises(TrainingError, match="--network weights=a: give --weights a"):
        train(TINY, tmp_path / "other", Settings(network={"weights": "a"}))


@pytest.mark.long
def test_a_run_starts_from_given_weights(eager, tmp_path):
    """At so small a learning rate they stay: the first epoch ends where the other run ended."""
    before = train(TINY, tmp_path / "before", SHORT, verbose=0)
    weights = before.folder / "last-0002.weights.h5"
    settings = dataclasses.replace(SHORT, epochs=1, learning_rate=1e-9, weights=weights, seed=5)
    after = train(TINY, tmp_path / "after", settings, verbose=0)
    for a, b in zip(after.model.get_weights(), before.model.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    assert after.result["settings"].startswith("weights before/last-0002.weights.h5; ")
    weights.unlink()
    again = load_run(tmp_path / "after")
    np.testing.assert_array_equal(again.model.get_weights()[0], after.model.get_weights()[0])
    for given, message in ((weights, "no such file, nor a shipped set"), ("sabour2017-digits", "filters|shape")):
        with pytest.raises(TrainingError, match=message):
            train(TINY, tmp_path / "other", Settings(weights=given, iterations=3))
    assert not (tmp_path / "other").exists()
    with pytest.raises(TrainingError, match="--weights a: plain_network of .* can't be given weights"):
        train(TINY.replace(model=plain_network, model_options={}), tmp_path / "other", Settings(weights="a"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (Settings(strategy="mirrored", jit="on"), "--jit on does not work under --strategy mirrored"),
        (Settings(strategy="mirrored", devices=3), "--batch-size 50 can't be shared evenly by --devices 3"),
    ],
)
def test_bad_strategies_fail_before_anything_is_made(tmp_path, settings, message):
    if keras.backend.backend() != "tensorflow":
        message = "needs the TensorFlow backend"
    with pytest.raises(TrainingError, match=message):
        train(TINY, tmp_path / "run", settings)
    assert not (tmp_path / "run").exists()


def test_paths_are_absolute_but_for_addresses(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for given, kept in ((pathlib.Path("sets"), str(tmp_path / "sets")), ("gs://bucket/sets", "gs://bucket/sets")):
        settings = Settings(data_dir=given)
        settings.check(TINY)
        assert settings.with_absolute_paths().data_dir == kept
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "gpt2").mkdir()
    assert Settings(transformer="~/gpt2").with_absolute_paths().transformer == str(tmp_path / "gpt2")
    (tmp_path / "a.weights.h5").touch()
    assert Settings(weights="a.weights.h5").with_absolute_paths().weights == str(tmp_path / "a.weights.h5")
    (tmp_path / "sabour2017-digits").mkdir()  # a shipped set precedes it
    assert Settings(weights="sabour2017-digits").with_absolute_paths().weights == "sabour2017-digits"
    (tmp_path / "a-name").touch()  # not a transformer's folder
    assert Settings(transformer=pathlib.Path("a-name")).with_absolute_paths().transformer == "a-name"
