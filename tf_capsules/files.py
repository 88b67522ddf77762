"""Reads and writes files. A bad file raises one ValueError that names it. A file is written whole or not at all.

No code in a file is run: no pickles, no serialized code.
"""

import contextlib
import csv
import os
import pathlib
import re
import shutil
import time
import uuid
import zipfile

import numpy as np

_ABANDONED = 3600  # seconds after which nobody still writes a part
_PICKLED = "it holds Python objects; np.array(values, str), or int, makes an array of texts or numbers"


@contextlib.contextmanager
def reading(path, complaint, unchanged=()):
    """Turns any exception inside into a ValueError that begins with the path and a complaint.

    Any exception counts, because parsers fail on damaged bytes in every way. Exceptions for an absent file or Python
    package, those in `unchanged`, and a ValueError that begins with the path are raised unchanged.

    >>> with reading("run.json", "is no configuration"):
    ...     {}["recipe"]
    Traceback (most recent call last):
    ValueError: run.json is no configuration: it lacks 'recipe'
    """
    try:
        yield
    except (FileNotFoundError, ImportError, *unchanged):
        raise
    except Exception as error:
        if isinstance(error, ValueError) and str(error).startswith(str(path)):
            raise
        raise ValueError(f"{path} {complaint}: {one_line(error)}") from error


def lock(handle, wait=True):
    """Locks an open file or folder for this process until it is closed.

    It waits while another process holds the lock; with `wait=False` it raises a BlockingIOError instead. On Windows and
    on file systems without locks it does nothing.
    """
    if os.name == "nt":
        return
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        raise
    except OSError:
        pass  # a file system without locks


@contextlib.contextmanager
def replacing(path):
    """A path to write a file or a folder to. It replaces `path` when it is written whole.

    Whenever the process is killed, the old file or the new one is there, whole. For a file this also holds when the
    machine stops. An old folder may be left under another name, `.old.*`. The temporary name ends like `path`, because
    Keras tells formats by their endings. Missing parent folders are made. If `path` is a link, the file that it points
    to is replaced.

    Raises a FileExistsError at the end if another process has made the folder in the meantime.
    """
    path = pathlib.Path(path).resolve()
    before = path.exists()
    part, aside = (path.with_name(f".{kind}.{uuid.uuid4().hex}.{path.name}") for kind in ("part", "old"))
    path.parent.mkdir(parents=True, exist_ok=True)
    left = re.compile(rf"\.(part|old)\.[0-9a-f]{{32}}\.{re.escape(path.name)}")  # by a process that was killed
    for other in filter(lambda other: left.fullmatch(other.name), path.parent.iterdir()):
        with contextlib.suppress(FileNotFoundError):
            needed = other.name.startswith(".old") and not path.exists()
            if not needed and time.time() - other.stat().st_mtime > _ABANDONED:
                _remove(other)
    try:
        yield part
        if not part.is_dir():
            with part.open("rb") as file:
                os.fsync(file.fileno())
        elif path.exists():  # a filled folder can't be renamed over: it is moved aside for that moment
            if not before:
                raise FileExistsError(f"Another process created {path} in the meantime; it is not replaced.")
            os.replace(path, aside)
            os.utime(aside)
        os.replace(part, path)
        _remove(aside)
    finally:
        _remove(part)


def local(path):
    """The path, as a `pathlib.Path`.

    Raises a ValueError for a URL, and for a path that begins with `~`: Python would make a folder of that name.
    """
    if re.search(r"://|^[\w.+-]{2,}:/", str(path)):  # pathlib makes gs:/bucket of gs://bucket
        raise ValueError(f"{path} can't be written: give a path of this machine, and copy the result from there.")
    if str(path).startswith("~"):
        raise ValueError(f"{path} can't be written: give the path in place of ~, or pathlib.Path(...).expanduser().")
    return pathlib.Path(path)


def writable(path):
    """The path, if it is local and its nearest parent folder that exists may be written to; else a ValueError."""
    path = local(path)
    above = next((folder for folder in path.absolute().parents if os.path.exists(folder)), path)
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise ValueError(f"{path} can't be written: {above} is no folder that may be written to.")
    return path


def _remove(path):
    """Removes a file or folder, if it is there."""
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def write_csv(path, rows):
    """Writes dicts of the same keys as a CSV file with a header, whole or not at all."""
    with replacing(path) as part, part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def one_line(error):
    """What an exception says, in one line of at most 500 characters.

    >>> one_line(ValueError("a\\n\\nb"))
    'a b'
    """
    said = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
    said = " ".join(said.split()) or type(error).__name__
    return said if len(said) <= 500 else f"{said[:496]} ..."


def read_npz(path, keys=None, complaint="can't be read as a NumPy archive"):
    """The arrays of a .npz archive as a dict: all of them, or those of `keys` that it has.

    Raises a ValueError (see `reading`) for a file that is damaged or no archive, and for pickles, which may run code.
    """
    arrays = {}
    with reading(path, complaint), open(path, "rb") as file:  # opened here: NumPy leaves a damaged file open
        if not zipfile.is_zipfile(file):
            raise ValueError("it is not an .npz archive")
        file.seek(0)
        with np.load(file, allow_pickle=False) as archive:
            for key in archive.files if keys is None else [key for key in keys if key in archive.files]:
                try:
                    arrays[key] = archive[key]
                except ValueError as error:
                    why = _PICKLED if "allow_pickle" in str(error) else error
                    raise ValueError(f"its array {key!r}: {why}") from error
                if not isinstance(arrays[key], np.ndarray):
                    raise ValueError(f"its entry {key!r} is not an array")
    return arrays


def read_csv(path, columns=(), complaint="can't be read as a table"):
    """The rows of a CSV file with a header, as dicts of strings.

    Raises a ValueError (see `reading`) for a file that is no text, a row of another length, or a missing column.
    """
    with reading(path, complaint), pathlib.Path(path).open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file, strict=True)
        if missing := [column for column in columns if column not in (reader.fieldnames or ())]:
            raise ValueError(f"it has no column {missing[0]!r}")
        rows = []
        for row in reader:
            if None in row or None in row.values():
                raise ValueError(f"line {reader.line_num} has not as many values as the header")
            rows.append(row)
    return rows
