"""Several machines train one model: a process each, through Keras's distribution API on the JAX backend."""

import contextlib
import dataclasses
import json
import pathlib
import tempfile
import zlib

import keras
import numpy as np

from tf_capsules.settings import TrainingError


@dataclasses.dataclass(frozen=True)
class Team:
    """The processes that train one model together, as one of them sees them.

    Its methods are called by all of them, at the same place of the program.

    Attributes:
        count: how many there are.
        index: which of them this is. Process 0 reads and writes the run folder.
        distribution: a `keras.distribution.DataParallel` over the devices of all; None without `Settings.processes`.
    """

    count: int = 1
    index: int = 0
    distribution: object = None

    @property
    def part(self):
        """What this process makes of each batch, as `Split.batches` takes it; None for all of it."""
        return None if self.distribution is None else (self.index, self.count)

    def scope(self):
        """Where a model is built and trained: its variables lie on all devices, which share each batch."""
        return contextlib.nullcontext() if self.distribution is None else self.distribution.scope()

    def together(self, function, *args):
        """What a function returns; where it raises a TrainingError in one process, all of them raise one."""
        if self.count == 1:
            return function(*args)
        result = error = None
        try:
            result = function(*args)
        except TrainingError as caught:
            error = caught
        failed = np.flatnonzero(self._gathered(int(error is not None)))
        if error is not None:
            raise error
        if len(failed):
            raise TrainingError(f"Process {failed[0]} of {self.count} can't start: its own message says why.")
        return result

    def from_first(self, function, *args):
        """What a function that process 0 alone calls returns there, in all; JSON must be able to hold it."""
        if self.count == 1:
            return function(*args)
        text = self.together(lambda: json.dumps(function(*args)).encode() if self.index == 0 else b"")
        return json.loads(self._bytes_from_first(text))

    @contextlib.contextmanager
    def weights_from_first(self, path):
        """A path at which each process finds the weights file that process 0 names; the others give None."""
        content = self._bytes_from_first(b"" if path is None else path.read_bytes()) if self.count > 1 else None
        if self.index == 0:
            yield path
            return
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "copy.weights.h5"
            copy.write_bytes(content)
            yield copy

    def check_equal(self, **values):
        """Raises a TrainingError in all processes where a value, which JSON can hold, is another one in one of them."""
        for name, value in values.items() if self.count > 1 else ():
            digests = self._gathered(zlib.crc32(json.dumps(value, sort_keys=True).encode()) & 0x7FFFFFFF)
            others = np.flatnonzero(digests != digests[0])
            if len(others):
                raise TrainingError(
                    f"Process {others[0]} of {self.count} has other {name} than process 0: start all of them with the "
                    "same command but for --process."
                )

    def _gathered(self, number):
        """The whole numbers that the processes give, an array."""
        from jax.experimental import multihost_utils

        return np.asarray(multihost_utils.process_allgather(np.int32(number)))

    def _bytes_from_first(self, content):
        from jax.experimental import multihost_utils

        size = int(multihost_utils.broadcast_one_to_all(np.int32(len(content))))
        sent = np.frombuffer(content, np.uint8) if self.index == 0 else np.zeros(size, np.uint8)
        return np.asarray(multihost_utils.broadcast_one_to_all(sent)).tobytes()


@contextlib.contextmanager
def alone():
    """Where one process makes variables that are its own: elsewhere that waits for the others to do the same."""
    distribution = keras.distribution.distribution()
    keras.distribution.set_distribution(None)
    try:
        yield
    finally:
        keras.distribution.set_distribution(distribution)


def join(settings, batch_size):
    """Joins the processes that train together, which waits until all of them are there.

    Args:
        settings: `Settings`, checked.
        batch_size: examples a step, over all devices.

    Returns:
        A `Team`; of this process alone where `settings.processes` is None.

    Raises:
        TrainingError: the others can't be reached, the machines have unlike numbers of devices, or a batch can't be
            shared evenly by all devices.
    """
    if settings.processes is None:
        return Team()
    import jax

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
    team = Team(count, index, keras.distribution.DataParallel(devices=devices, auto_shard_dataset=False))
    own = team._gathered(jax.local_device_count()) if count > 1 else np.array([len(devices)])
    if len(set(own.tolist())) > 1:
        raise TrainingError(f"Each process must have as many devices as the others. They have: {own.tolist()}")
    if batch_size % len(devices):
        raise TrainingError(
            f"--batch-size {batch_size} can't be shared evenly by the {len(devices)} devices of --processes {count}."
        )
    return team
