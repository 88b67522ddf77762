import csv
import warnings

import keras
import numpy as np
import pytest
from backend import array

from tf_capsules.analysis import RoutingDiagnostics, diagnostics, figures, measure_couplings
from tf_capsules.layers import (
    CapsuleLength,
    ConvDynamicRouting,
    DynamicRouting,
    EMRouting,
    HeinsenRouting,
    PrimaryCapsules,
)
from tf_capsules.models.hinton2018 import MatrixCapsNet
from tf_capsules.models.sabour2017 import CapsNet
from tf_capsules.models.tsai2020 import AttentionCapsNet

IMAGES = np.random.default_rng(0).random((6, 8, 8, 1)).astype("float32")
LABELS = np.arange(6) % 3


def small(iterations=3):
    sizes = dict(filters=8, kernel_size=3, types=2, pose=4, primary_kernel_size=3, dim=4, decoder_units=None)
    model = CapsNet((8, 8, 1), classes=3, iterations=iterations, **sizes)
    strengthen(model.encoder)
    return model


def strengthen(network):
    """Makes votes as long as after a training, so that routing does something."""
    for layer in network.layers:
        if isinstance(layer, (DynamicRouting, ConvDynamicRouting)):
            layer.kernel.assign(30 * layer.kernel)


def own_model():
    """A functional model of several kinds of routing, none of them of the papers' networks."""
    images = keras.Input((8, 8, 1))
    x = PrimaryCapsules(types=4, pose=4, kernel_size=3, strides=2)(images)
    x = ConvDynamicRouting(3, 4, kernel_size=2, name="convolution")(x)
    x = DynamicRouting(3, 5, iterations=2, name="classes")(x)
    model = keras.Model(images, CapsuleLength()(x))
    strengthen(model)
    return model


def test_couplings_of_every_iteration_and_layer():
    found = measure_couplings(own_model(), IMAGES)
    assert {name: [x.shape for x in each] for name, each in found.items()} == {
        "convolution": [(6, 2, 2, 16, 3)] * 3,
        "classes": [(6, 12, 3)] * 2,
    }
    for each in found.values():
        np.testing.assert_allclose(each[0], 1 / 3, atol=1e-6)
        np.testing.assert_allclose(each[-1].sum(-1), 1, atol=1e-5)
        assert np.abs(each[-1] - each[0]).max() > 1e-6


def test_couplings_of_a_chain_are_those_of_its_layers():
    options = dict(types=4, pose=(2, 2), convolutions=((3, 3, 1),), filters=8, iterations=2)
    model = AttentionCapsNet((12, 12, 1), classes=3, **options)
    images = np.random.default_rng(0).random((2, 12, 12, 1)).astype("float32")
    found = measure_couplings(model, images)
    chain = model.encoder.get_layer("routing").chain
    assert list(found) == [layer.name for layer in chain] and all(len(each) == 2 for each in found.values())
    *_, last = found.values()
    np.testing.assert_allclose(last[0], 1 / 3, atol=1e-6)
    np.testing.assert_allclose(last[1].sum(-1), 1, atol=1e-5)
    assert np.abs(last[1] - last[0]).max() > 1e-4


def test_em_and_heinsen_routing_are_measured_too():
    em = MatrixCapsNet((17, 17, 1), classes=3, filters=4, types=2, capsules=(3, 4), iterations=2)
    images = np.random.default_rng(0).random((2, 17, 17, 1)).astype("float32")
    assert all(len(each) == 2 for each in measure_couplings(em, images).values())
    assert EMRouting in {type(layer) for layer in em.encoder.layers}
    poses = keras.Input((20, 4))
    routed = HeinsenRouting(5, 4, name="heinsen")(poses)
    found = measure_couplings(keras.Model(poses, routed), np.random.default_rng(0).normal(size=(2, 20, 4)))
    assert [x.shape for x in found["heinsen"]] == [(2, 20, 5)] * 3


def test_entropy_and_dead_capsules():
    assert diagnostics.coupling_entropy(np.full((2, 7, 4), 0.25)) == pytest.approx(1)
    assert diagnostics.coupling_entropy(np.eye(3)[None]) == 0
    assert diagnostics.coupling_entropy(np.array([[0.0, 0.0], [0.5, 0.5]])) == pytest.approx(1)  # one child is masked
    assert diagnostics.coupling_entropy(np.ones((2, 3, 1))) == 0
    half = np.array([0.5, 0.5, 0.0, 0.0])
    assert diagnostics.coupling_entropy(half[None]) == pytest.approx(0.5)
    once = np.stack([np.tile(half, (3, 1)), np.tile(half[::-1], (3, 1))])
    assert diagnostics.dead_capsules(once) == 0  # each is alive in one example
    assert diagnostics.dead_capsules(once[:1]) == 0.5


