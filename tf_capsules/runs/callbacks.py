"""What a training does after steps and epochs: it writes the run folder and reports its progress."""

import importlib.util
import math
import time

import keras
import numpy as np

from tf_capsules.analysis import RoutingDiagnostics, measure_couplings
from tf_capsules.files import write_csv
from tf_capsules.runs.compiling import temporarily
from tf_capsules.runs.errors import TrainingError, reported


class Recorder(keras.callbacks.Callback):
    """After each epoch writes history, last and best weights, in this order; stops at a loss that is not finite.

    The history has what Keras logs, the learning rate of the next step, and the standard deviation of validation over
    batches: `val_loss_std` and one such column for the metric (Heinsen 2019, figure 8). Training ends when the
    validation metric reaches `stop_at`. With `keep` the weights of all epochs stay. Without a folder nothing is
    written.
    """

    def __init__(self, folder, monitor, history, initial_epoch, stop_at=None, keep=False):
        super().__init__()
        self.folder, self.monitor, self.rows, self.keep = folder, f"val_{monitor}", history[:initial_epoch], keep
        self.stop_at = math.inf if stop_at is None else stop_at
        self.batches = []

    def on_epoch_begin(self, epoch, logs=None):
        self.started = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        self._check(f"The loss is {logs['loss']} at step {batch + 1}", logs["loss"])

    def _check(self, found, loss):
        if not math.isfinite(loss):
            done = self.folder.checkpoints() if self.folder else []
            good = f"The last good checkpoint is {self.folder.weights()}." if done else "No epoch was finished before."
            exact = "" if self.model.compute_dtype == "float32" else ", or with --dtype float32"
            advice = f"Start another run with a smaller --learning-rate or a larger --batch-size{exact}."
            raise TrainingError(f"{found} of epoch {len(self.rows) + 1}. {good} {advice}")

    def on_test_begin(self, logs=None):
        self.batches = []

    def on_test_batch_end(self, batch, logs=None):
        self.batches.append({name: float(value) for name, value in logs.items()})

    def on_epoch_end(self, epoch, logs=None):
        # The last step may have spoiled the weights, after they gave a finite loss.
        self._check(f"The validation loss is {logs['val_loss']} at the end", logs["val_loss"])
        rate = keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)
        row = {"epoch": epoch + 1, "learning_rate": float(rate)}
        row |= {"seconds": round(time.perf_counter() - self.started, 3)} | {k: float(v) for k, v in logs.items()}
        for name in ("loss", self.monitor.removeprefix("val_")):
            # Keras logs the mean over all batches so far. The last batch may be smaller, so it is left out.
            means = [batch[name] for batch in self.batches[:-1] or self.batches]
            sums = np.arange(1, len(means) + 1) * means
            row[f"val_{name}_std"] = float(np.diff(sums, prepend=0.0).std())
        self.rows.append(row)
        if self.folder is not None:
            # Without the distribution, one process can create variables without the others.
            with temporarily(None, keras.distribution.distribution, keras.distribution.set_distribution):
                write_csv(self.folder.path / "history.csv", self.rows)
                self.folder.save_weights(self.model, epoch + 1)
            self.folder.keep_best_and_last(self.rows, self.monitor, self.keep)
        self.model.stop_training = row[self.monitor] >= self.stop_at


class Progress(keras.callbacks.Callback):
    """Prints once a minute where training is and how long it will take, if no progress bar can be drawn."""

    def __init__(self, steps, seconds=60):
        super().__init__()
        self.steps, self.seconds, self.epoch, self.done = steps, seconds, 0, 0

    def on_train_begin(self, logs=None):
        self.started = self.told = time.perf_counter()

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        now, self.done = time.perf_counter(), self.done + 1
        if now - self.told >= self.seconds:
            self.told = now
            left = (self.params["epochs"] - self.epoch) * self.steps - batch - 1
            minutes = left * (now - self.started) / self.done / 60
            values = ", ".join(f"{name} {float(value):.4f}" for name, value in logs.items())
            where = f"epoch {self.epoch + 1}, step {batch + 1:,} of {self.steps:,}"
            print(f"{where}: {values}, about {minutes:,.0f} min left", flush=True)


def diagnostics(folder, model, data):
    """The callback that measures routing, in a list."""
    inputs = next(iter(data.validation(batch_size=50, limit=50)))[0]
    reported(measure_couplings, model, inputs)
    logs = folder.path / "tensorboard" if importlib.util.find_spec("tensorflow") else None
    return [RoutingDiagnostics(inputs, folder.path / "diagnostics.csv", logs)]
