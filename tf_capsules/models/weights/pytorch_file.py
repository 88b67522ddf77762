"""Reads a state dict that `torch.save` wrote, without PyTorch.

Such a file holds a pickle that names the tensors, and their numbers: since PyTorch 1.6 in a zip archive, before that in
sequence. A pickle can call any function; here it can name only the parts of tensors.
"""

import collections
import math
import os
import pickle
import typing
import zipfile

import numpy as np

from tf_capsules.files import reading

_DTYPES = {"FloatStorage": "<f4", "DoubleStorage": "<f8", "HalfStorage": "<f2", "LongStorage": "<i8"}
_MAGIC_NUMBER = 0x1950A86A20F9469CFC6C  # of the form before 1.6


class _Storage(typing.NamedTuple):
    """A row of numbers, which tensors view."""

    key: str
    dtype: str
    length: int

    @property
    def size(self):
        return self.length * np.dtype(self.dtype).itemsize


class _Tensor(typing.NamedTuple):
    storage: _Storage
    offset: int
    shape: tuple
    strides: tuple

    def array(self, content):
        """The tensor's numbers, from the bytes of its storage."""
        if len(content) != self.storage.size:
            raise ValueError(f"its storage {self.storage.key} has {len(content)} of {self.storage.size} bytes")
        last = self.offset + sum((n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True))
        count = math.prod(self.shape)
        if min(self.offset, *self.shape, *self.strides, 0) < 0 or count > self.storage.length:
            raise ValueError(f"a tensor of shape {self.shape} is no view of {self.storage.length} numbers")
        if count and last >= self.storage.length:
            raise ValueError(f"a tensor of shape {self.shape} goes beyond its {self.storage.length} numbers")
        numbers = np.frombuffer(content, self.storage.dtype)[self.offset :]
        strides = [stride * numbers.itemsize for stride in self.strides]
        return np.lib.stride_tricks.as_strided(numbers, self.shape, strides).copy()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda storage, offset, shape, strides, *_: _Tensor(storage, offset, shape, strides)
        if module == "torch" and name in _DTYPES:
            return _DTYPES[name]
        raise ValueError(f"it names {module}.{name}, which is no part of a state dict of float or long tensors")

    def persistent_load(self, reference):
        kind, dtype, key, _, count, *view = reference
        if kind != "storage" or not isinstance(count, int) or any(view):
            raise ValueError(f"it has a reference of an unknown kind, {reference!r}")
        return _Storage(key, dtype, count)


def read_state_dict(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """The arrays of a PyTorch state dict, by their names.

    Args:
        path: a file of `torch.save(module.state_dict(), path)`, of any version of PyTorch.

    Raises:
        ValueError: the file is of another kind or damaged, or holds something other than float and long tensors.
    """
    with reading(path, "can't be read as a PyTorch state dict"), open(path, "rb") as file:
        zipped = file.read(4) == b"PK\x03\x04"
        file.seek(0)
        tensors, contents = (_of_archive if zipped else _of_sequence)(file)
        return {name: tensor.array(contents[tensor.storage]) for name, tensor in tensors.items()}


def _of_archive(file):
    """The tensors and the contents of their storages, of PyTorch 1.6 and later."""
    with zipfile.ZipFile(file) as archive:
        entries = {entry.filename.partition("/")[2]: entry for entry in archive.infolist()}
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries.values()):
            raise ValueError("its entries are compressed; PyTorch does not compress them")
        if "byteorder" in entries and archive.read(entries["byteorder"]) != b"little":
            raise ValueError("its numbers are big-endian")
        with archive.open(entries["data.pkl"]) as pickled:
            tensors = _checked(_Unpickler(pickled).load())
        storages = {tensor.storage for tensor in tensors.values()}
        return tensors, {storage: archive.read(entries[f"data/{storage.key}"]) for storage in storages}


def _of_sequence(file):
    """The same before 1.6: a number that marks the form, its version, the machine, tensors, keys, then each storage."""
    if _Unpickler(file).load() != _MAGIC_NUMBER:
        raise ValueError("it was not written by torch.save")
    _, machine = _Unpickler(file).load(), _Unpickler(file).load()
    if not machine["little_endian"]:
        raise ValueError("its numbers are big-endian")
    tensors = _checked(_Unpickler(file).load())
    storages = {tensor.storage.key: tensor.storage for tensor in tensors.values()}
    contents = {}
    for key in _Unpickler(file).load():
        storage = storages[key]
        if file.read(8) != storage.length.to_bytes(8, "little"):
            raise ValueError(f"its storage {key} does not hold the {storage.length} numbers that its tensors use")
        contents[storage] = file.read(storage.size)
    return tensors, contents


def _checked(tensors):
    if not isinstance(tensors, dict):
        raise ValueError(f"it holds {type(tensors).__name__}, no dict of tensors")
    for name, tensor in tensors.items():
        if not isinstance(tensor, _Tensor):
            raise ValueError(f"its entry {name!r} is no tensor")
    return tensors
