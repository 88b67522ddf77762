import importlib.util
import os
import pathlib
import signal
import socket
import subprocess
import sys
import types

import keras
import numpy as np
import pytest

from tf_capsules import recipes
from tf_capsules.runs import RunFolder, Settings, TrainingError, distributed

REPOSITORY = pathlib.Path(__file__).parents[2]
needs_jax = pytest.mark.skipif(not importlib.util.find_spec("jax"), reason="processes train together on JAX")

START = f"""
import functools, sys
sys.path[:0] = [{str(REPOSITORY)!r}, {str(REPOSITORY / "tests")!r}]
import jax
# That a process is gone is noticed after so long; 100 seconds otherwise.
jax.distributed.initialize = functools.partial(jax.distributed.initialize, heartbeat_timeout_seconds=10)
jax.config.update("jax_disable_most_optimizations", True)  # compiles in a fraction of the time
coordinator, processes, process, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
"""

TRAIN = f"""{START}
import os, signal
from small_runs import RECTIFIED
from tf_capsules import runs
from tf_capsules.losses import SpreadLoss
from tf_capsules.runs import training

class Killed(training.Recorder):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2 and process == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        super().on_epoch_begin(epoch, logs)

if "killed" in sys.argv:
    training.Recorder = Killed
together = dict(processes=processes, process=process, coordinator=coordinator) if processes > 1 else {{}}
# 131 examples in batches of 50: of the last batch process 0 has 25, process 1 has 6 and a fill.
settings = runs.Settings(train_limit=131, test_limit=31, **together)
recipe = RECTIFIED.replace(loss=SpreadLoss, margin_schedule="sigmoid", learning_rate=0.1, epochs=3)
row = folder + ".csv" if process == 0 else None  # process 0 alone writes
run = runs.train(recipe, folder, settings, resume=True, verbose=0, results=row)
run.model.predict_on_batch(run.examples(3)[0])  # each can call it without the others
print(run.result["value"], run.result["strategy"])
"""

GROUP = f"""{START}
import pathlib
from tf_capsules.runs import Settings, TrainingError, distributed

settings = Settings(processes=processes, process=process, coordinator=coordinator)
for batch_size in (7, 8):
    try:
        group = distributed.join_processes(settings, batch_size)
    except TrainingError as error:
        print(error)

def fails():
    if process == 1:
        raise TrainingError("no data here")

print(group.part, group.run_on_first(lambda: {{"epochs": [process, 2]}}), group.run_on_all(lambda: process))
for call in (lambda: group.run_on_all(fails), lambda: group.check_equal(seed=0, data=process)):
    try:
        call()
    except TrainingError as error:
        print(error)
group.check_equal(seed=0)
file = pathlib.Path(folder, "of the first")
if process == 0:
    file.write_bytes(b"weights")
with group.first_weights(None if process else file) as path:
    print(path == file, path.read_bytes())
"""


