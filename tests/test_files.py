"""Sound files are read; damaged ones are refused with one line that names the file."""

import io
import os
import pathlib
import time
import zipfile

import numpy as np
import pytest

from tf_capsules.files import one_line, read_csv, read_npz, reading, replacing, writable

ARRAYS = {"x": np.arange(6).reshape(2, 3), "y": np.array(["a", "b"])}


class Code:
    """Its pickle runs code that leaves a file behind."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return pathlib.Path.touch, (self.path,)


def packed(save=np.savez, **arrays):
    file = io.BytesIO()
    save(file, **arrays)
    return file.getvalue()


def header(shape):
    """The header of an array's file."""
    content = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".ljust(118)
    return b"\x93NUMPY\x01\x00v\x00" + content.encode()


def zipped(**entries):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name.replace("__", "."), content)
    return file.getvalue()


def flipped(content, place):
    content = bytearray(content)
    content[place] ^= 8
    return bytes(content)


def test_arrays_are_read(tmp_path):
    (tmp_path / "two.npz").write_bytes(packed(**ARRAYS))
    found = read_npz(tmp_path / "two.npz")
    assert list(found) == ["x", "y"] and found["y"].tolist() == ["a", "b"]
    np.testing.assert_array_equal(found["x"], ARRAYS["x"])
    assert list(read_npz(tmp_path / "two.npz", ["y", "z"])) == ["y"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is not an .npz archive"),
        (b"hello", "it is not an .npz archive"),
        (packed(**ARRAYS)[:-60], "it is not an .npz archive"),
        (flipped(packed(**ARRAYS), 180), "Bad CRC-32 for file 'x.npy'"),
        (flipped(packed(np.savez_compressed, **ARRAYS), 70), "while decompressing|Bad CRC-32"),
        (zipped(x="raw"), "its entry 'x' is not an array"),
        (zipped(x__npy="raw"), "its entry 'x' is not an array"),
        (zipped(x__npy=header((3, 2)) + b"12345"), "its array 'x': "),
        (zipped(x__npy=header((2**50, 2))), "Unable to allocate"),
        (zipped(x__npy=header("oops")), "its array 'x': "),
    ],
)
def test_what_is_no_archive_of_arrays_is_refused(tmp_path, content, words):
    path = tmp_path / "my.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"{path} can't be read as a NumPy archive: .*({words})") as caught:
        read_npz(path)
    assert "\n" not in str(caught.value)


def test_an_absent_archive_and_a_folder_are_told_apart(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_npz(tmp_path / "absent.npz")
    with pytest.raises(ValueError, match="can't be read as a NumPy archive: .*directory"):
        read_npz(tmp_path)


def test_pickles_are_not_run(tmp_path):
    trap = tmp_path / "trap"
    (tmp_path / "my.npz").write_bytes(packed(x=np.array([Code(trap)], object)))
    with pytest.raises(ValueError, match="my.npz .*: its array 'x': it holds Python objects; np.array"):
        read_npz(tmp_path / "my.npz")
    assert not trap.exists()
    assert np.load(tmp_path / "my.npz", allow_pickle=True)["x"] is not None and trap.exists()  # it was armed


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it has no column 'epoch'"),
        (b"a,b\n1,2\n", "it has no column 'epoch'"),
        (b"epoch,loss\n1\n", "line 2 has not as many values as the header"),
        (b"epoch,loss\n1,2\n1,2,3\n", "line 3 has not as many values as the header"),
        (b"epoch,loss\n\xff,1\n", "can't decode byte 0xff"),
        (b'epoch,loss\n"1,2', "unexpected end of data"),
    ],
)
def test_damaged_tables_are_refused(tmp_path, content, words):
    (tmp_path / "rows.csv").write_bytes(content)
    with pytest.raises(ValueError, match=f"rows.csv can't be read as a table: .*{words}"):
        read_csv(tmp_path / "rows.csv", ["epoch"])


def test_any_error_becomes_one_that_names_the_path():
    for error, words in (
        (KeyError("epoch"), "here is odd: it lacks 'epoch'"),
        (MemoryError(), "here is odd: MemoryError"),
        (RuntimeError("a\n\n b"), "here is odd: a b"),
        (ValueError("not here"), "here is odd: not here"),
        (ValueError("here, line 3: cut off"), "here, line 3: cut off"),
    ):
        with pytest.raises(ValueError, match=f"^{words}$"), reading("here", "is odd"):
            raise error
    for error in (FileNotFoundError("gone"), ModuleNotFoundError("no package"), AssertionError("asked for")):
        with pytest.raises(type(error)), reading("here", "is odd", unchanged=(AssertionError,)):
            raise error
    assert len(one_line(ValueError("word " * 1000))) <= 500
    assert one_line(ValueError(f"line 1: {'x' * 600} is no box")) == f"line 1: {'x' * 488} ..."


def test_a_file_is_replaced_when_it_is_written_whole(tmp_path):
    path = tmp_path / "a.weights.h5"
    path.write_text("old")
    with pytest.raises(KeyError), replacing(path) as part:
        part.write_text("half")
        assert part.name.endswith(".weights.h5") and part.parent == tmp_path and path.read_text() == "old"
        raise KeyError
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    with replacing(path) as part:
        part.write_text("new")
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path]


def test_two_writers_of_one_file_leave_one_whole_file(tmp_path):
    path = tmp_path / "a.txt"
    with replacing(path) as one:
        one.write_text("half of it")
        with replacing(path) as other:
            other.write_text("all of another")
        assert path.read_text() == "all of another" and one.read_text() == "half of it"
        one.write_text("all of it")
    assert path.read_text() == "all of it" and list(tmp_path.iterdir()) == [path]


def test_what_a_killed_process_left_is_removed_when_nobody_can_be_writing_it(tmp_path):
    names = "a.txt", f".part.{'0f' * 16}.a.txt", f".part.{'1f' * 16}.a.txt", ".old.bad.a.txt", ".old.a.txt"
    path, left, fresh, *others = (tmp_path / name for name in names)
    for file, age in ((left, 7200), (fresh, 60), *((other, 7200) for other in others)):
        file.write_text("half")
        os.utime(file, (time.time() - age,) * 2)
    for text in ("old", "new"):  # what was set aside stays until there is a file
        with replacing(path) as part:
            part.write_text(text)
    assert set(tmp_path.iterdir()) == {path, fresh, *others}


def test_a_folder_set_aside_stays_until_its_successor_is_there(tmp_path):
    aside, path = tmp_path / f".old.{'0f' * 16}.model", tmp_path / "model"
    aside.mkdir()
    os.utime(aside, (time.time() - 7200,) * 2)
    with pytest.raises(KeyError), replacing(path):
        raise KeyError
    assert aside.exists()
    for _ in range(2):
        with replacing(path) as part:
            part.mkdir()
    assert list(tmp_path.iterdir()) == [path]


def test_an_address_can_not_be_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for address in ("gs://bucket/x", pathlib.Path("gs://bucket/x"), "git+ssh://host/x", "./s3://bucket/x"):
        with pytest.raises(ValueError, match="x can't be written: give a path of this machine"):
            writable(address)
    for path in ("~/x", pathlib.Path("~/x"), "~someone/x"):
        with pytest.raises(ValueError, match="x can't be written: give the path in place of ~"):
            writable(path)
    assert not list(tmp_path.iterdir())
    assert writable("/") == pathlib.Path("/") or not os.access("/", os.W_OK)
    assert writable("C:/x") == pathlib.Path("C:/x") and writable(tmp_path / "a:b") == tmp_path / "a:b"
