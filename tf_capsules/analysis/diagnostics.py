"""A Keras callback that measures after each epoch whether routing does anything."""

import importlib.util
import pathlib
import warnings

import keras
import numpy as np

from tf_capsules.analysis.couplings import coupling_entropy, dead_capsules, measure_couplings
from tf_capsules.analysis.inference import predict_probabilities, to_numpy
from tf_capsules.files import read_csv, reading, writable, write_csv
from tf_capsules.lazy import tf
from tf_capsules.models import class_outputs
from tf_capsules.routing.couplings import softmax

EVEN = 0.99  # entropy above which couplings count as even
LENGTH_BINS = 10


class RoutingDiagnostics(keras.callbacks.Callback):
    """Measures after each epoch what routing does with a few examples: rows, a CSV file, TensorBoard.

    For each routing layer and iteration it measures `coupling_entropy`, the share of `dead_capsules`, and the change of
    the couplings since the iteration before: the mean absolute change divided by the mean coupling, 0 in the first
    iteration. A histogram counts the class probabilities. It warns where routing does nothing, and says what to change.
    Couplings below 0, which the prior of a `SelfAttentionRouting` can cause, give NaN for entropy and dead capsules.

    Args:
        inputs: a batch of the model's inputs, best 32 to 100 examples.
        path: a CSV file, which a resumed training continues, or None. Histograms go to `..._lengths.csv`.
        log_dir: folder for TensorBoard, or None; needs TensorFlow.

    Attributes:
        rows: dicts of "epoch", "layer", "iteration", "coupling_entropy", "dead_capsules" and "change".
        lengths: dicts of "epoch", "from" and "share", ten bins an epoch.

    Raises:
        ValueError: `log_dir` without TensorFlow; when training begins, see `measure_couplings`.

    Example:
        >>> callback = RoutingDiagnostics(images[:50], "diagnostics.csv")
        >>> history = model.fit(images, labels, epochs=3, callbacks=[callback])
        >>> plots.draw_routing_diagnostics(callback.rows)
    """

    def __init__(self, inputs, path=None, log_dir=None):
        super().__init__()
        self.inputs = inputs
        self.path = None if path is None else pathlib.Path(path)
        self._lengths_path = self.path and self.path.with_name(f"{self.path.stem}_lengths{self.path.suffix}")
        self.log_dir = log_dir
        self.rows, self.lengths, self._warned, self._writer = [], [], set(), None
        if log_dir is not None and importlib.util.find_spec("tensorflow") is None:
            raise ValueError("`log_dir` needs TensorFlow, which writes for TensorBoard.")

    def on_train_begin(self, logs=None):
        if self.path is not None and writable(self.path).exists():
            self.rows, self.lengths = read_rows(self.path), read_rows(self._lengths_path, ("epoch",))
        # A model that can't be measured fails before it is trained.
        measure_couplings(self.model, self.inputs)
        class_outputs(self.model(self.inputs, training=False))

    def on_epoch_end(self, epoch, logs=None):
        epoch += 1
        self.rows = [row for row in self.rows if row["epoch"] < epoch]
        self.lengths = [row for row in self.lengths if row["epoch"] < epoch]
        for layer, iterations in measure_couplings(self.model, self.inputs).items():
            before = None
            for number, couplings in enumerate(iterations, 1):
                change = 0.0 if before is None else np.abs(couplings - before).mean() / max(couplings.mean(), 1e-30)
                row = {"epoch": epoch, "layer": layer, "iteration": number}
                row |= {"coupling_entropy": coupling_entropy(couplings), "dead_capsules": dead_capsules(couplings)}
                self.rows.append(row | {"change": float(change)})
                before = couplings
            self._warn(self.rows[-1])
        lengths = predict_probabilities(self.model, self.inputs)
        if lengths.min() < -0.001 or lengths.max() > 1.001:  # the logits of a model of another kind
            lengths = to_numpy(softmax(lengths))
        shares = np.histogram(np.clip(lengths, 0, 1), LENGTH_BINS, (0, 1))[0] / lengths.size
        for number, share in enumerate(shares):
            self.lengths.append({"epoch": epoch, "from": round(number / LENGTH_BINS, 2), "share": float(share)})
        if self.path is not None:
            write_csv(self.path, self.rows)
            write_csv(self._lengths_path, self.lengths)
        if self.log_dir is not None:
            self._log(epoch, lengths)

    def on_train_end(self, logs=None):
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _warn(self, row):
        """Warns once for each layer and finding, from the second epoch on: a first epoch is too early to judge."""
        found = {}
        if row["iteration"] > 1 and row["coupling_entropy"] > EVEN:
            found["even"] = (
                f"couplings are still even (entropy {row['coupling_entropy']:.3f} of 1), so routing does next to "
                "nothing. If votes are too small, a larger learning rate or initial kernel helps. Votes may also agree "
                "with all parents alike. Compare with iterations=1"
            )
        if row["dead_capsules"] > 0.5:
            hint = "fewer capsules, fewer iterations or a smaller learning rate may help"
            found["dead"] = f"{row['dead_capsules']:.0%} of the capsules get next to nothing from any child: {hint}"
        for finding, text in found.items():
            if row["epoch"] > 1 and (row["layer"], finding) not in self._warned:
                self._warned.add((row["layer"], finding))
                warnings.warn(f"Layer {row['layer']!r} after epoch {row['epoch']}: {text}.", stacklevel=2)

    def _log(self, epoch, lengths):
        self._writer = self._writer or tf.summary.create_file_writer(str(self.log_dir))
        with self._writer.as_default(step=epoch):
            for row in self.rows:
                if row["epoch"] == epoch:
                    place = f"routing/{row['layer']}/iteration_{row['iteration']}"
                    for name in ("coupling_entropy", "dead_capsules", "change"):
                        tf.summary.scalar(f"{place}/{name}", row[name])
            tf.summary.histogram("class_probabilities", lengths)
        self._writer.flush()


def read_rows(path, columns=("epoch", "layer", "iteration", "coupling_entropy", "dead_capsules", "change")):
    """The rows that a `RoutingDiagnostics` wrote, with numbers converted; [] if there is no file."""
    if not pathlib.Path(path).exists():
        return []
    kinds, complaint = {"epoch": int, "layer": str, "iteration": int}, "is no file of diagnostics"
    with reading(path, complaint):
        rows = read_csv(path, columns, complaint)
        return [{key: kinds.get(key, float)(text) for key, text in row.items()} for row in rows]