def test_the_callback_writes_a_row_a_layer_and_iteration_and_goes_on(tmp_path):
    model = small()
    model.compile(keras.optimizers.Adam(0.01), keras.losses.MeanSquaredError())
    targets = np.eye(3, dtype="float32")[LABELS]
    path = tmp_path / "diagnostics.csv"
    logs = tmp_path / "logs" if keras.backend.backend() == "tensorflow" else None
    first = RoutingDiagnostics(IMAGES, path, logs)
    model.fit(IMAGES, targets, epochs=2, callbacks=[first], verbose=0)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["epoch"], row["iteration"]) for row in rows] == [(e, t) for e in "12" for t in "123"]
    assert {row["layer"] for row in rows} == {"class_capsules"}
    assert diagnostics.read_rows(path) == first.rows
    for row in first.rows:
        assert 0 <= row["coupling_entropy"] <= 1 and 0 <= row["dead_capsules"] <= 1
        assert (row["change"] > 0) == (row["iteration"] > 1)
    last = measure_couplings(model, IMAGES)["class_capsules"]
    assert first.rows[-1]["coupling_entropy"] == pytest.approx(diagnostics.coupling_entropy(last[-1]), abs=1e-6)
    change = np.abs(last[2] - last[1]).mean() / last[2].mean()
    assert first.rows[-1]["change"] == pytest.approx(change, rel=1e-3)
    lengths = diagnostics.read_rows(tmp_path / "diagnostics_lengths.csv", ("epoch",))
    found = array(model(IMAGES)["activations"])
    shares = [row["share"] for row in lengths if row["epoch"] == 2]
    np.testing.assert_allclose(shares, np.histogram(found, 10, (0, 1))[0] / found.size, atol=1e-9)
    if logs is not None:
        assert any(logs.iterdir())
    # Goes on after the first epoch: the second is measured anew, a third is added.
    again = RoutingDiagnostics(IMAGES, path)
    model.fit(IMAGES, targets, initial_epoch=1, epochs=3, callbacks=[again], verbose=0)
    assert [row["epoch"] for row in again.rows] == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert again.rows[:3] == first.rows[:3]

    figure = figures.routing_diagnostics(again.rows)
    entropy, dead, change = figure.axes
    np.testing.assert_allclose(entropy.lines[0].get_ydata(), [row["coupling_entropy"] for row in again.rows[2::3]])
    assert entropy.lines[0].get_label() == "class_capsules, 3 iterations"
    np.testing.assert_allclose(change.lines[0].get_ydata(), [row["change"] for row in again.rows[-2:]])
    with pytest.raises(ValueError, match="no rows"):
        figures.routing_diagnostics([])


def test_routing_that_does_nothing_is_told_once():
    model = small()
    callback = RoutingDiagnostics(IMAGES)
    callback.set_model(model)
    kernel = model.encoder.get_layer("class_capsules").kernel
    kernel.assign(1e-4 * kernel)  # votes that are too small to agree with anything
    callback.on_epoch_end(0)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        callback.on_epoch_end(1)
        callback.on_epoch_end(2)
    (text,) = [str(one.message) for one in told if one.category is UserWarning]
    assert "'class_capsules' after epoch 2: couplings are still even" in text and "learning rate" in text


def test_dead_capsules_are_told():
    model = small()
    routing = model.encoder.get_layer("class_capsules")
    callback = RoutingDiagnostics(IMAGES)
    callback.set_model(model)
    row = {"epoch": 2, "layer": routing.name, "iteration": 3, "coupling_entropy": 0.2, "dead_capsules": 0.7}
    with pytest.warns(UserWarning, match=r"70% of the capsules .*fewer iterations"):
        callback._warn(row)


def test_models_without_routing_are_refused():
    plain = keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten(), keras.layers.Dense(3)], name="plain")
    with pytest.raises(ValueError, match="'plain' has no layer"):
        measure_couplings(plain, IMAGES)

    class Own(keras.Model):
        pass

    with pytest.raises(ValueError, match="functional"):
        measure_couplings(Own(), IMAGES)
