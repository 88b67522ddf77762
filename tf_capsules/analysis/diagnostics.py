"""Does routing do anything? Measured after each epoch by a Keras callback, for any model with routing layers."""

import csv
import importlib.util
import inspect
import pathlib
import warnings

import keras
import numpy as np

from tf_capsules.analysis.measures import couplings_of_chain, stopped, to_numpy
from tf_capsules.files import read_csv, reading
from tf_capsules.layers import ConcurrentRouting
from tf_capsules.models import class_probabilities

EVEN = 0.99  # entropy from which on couplings are called even
DEAD = 0.1  # shares of an even one, below which a capsule gets next to nothing
LENGTH_BINS = 10


def measure_couplings(model, inputs):
    """The couplings of each routing layer after each of its iterations.

    Args:
        model: a `CapsuleClassifier` or a functional Keras model.
        inputs: what the model takes, a batch.

    Returns:
        Dict from the name of a layer, of a `ConcurrentRouting` of each layer of its chain, to a list of arrays
        (batch, ..., children, parents), one an iteration. Layers of one's own are found by the argument
        `return_couplings` of their call, and where they have no `iterations`, measured once.

    Raises:
        ValueError: a model that is not functional, or that has no routing layer.

    Example:
        >>> {name: len(each) for name, each in measure_couplings(model, images).items()}
        {'class_capsules': 3}
    """
    network = getattr(model, "encoder", model)
    if not isinstance(network, keras.Sequential) and not hasattr(network, "operations"):
        raise ValueError(f"Couplings are measured in a functional model or a CapsuleClassifier. Received: {model!r}")
    found = {}
    for layer in network.layers:
        chained = isinstance(layer, ConcurrentRouting)
        if not chained and "return_couplings" not in inspect.signature(layer.call).parameters:
            continue
        below = keras.Model(network.input, keras.tree.flatten(layer.input))(inputs, training=False)
        below = tuple(below) if isinstance(below, (tuple, list)) else (below,)
        if chained:
            found |= couplings_of_chain(layer, below)
            continue
        counts = range(1, layer.iterations + 1) if hasattr(layer, "iterations") else (None,)
        each = (layer if count is None else stopped(layer, count) for count in counts)
        found[layer.name] = [to_numpy(one(*below, return_couplings=True)[-1]) for one in each]
    if not found:
        raise ValueError(f"The model {model.name!r} has no layer whose call takes `return_couplings`.")
    return found


def coupling_entropy(couplings):
    """Mean entropy of how a child shares itself out, as a share of that of even couplings: 1 even, 0 all to one.

    Args:
        couplings: (..., children, parents), not negative; a child without any is left out.

    Returns:
        A number in [0, 1]; 0 for a single parent.

    Example:
        >>> round(coupling_entropy(np.array([[0.5, 0.5], [1.0, 0.0]])), 3)
        0.5
    """
    parents = couplings.shape[-1]
    mass = couplings.sum(-1)
    shares = couplings[mass > 0] / mass[mass > 0][:, None]
    if parents == 1 or not len(shares):
        return 0.0
    entropies = -(shares * np.log(np.maximum(shares, 1e-30))).sum(-1)
    return float(np.clip(entropies.mean() / np.log(parents), 0, 1))


def dead_capsules(couplings):
    """Share of the parents that in no example get a tenth of an even share.

    Args:
        couplings: (batch, ..., children, parents), not negative.

    Example:
        >>> dead_capsules(np.array([[[0.5, 0.49, 0.01]], [[0.01, 0.98, 0.01]]])) * 3
        1.0
    """
    masses = couplings.reshape(len(couplings), -1, couplings.shape[-1]).sum(1)
    relative = masses / np.maximum(masses.mean(-1, keepdims=True), 1e-30)
    return float((relative.max(0) < DEAD).mean())


