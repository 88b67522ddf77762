"""Writes state dicts as `torch.save` does, without PyTorch, so that tests can also write wrong ones."""

import io
import pickle
import zipfile
from collections import OrderedDict

import numpy as np

STORAGES = {"float32": "FloatStorage", "float64": "DoubleStorage", "float16": "HalfStorage", "int64": "LongStorage"}


class Global:
    """A class or function, which the pickle stores by its name."""

    def __init__(self, name):
        self.name = name


class Call:
    """The result of calling the function of this name, which the pickle stores as the call."""

    def __init__(self, name, *arguments):
        self.name, self.arguments = Global(name), arguments


class Storage:
    def __init__(self, reference):
        self.reference = reference


class Pickler(pickle._Pickler):  # written in Python, so its steps can be changed, unlike those of the C version
    def persistent_id(self, thing):
        return thing.reference if isinstance(thing, Storage) else None

    def save(self, thing, save_persistent_id=True):
        if isinstance(thing, Global):
            self.write(f"c{thing.name[::-1].replace('.', chr(10), 1)[::-1]}\n".encode())
        elif isinstance(thing, Call):
            self.save(thing.name)
            self.save(thing.arguments)
            self.write(pickle.REDUCE)
        else:
            super().save(thing, save_persistent_id)


def tensor(key, array, view=(), **changes):
    """A tensor in a pickle; `changes` may replace its "count", "offset", "shape", "strides"."""
    strides = tuple(stride // array.itemsize for stride in array.strides)
    given = {"count": array.size, "offset": 0, "shape": array.shape, "strides": strides} | changes
    storage = Storage(("storage", Global(f"torch.{STORAGES[array.dtype.name]}"), key, "cpu", given["count"], *view))
    arguments = storage, given["offset"], given["shape"], given["strides"], False, OrderedDict()
    return Call("torch._utils._rebuild_tensor_v2", *arguments)


def write(path, arrays, zipped=True, **entries):
    """Writes arrays as a state dict; `entries` add to or replace entries of the pickled dict."""
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    keys = {name: str(94_000_000 + number) for number, name in enumerate(arrays)}
    view = () if zipped else (None,)
    state = OrderedDict((name, tensor(keys[name], array, view)) for name, array in arrays.items())
    state.update(entries)
    state._metadata = OrderedDict({"": {"version": 1}})
    if zipped:
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in {
                "data.pkl": pickled(state),
                "byteorder": b"little",
                **{f"data/{keys[name]}": array.tobytes() for name, array in arrays.items()},
                "version": b"3\n",
            }.items():
                archive.writestr(f"{path.stem}/{name}", content)
        return path
    machine = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}
    parts = (0x1950A86A20F9469CFC6C, 1001, machine, state, sorted(keys.values()))
    storages = b"".join(
        arrays[name].size.to_bytes(8, "little") + arrays[name].tobytes() for name in sorted(keys, key=keys.get)
    )
    path.write_bytes(b"".join(map(pickled, parts)) + storages)
    return path


def pickled(thing):
    file = io.BytesIO()
    Pickler(file, protocol=2).dump(thing)
    return file.getvalue()
