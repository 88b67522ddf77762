"""Training shared by the devices of one machine (TensorFlow), or by several machines, a process each (JAX)."""

import contextlib
import dataclasses
import json
import pathlib
import tempfile
import zlib

import keras
import numpy as np

from tf_capsules.lazy import jax, multihost_utils, tf
from tf_capsules.runs.errors import TrainingError, check_shared


@dataclasses.dataclass(frozen=True)
class ProcessGroup:
    """The processes that train one model together. All have to call its methods, at the same place of the program."""

    count: int = 1  # how many there are
    index: int = 0  # which of them this is; process 0 reads and writes the run folder
    distribution: object = None  # a `keras.distribution.DataParallel` over the devices of all, or None

    @property
    def part(self):
        """The option `part` of `Split.batches` for this process: its part of each batch; None: the whole batch."""
        return None if self.distribution is None else (self.index, self.count)

    def scope(self):
        """The scope to build and train a model in: its variables lie on all devices, and these share each batch."""
        return contextlib.nullcontext() if self.distribution is None else self.distribution.scope()

    def run_on_all(self, function, *args):
        """Calls a function in each process and returns its result there; an error in one process ends all."""
        if self.count == 1:
            return function(*args)
        result = error = None
        try:
            result = function(*args)
        except Exception as caught:
            error = caught
        failed = np.flatnonzero(self._gathered(int(error is not None)))
        if error is not None:
            raise error
        if len(failed):
            raise TrainingError(f"Process {failed[0]} of {self.count} can't start: its own message says why.")
        return result

    def run_on_first(self, function, *args):
        """Calls a function in process 0 alone and returns its result, of JSON values, in all processes."""
        if self.count == 1:
            return function(*args)
        text = self.run_on_all(lambda: json.dumps(function(*args)).encode() if self.index == 0 else b"")
        return json.loads(self._bytes_from_first(text))

    @contextlib.contextmanager
    def first_weights(self, path):
        """Yields the path of a copy of process 0's weights file on this machine. Other processes pass None."""
        content = self._bytes_from_first(b"" if path is None else path.read_bytes()) if self.count > 1 else None
        if self.index == 0:
            yield path
            return
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "copy.weights.h5"
            copy.write_bytes(content)
            yield copy

    def check_equal(self, **values):
        """Raises a TrainingError in all processes if a value (one that JSON can hold) differs in one of them."""
        for name, value in values.items() if self.count > 1 else ():
            digests = self._gathered(zlib.crc32(json.dumps(value, sort_keys=True).encode()) & 0x7FFFFFFF)
            others = np.flatnonzero(digests != digests[0])
            if len(others):
                raise TrainingError(
                    f"Process {others[0]} of {self.count} has other {name} than process 0: start all with the same "
                    "command except for --process."
                )

    def _gathered(self, number):
        """The whole numbers that the processes give, an array."""
        return np.asarray(multihost_utils.process_allgather(np.int32(number)))

    def _bytes_from_first(self, content):
        size = np.array(divmod(len(content), 2**31), np.int32)  # in two numbers: JAX has no int64
        high, low = map(int, multihost_utils.broadcast_one_to_all(size))
        sent = np.frombuffer(content, np.uint8) if self.index == 0 else np.zeros(high * 2**31 + low, np.uint8)
        return np.asarray(multihost_utils.broadcast_one_to_all(sent)).tobytes()


def join_processes(settings, batch_size):
    """Joins the processes that train together, waits until all are there, and returns the `ProcessGroup`.

    If `settings.processes` is None, the group is this process alone. Raises a TrainingError if the others can't be
    reached, have other numbers of devices, or can't share a batch evenly.
    """
    if settings.processes is None:
        return ProcessGroup()
    count, index = settings.processes, settings.process or 0
    if count > 1 and not jax.distributed.is_initialized():
        try:
            keras.distribution.initialize(settings.coordinator, count, index)
        except (RuntimeError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise TrainingError(
                f"Process {index} of {count} can't join the others at --coordinator {settings.coordinator}: {reason}"
            ) from error
    devices = keras.distribution.list_devices()
    group = ProcessGroup(count, index, keras.distribution.DataParallel(devices=devices, auto_shard_dataset=False))
    own = group._gathered(jax.local_device_count()) if count > 1 else np.array([len(devices)])
    if len(set(own.tolist())) > 1:
        raise TrainingError(f"Each process must have as many devices as the others. They have: {own.tolist()}")
    check_shared(batch_size, len(devices), f"the {len(devices)} devices of --processes {count}")
    return group


def mirrored_strategy(devices, batch_size):
    """A MirroredStrategy over `devices` GPUs, or logical CPUs if there is no GPU; a TrainingError if it can't be."""
    gpus = tf.config.list_physical_devices("GPU")
    count = devices or len(gpus) or 1
    if gpus and count > len(gpus):
        raise TrainingError(f"--devices {devices}, but this machine has {len(gpus)} GPU{'s' * (len(gpus) > 1)}.")
    check_shared(batch_size, count, f"{count} devices")
    if not gpus:
        cpu = tf.config.list_physical_devices("CPU")[0]
        try:
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
        except RuntimeError as error:
            if len(tf.config.list_logical_devices("CPU")) < count:
                raise TrainingError(
                    f"TensorFlow runs already, with fewer than {count} CPU devices: start a new process."
                ) from error
    return tf.distribute.MirroredStrategy([f"{'GPU' if gpus else 'CPU'}:{i}" for i in range(count)])
