"""Keras weight files: checks them before they are loaded, seals them, keeps random states and the epoch."""

import collections
import contextlib
import hashlib
import io
import os
import warnings
import zipfile

import h5py
import keras
from keras import ops

from tf_capsules.files import reading


def fill(model: keras.Model, path: str | os.PathLike):
    """The model, with the weights of a Keras file; its optimizer, if it has one, is loaded, too.

    Only numbers are read, even from a .keras file. If `seal` wrote a checksum into the file, it is checked.

    Raises:
        ValueError: no such file of this network, damaged, or with values that are not finite.
    """
    with reading(path, f"does not hold weights of the network {model.name!r}"), warnings.catch_warnings():
        # Keras only warns of parts that the file lacks, and leaves them at their initial values.
        warnings.filterwarnings("error", "Skipping nested container", UserWarning)
        _check(model, path)
        model.load_weights(path)
        for weight in model.weights:
            if not ops.all(ops.isfinite(weight)):
                raise ValueError(f"{weight.path} has values that are not finite")
    return model


def seal(path: str | os.PathLike):
    """Writes a checksum of all numbers into a file of Keras weights, since HDF5 does not notice flipped bits."""
    with h5py.File(path, "r+") as file:
        file.attrs["sha256"] = _checksum(file)


def save_state(model: keras.Model, path: str | os.PathLike, epoch: int):
    """Adds to a file of Keras weights the finished epochs and the states of random generators, such as of dropout."""
    with h5py.File(path, "r+") as file:
        file.attrs["epoch"] = epoch
        file.attrs["random_states"] = [ops.convert_to_numpy(state) for state in _random_states(model)]


def saved_epoch(path: str | os.PathLike):
    """The number of finished epochs; None for a file of a version that did not save it."""
    with reading(path, "does not hold weights"), h5py.File(path) as file:
        return int(file.attrs["epoch"]) if "epoch" in file.attrs else None


def has_decoder(path: str | os.PathLike):
    """Whether a file of Keras weights has those of a decoder; True for a file of another form."""
    with contextlib.suppress(Exception), h5py.File(_hdf5(path)) as file:
        return "encoder" not in file or "decoder" in file
    return True  # whoever loads a damaged file, or one that is not HDF5, reports it


def _hdf5(path):
    """What h5py opens: the path; of a .keras file, whose archive has checksums, the weights inside, in memory."""
    if not zipfile.is_zipfile(path):
        return path
    with zipfile.ZipFile(path) as archive:
        if "model.weights.h5" not in archive.namelist():
            raise ValueError("it is an archive, but not a .keras file")
        return io.BytesIO(archive.read("model.weights.h5"))


def load_random_states(model: keras.Model, path: str | os.PathLike):
    """Restores what `save_state` wrote; a file of a version that did not save them leaves them as they are."""
    with h5py.File(path) as file:
        saved = file.attrs.get("random_states", ())
    states = _random_states(model)
    if len(saved) and len(saved) != len(states):
        raise ValueError(f"{path} has the states of {len(saved)} random generators, {model.name!r} has {len(states)}.")
    for state, value in zip(states, saved, strict=False):
        state.assign(value)


def _random_states(model):
    weights = set(map(id, model.weights))
    return [variable for variable in model.variables if id(variable) not in weights]


def _check(model, path):
    """Raises a ValueError for numbers that were changed, and for a network of other sizes or parts.

    Keras reports another shape as another version, and does not mention arrays that it leaves out. The network may
    lack the file's optimizer, decoder and growing margin; the file may lack the network's growing margin.
    """
    if not zipfile.is_zipfile(path) and not h5py.is_hdf5(path):
        return
    with h5py.File(_hdf5(path)) as file:
        if "sha256" in file.attrs and file.attrs["sha256"] != _checksum(file):
            raise ValueError("its numbers are not those that were written")
        shapes = {name: array.shape for name, array in _arrays(file).items() if "optimizer" not in name.split("/")}
    shapes = {name: shape for name, shape in shapes.items() if not name.startswith("growing_margins/")}
    bare = {name: shape for name, shape in shapes.items() if not name.startswith("decoder/")}
    counts = {id(count) for margin in getattr(model, "growing_margins", ()) for count in margin.weights}
    wanted = collections.Counter(weight.shape for weight in model.weights if id(weight) not in counts)
    missed, unused = wanted - collections.Counter(shapes.values()), collections.Counter(bare.values()) - wanted
    decoder = getattr(model, "decoder", None) if bare == shapes else None  # the file has none
    if missed and decoder and missed == collections.Counter(weight.shape for weight in decoder.weights):
        one = "`decoder=None` or `decoder_units=None`, in a command `--network decoder=none` or decoder_units=none"
        raise ValueError(f"it has no weights of a decoder; make the network without one: {one}")
    if missed or unused:
        lacks, has = (", ".join(map(str, list(each)[:3])) for each in (missed, unused))
        words = [f"lacks arrays of shape {lacks} that the network has"] if missed else []
        words += [f"has arrays of shape {has} that the network lacks"] if unused else []
        raise ValueError(f"it {' and '.join(words)}; are the weights of another size or recipe?")


def _arrays(file):
    """The arrays of an HDF5 file, in the order of their names."""
    found = {}
    file.visititems(lambda name, item: found.update({name: item} if hasattr(item, "shape") else {}))
    return found


def _checksum(file):
    digest = hashlib.sha256()
    for name, array in _arrays(file).items():
        digest.update(f"{name} {array.dtype} {array.shape}".encode() + array[()].tobytes())
    return digest.hexdigest()
