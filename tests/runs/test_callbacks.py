import dataclasses
import functools
import pathlib
import types

import keras
import numpy as np
import pytest
from small_runs import RECTIFIED, SHORT, TINY, write_arrays

from tf_capsules.runs import RunFolder, Settings, TrainingError, callbacks, load_run, train, training
from tf_capsules.runs.callbacks import Recorder


def test_progress_without_a_terminal_tells_the_time_left(eager, tmp_path, monkeypatch, capsys):
    write_arrays(tmp_path / "mine.npz")
    monkeypatch.setattr(training, "Progress", functools.partial(callbacks.Progress, seconds=0))
    train(TINY, tmp_path / "run", Settings(data=str(tmp_path / "mine.npz"), epochs=2, batch_size=30))
    lines = [line for line in capsys.readouterr().out.splitlines() if "min left" in line]
    assert [line.split(":")[0] for line in lines] == [
        f"epoch {epoch}, step {step} of 2" for epoch in (1, 2) for step in (1, 2)
    ]
    assert lines[-1].endswith("about 0 min left")


class NotANumber(keras.losses.Loss):
    def call(self, y_true, y_pred):
        return keras.ops.sum(y_pred, axis=-1) * float("nan")


def test_a_loss_that_is_not_finite_stops_with_step_checkpoint_and_advice(eager, tmp_path):
    good = train(TINY.replace(epochs=1), tmp_path / "run", SHORT, verbose=0)
    before = (good.folder / "last-0001.weights.h5").read_bytes()
    folder = RunFolder(good.folder)
    recorder = Recorder(folder, "accuracy", folder.history(), 1)
    model = good.model
    model.compile("sgd", NotANumber())
    batches = good.data.train(batch_size=50, training=True)
    with pytest.raises(TrainingError, match=r"nan at step 1 of epoch 2. .*last-0001.weights.h5. .* --batch-size.$"):
        model.fit(batches, callbacks=[recorder], shuffle=False, verbose=0)
    # The last step of an epoch spoiled the weights.
    recorder.on_epoch_begin(1)
    with pytest.raises(TrainingError, match=r"The validation loss is nan at the end of epoch 2. The last good"):
        recorder.on_epoch_end(1, {"loss": 1.0, "accuracy": 0.5, "val_loss": float("nan"), "val_accuracy": 0.1})
    assert (good.folder / "last-0001.weights.h5").read_bytes() == before and folder.checkpoints() == [1]


def test_only_half_precision_is_told_to_try_float32():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)], name="net")
    for dtype, said in (("float32", False), ("mixed_bfloat16", True)):
        model.dtype_policy = dtype
        recorder = Recorder(None, "accuracy", [], 0)
        recorder.set_model(model)
        with pytest.raises(TrainingError, match="No epoch was finished before") as raised:
            recorder.on_train_batch_end(0, {"loss": float("inf")})
        assert ("--dtype float32" in str(raised.value)) == said


@pytest.mark.long
def test_killed_while_writing_leaves_the_last_checkpoint_whole(eager, rectified_run, tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    save, saved = keras.Model.save_weights, []

    def half_written(model, path, **kwargs):
        saved.append(path)
        if len(saved) > 1:  # in the second epoch
            pathlib.Path(path).write_bytes(b"half")
            raise Killed
        save(model, path, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(keras.Model, "save_weights", half_written)
        with pytest.raises(Killed):
            train(RECTIFIED, tmp_path / "run", SHORT, verbose=0)
    folder = RunFolder(tmp_path / "run")
    assert folder.checkpoints() == [1]
    resumed = train(RECTIFIED, tmp_path / "run", SHORT, resume=True, verbose=0)
    assert [row["epoch"] for row in folder.history()] == [1, 2]
    for a, b in zip(rectified_run.model.get_weights(), resumed.model.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_a_run_killed_before_it_wrote_the_best_weights_writes_them_when_it_is_resumed(eager, tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def killed(*arguments):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "keep_best_and_last", killed)
        with pytest.raises(Killed):
            train(TINY, tmp_path / "run", SHORT, verbose=0)
    assert not (tmp_path / "run" / "best.weights.h5").exists()
    train(TINY, tmp_path / "run", dataclasses.replace(SHORT, stop_at=0.001), resume=True, verbose=0)  # it is reached
    (row,) = RunFolder(tmp_path / "run").history()
    best = load_run(tmp_path / "run", "best", recipe=TINY)
    assert best.epoch == 1 and best.evaluate()["accuracy"] == pytest.approx(row["val_accuracy"])


def test_a_constant_rate_under_a_strategy_is_kept():
    if keras.backend.backend() != "tensorflow":
        pytest.skip("MirroredStrategy needs the TensorFlow backend")
    import tensorflow as tf

    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        optimizer = keras.optimizers.SGD(0.002)
    recorder = Recorder(None, "accuracy", [], 0)
    recorder.set_model(types.SimpleNamespace(optimizer=optimizer))
    recorder.on_epoch_begin(0)
    logs = {"loss": 1.0, "accuracy": 0.5}
    recorder.on_test_batch_end(0, logs)
    recorder.on_epoch_end(0, logs | {f"val_{name}": value for name, value in logs.items()})
    assert recorder.rows[0]["learning_rate"] == pytest.approx(0.002)


def test_the_history_tells_how_far_batches_differ(eager, tmp_path, monkeypatch):
    settings = Settings(train_limit=20, test_limit=45)
    run = train(TINY.replace(epochs=1, batch_size=10), tmp_path / "run", settings, verbose=0)
    accuracies = []
    for images, labels in run.data.test(batch_size=10):
        lengths = keras.ops.convert_to_numpy(run.model(images)["activations"])
        accuracies.append((lengths.argmax(-1) == np.asarray(labels)).mean())
    spread = np.std(accuracies[:-1])  # without the last batch, which has half the size
    assert run.history[0]["val_accuracy_std"] == pytest.approx(spread, abs=1e-5) and spread > 0