class RoutingDiagnostics(keras.callbacks.Callback):
    """After each epoch: what routing does with a few examples, as rows, in a CSV file and in TensorBoard.

    For each routing layer and iteration `coupling_entropy`, the share of `dead_capsules`, and how much couplings have
    changed since the iteration before (mean absolute change over the mean coupling; 0 in the first); and the histogram
    of the class probabilities, which for many networks are lengths. It warns where routing does nothing, and says what
    to change.

    Args:
        inputs: what the model takes, a batch of 32 to 100.
        path: a CSV file, or None; a training that goes on adds to it. Histograms go beside it, "_lengths" in the name.
        log_dir: folder for TensorBoard, or None; needs TensorFlow.

    Attributes:
        rows: dicts of "epoch", "layer", "iteration", "coupling_entropy", "dead_capsules" and "change".
        lengths: dicts of "epoch", "from" and "share", ten bins an epoch.

    Raises:
        ValueError: where training begins: see `measure_couplings`.

    Example:
        >>> callback = RoutingDiagnostics(images[:50], "diagnostics.csv")
        >>> history = model.fit(images, labels, epochs=3, callbacks=[callback])
        >>> figures.routing_diagnostics(callback.rows)
    """

    def __init__(self, inputs, path=None, log_dir=None):
        super().__init__()
        self.inputs = inputs
        self.path = None if path is None else pathlib.Path(path)
        self.log_dir = log_dir
        self.rows, self.lengths, self._warned, self._writer = [], [], set(), None
        if log_dir is not None and importlib.util.find_spec("tensorflow") is None:
            raise ValueError("`log_dir` needs TensorFlow, which writes for TensorBoard.")

    def on_train_begin(self, logs=None):
        measure_couplings(self.model, self.inputs)  # fails now or never
        if self.path is not None and self.path.exists():
            self.rows, self.lengths = read_rows(self.path), read_rows(_lengths_path(self.path), ("epoch",))

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
        outputs = self.model(self.inputs, training=False)
        lengths = to_numpy(class_probabilities(self.model, outputs))
        shares = np.histogram(lengths, LENGTH_BINS, (0, 1))[0] / lengths.size
        self.lengths += [
            {"epoch": epoch, "from": round(i / LENGTH_BINS, 2), "share": float(share)} for i, share in enumerate(shares)
        ]
        if self.path is not None:
            _write_rows(self.path, self.rows)
            _write_rows(_lengths_path(self.path), self.lengths)
        if self.log_dir is not None:
            self._log(epoch, lengths)

    def _warn(self, row):
        """Once for each layer and finding, from the second epoch on: before, no network has learned to route."""
        found = {}
        if row["iteration"] > 1 and row["coupling_entropy"] > EVEN:
            found["even"] = (
                f"couplings are still even (entropy {row['coupling_entropy']:.3f} of 1), so routing does next to "
                "nothing: votes may be too small, for which a larger learning rate or initial kernel helps, or agree "
                "with all parents alike; compare with iterations=1"
            )
        if row["dead_capsules"] > 0.5:
            found["dead"] = (
                f"{row['dead_capsules']:.0%} of the capsules get next to nothing from any child: fewer capsules, fewer "
                "iterations or a smaller learning rate may help"
            )
        for finding, text in found.items():
            if row["epoch"] > 1 and (row["layer"], finding) not in self._warned:
                self._warned.add((row["layer"], finding))
                warnings.warn(f"Layer {row['layer']!r} after epoch {row['epoch']}: {text}.", stacklevel=2)

    def _log(self, epoch, lengths):
        import tensorflow as tf

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
    """The rows that a `RoutingDiagnostics` has written, numbers as numbers; none where there is no file."""
    if not pathlib.Path(path).exists():
        return []
    whole = ("epoch", "iteration")
    complaint = "is no file of diagnostics"
    with reading(path, complaint):
        return [
            {key: text if key == "layer" else int(text) if key in whole else float(text) for key, text in row.items()}
            for row in read_csv(path, columns, complaint)
        ]


def _lengths_path(path):
    return path.with_name(f"{path.stem}_lengths{path.suffix}")


def _write_rows(path, rows):
    new = path.with_name(path.name + ".new")
    with new.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    new.replace(path)  # never half a file