def start(script, folder, *options, processes=2):
    """Starts `processes` processes that train together on one folder; returns them."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        coordinator = f"localhost:{free.getsockname()[1]}"
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    return [
        subprocess.Popen(
            [sys.executable, "-c", script, coordinator, str(processes), str(index), str(folder), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for index in range(processes)
    ]


def answers(processes):
    """The lines that each process printed; all must end without an error."""
    said = [process.communicate(timeout=300) for process in processes]
    assert not any(process.returncode for process in processes), "\n".join(errors[-3000:] for _, errors in said)
    return [[line for line in out.splitlines() if not line.startswith("[Gloo]")] for out, _ in said]


@needs_jax
def test_two_processes_give_the_weights_of_one_also_after_one_was_killed(tmp_path):
    whole = start(TRAIN, tmp_path / "one", processes=1)
    first, second = start(TRAIN, tmp_path / "two", "killed")
    try:
        _, errors = first.communicate(timeout=300)
        assert first.returncode, "process 0 went on without process 1"
        assert second.wait() == -signal.SIGKILL
    finally:
        first.kill()
        second.communicate()
    assert RunFolder(tmp_path / "two").checkpoints() == [2], errors[-3000:]
    resumed = answers(start(TRAIN, tmp_path / "two"))
    assert len((tmp_path / "two.csv").read_text().splitlines()) == 2
    [[alone]] = answers(whole)
    value, strategy = alone.split(" ", 1)
    assert strategy == "none"
    for [line] in resumed:
        value_of_two, strategy = line.split(" ", 1)
        assert strategy == "processes x 2" and float(value_of_two) == pytest.approx(float(value), abs=1e-5)

    from h5py import File

    with File(tmp_path / "one" / "last-0003.weights.h5") as a, File(tmp_path / "two" / "last-0003.weights.h5") as b:
        compared = []

        def same(name, dataset):
            if hasattr(dataset, "shape"):
                compared.append(name)
                np.testing.assert_allclose(dataset[()], b[name][()], atol=1e-5, err_msg=name)

        a.visititems(same)
    assert len(compared) > 10 and any("optimizer" in name for name in compared)
    histories = [RunFolder(tmp_path / name).history() for name in ("one", "two")]
    assert [row["epoch"] for row in histories[1]] == [1, 2, 3]
    for a, b in zip(*histories, strict=True):
        assert a["val_loss"] == pytest.approx(b["val_loss"], rel=1e-4)
        assert a["val_accuracy"] == pytest.approx(b["val_accuracy"], abs=1e-5)


@needs_jax
def test_what_fails_or_differs_in_one_process_stops_all(tmp_path):
    first, second = answers(start(GROUP, tmp_path))
    indivisible = "--batch-size 7 can't be shared evenly by the 2 devices of --processes 2."
    other = "Process 1 of 2 has other data than process 0: start all with the same command except for --process."
    failed = "Process 1 of 2 can't start: its own message says why."
    assert first == [indivisible, "(0, 2) {'epochs': [0, 2]} 0", failed, other, "True b'weights'"]
    assert second == [indivisible, "(1, 2) {'epochs': [0, 2]} 1", "no data here", other, "False b'weights'"]


def test_without_processes_nothing_is_asked_of_jax(tmp_path):
    group = distributed.join_processes(Settings(), 7)
    assert group.part is None and group.run_on_first(lambda: {1}) == {1} and group.run_on_all(lambda: 2) == 2
    with group.first_weights(tmp_path) as path, group.scope():
        assert path == tmp_path and keras.distribution.distribution() is None
    group.check_equal(data=object())


@pytest.mark.parametrize(
    ("settings", "backend", "message"),
    [
        (dict(processes=2), "jax", "go together. Received: --processes 2$"),
        (dict(processes=2, process=2), "jax", "go together"),
        (dict(processes=0, process=0), "jax", "--processes must be at least 1. Received: 0"),
        (dict(processes=2, process=2, coordinator="a:1"), "jax", "--process must be from 0 to 1. Received: 2"),
        (dict(processes=1, process=1), "jax", "--process must be from 0 to 0. Received: 1"),
        (dict(process=1), "jax", "go together. Received: --process 1$"),
        (dict(processes=2, process=-1, coordinator="a:1"), "jax", "--process must be from 0 to 1. Received: -1"),
        (dict(processes=2, process=0, coordinator="a"), "jax", "--coordinator must be HOST:PORT. Received: a"),
        (dict(processes=2, process=0, coordinator="a:1"), "tensorflow", "needs the JAX backend.*Received: tensorflow"),
        (dict(processes=3, process=0, coordinator="a:1"), "jax", "--batch-size 32 can't be shared evenly by --proc"),
        (dict(processes=2, process=0, coordinator="a:1", jit="off"), "jax", "--jit off does not work with --proc"),
        (dict(processes=2, process=0, coordinator="a:1", diagnostics=True), "jax", "--diagnostics does not work"),
    ],
)
def test_wrong_settings_are_named_before_anything_is_joined(settings, backend, message, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: backend)
    with pytest.raises(TrainingError, match=message):
        Settings(**settings).check(recipes.get("sabour2017-digits"))


def test_a_checkpoint_may_be_larger_than_a_number_of_32_bits(monkeypatch):
    sent = []

    def broadcast(array):
        sent.append(array)
        return np.array([1, 5], np.int32) if len(sent) == 1 else np.zeros(3, np.uint8)

    monkeypatch.setattr(distributed, "multihost_utils", types.SimpleNamespace(broadcast_one_to_all=broadcast))
    assert distributed.ProcessGroup(2, 1)._bytes_from_first(b"") == bytes(3)
    assert sent[1].size == 2**31 + 5  # zeros that nothing fills
