import csv
import warnings

import keras
import numpy as np
import pytest
from backend import EAGER, JIT, array

from tf_capsules.analysis import RoutingDiagnostics, diagnostics, measure_couplings
from tf_capsules.layers import HeinsenRouting
from tf_capsules.models.sabour2017 import CapsNet

IMAGES = np.random.default_rng(0).random((6, 8, 8, 1)).astype("float32")
LABELS = np.arange(6) % 3


def small(iterations=3):
    sizes = dict(filters=8, kernel_size=3, types=2, pose=4, primary_kernel_size=3, dim=4, decoder_units=None)
    model = CapsNet((8, 8, 1), classes=3, iterations=iterations, **sizes)
    kernel = model.encoder.get_layer("class_capsules").kernel
    kernel.assign(30 * kernel)  # votes as long as after training, so that couplings change
    return model


def test_the_callback_writes_a_row_a_layer_and_iteration_and_goes_on(tmp_path):
    model = small()
    options = dict(jit_compile=JIT, run_eagerly=EAGER)
    model.compile(keras.optimizers.Adam(0.01), keras.losses.MeanSquaredError(), **options)
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
        assert any(logs.iterdir()) and first._writer is None
    # Training resumes after the first epoch: it measures the second epoch again and adds a third.
    again = RoutingDiagnostics(IMAGES, path)
    model.fit(IMAGES, targets, initial_epoch=1, epochs=3, callbacks=[again], verbose=0)
    assert [row["epoch"] for row in again.rows] == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert again.rows[:3] == first.rows[:3]


def test_a_place_that_cannot_be_written_is_found_before_training(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="rows.csv can't be written"):
        RoutingDiagnostics(IMAGES, tmp_path / "file" / "rows.csv").on_train_begin()


def test_outputs_without_activations_are_refused():
    poses = keras.Input((6, 4))
    (routed, logits, _) = HeinsenRouting(3, 4)(poses)
    callback = RoutingDiagnostics(np.zeros((4, 6, 4)))
    callback.set_model(keras.Model(poses, {"pose": routed, "length": logits}))
    with pytest.raises(ValueError, match='needs the key "activations". Received: pose, length'):
        callback.on_train_begin()
    callback.set_model(keras.Model(poses, [logits, routed]))
    with pytest.raises(ValueError, match='must give a dict of them, with the key "activations". Received 2 outputs in'):
        callback.on_train_begin()


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


def test_logits_are_counted_as_probabilities():
    x = np.random.default_rng(0).normal(size=(4, 6, 4)).astype("float32")
    poses = keras.Input((6, 4))
    model = keras.Model(poses, 0 * HeinsenRouting(3, 4)(poses)[1] + np.log([25.0, 9.0, 6.0]).astype("float32"))
    callback = RoutingDiagnostics(x)
    callback.set_model(model)
    callback.on_epoch_end(0)
    shares = [row["share"] for row in callback.lengths]
    np.testing.assert_allclose(shares, [0, 1 / 3, 1 / 3, 0, 0, 0, 1 / 3, 0, 0, 0], atol=1e-9)
