import os
import pathlib
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from pytorch_files import Call, Global, Storage, pickled, tensor, write

from tf_capsules.models.weights.pytorch_file import read_state_dict

ARRAYS = {
    "convolve.0.weight": np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype("float32"),
    "half": np.float16([1, 2.5]),
    "norm.num_batches_tracked": np.int64(7),
    "double": np.arange(3.0),
    "none": np.zeros((0, 4), "float32"),
}
FORMS = pytest.mark.parametrize("zipped", [True, False], ids=["archive", "sequence"])


def assert_equal(found, arrays):
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


@FORMS
def test_arrays_are_read_from_both_forms(tmp_path, zipped):
    assert_equal(read_state_dict(write(tmp_path / "state.pt", ARRAYS, zipped)), ARRAYS)


@FORMS
def test_what_pytorch_itself_writes_is_read(tmp_path, zipped):
    """Runs PyTorch in a separate process, since PyTorch and TensorFlow can conflict in one."""
    np.savez(tmp_path / "arrays.npz", **ARRAYS)
    script = f"""
import numpy, torch
arrays = {{name: torch.from_numpy(array) for name, array in numpy.load("arrays.npz").items()}}
whole = arrays["convolve.0.weight"]
arrays |= {{"part": whole[1:, :, 2:], "turned": whole.transpose(0, 3), "norm": torch.nn.BatchNorm2d(6).weight}}
arrays["norm"] = arrays["norm"].detach()
torch.save(arrays, "state.pt", _use_new_zipfile_serialization={zipped})
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, env=os.environ)
    if "No module named 'torch'" in done.stderr:
        pytest.skip("needs the package torch")
    assert done.returncode == 0, done.stderr
    whole = ARRAYS["convolve.0.weight"]
    views = {"part": whole[1:, :, 2:], "turned": whole.transpose(3, 1, 2, 0), "norm": np.ones(6, "float32")}
    assert_equal(read_state_dict(tmp_path / "state.pt"), ARRAYS | views)


@FORMS
@pytest.mark.parametrize("name", ["os.system", "builtins.eval", "torch.storage._load_from_bytes", "torch.load"])
def test_no_other_function_is_called(tmp_path, zipped, name):
    mark = tmp_path / "called"
    path = write(tmp_path / "state.pt", ARRAYS, zipped, evil=Call(name, f"touch {mark}"))
    with pytest.raises(ValueError, match=f"state.pt can't be read as a PyTorch state dict: it names {name}"):
        read_state_dict(path)
    assert not mark.exists()


def view(**changes):
    return tensor("94000000", ARRAYS["convolve.0.weight"], **changes)


@pytest.mark.parametrize(
    "entry, words",
    [
        (view(offset=1), "beyond its 120 numbers"),
        (view(shape=(6, 21), strides=(1, 1)), "is no view of 120 numbers"),
        (view(shape=(2, 3), strides=(0, 119)), "beyond its 120 numbers"),
        (view(shape=(2,), strides=(-1,), offset=1), "is no view"),
        (view(shape=(-2,), strides=(1,)), "is no view"),
        (view(offset=-1, shape=(2,), strides=(1,)), "is no view"),
        (view(shape=(2, 3)), "argument 2 is longer"),
        (view(count=10**15), "has 480 of 4000000000000000 bytes"),
        (view(count="120"), "a reference of an unknown kind"),
        (tensor("1", np.ones(2)), "lacks 'data/1'"),
        (Storage(("module", Global("torch.FloatStorage"), "0", "cpu", 1)), "a reference of an unknown kind"),
        (Storage("0"), "not enough values to unpack"),
        (Global("torch.FloatStorage"), "its entry 'entry' is no tensor"),
        ([1, 2], "its entry 'entry' is no tensor"),
        (Call("torch.BFloat16Storage"), "names torch.BFloat16Storage"),
    ],
)
def test_wrong_entries_are_refused(tmp_path, entry, words):
    with pytest.raises(ValueError, match=f"state.pt can't be read as a PyTorch state dict: .*{words}"):
        read_state_dict(write(tmp_path / "state.pt", ARRAYS, entry=entry))


@FORMS
def test_damaged_files_are_refused(tmp_path, zipped):
    path = write(tmp_path / "state.pt", ARRAYS, zipped)
    whole = path.read_bytes()
    for content in (b"", b"PK\x03\x04", b"hello", whole[:50], whole[: len(whole) // 2], whole[:-1], pickled(3)):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"^{path} can't be read as a PyTorch state dict: ."):
            read_state_dict(path)


def test_archives_of_another_kind_are_refused(tmp_path):
    for entries, compression, words in (
        ({"byteorder": b"big"}, zipfile.ZIP_STORED, "big-endian"),
        ({"data.pkl": b""}, zipfile.ZIP_DEFLATED, "compressed"),
        ({"data.pkl": pickled([1])}, zipfile.ZIP_STORED, "holds list, no dict"),
        ({"version": b"3"}, zipfile.ZIP_STORED, "lacks 'data.pkl'"),
    ):
        with zipfile.ZipFile(tmp_path / "state.pt", "w", compression) as archive:
            for name, content in entries.items():
                archive.writestr(f"state/{name}", content)
        with pytest.raises(ValueError, match=words):
            read_state_dict(pathlib.Path(tmp_path / "state.pt"))
