"""Checks where a model may be exported to: to a free place, or over an earlier export of the same form."""

import pathlib

from tf_capsules.files import writable

_SAVED_MODEL = "saved_model.pb"
_SAVED_MODEL_ENTRIES = {_SAVED_MODEL, "fingerprint.pb", "variables", "assets", "assets.extra"}


def is_saved_model(folder):
    return (pathlib.Path(folder) / _SAVED_MODEL).is_file()


def free_folder(folder):
    """The path, if it does not exist, is an empty folder, or holds only a SavedModel; else a ValueError."""
    folder = writable(folder)
    if folder.absolute() == pathlib.Path.cwd() or folder.is_mount():
        raise ValueError(f"{folder} can't be replaced: you are in it, or a disk is mounted there. Name a folder in it.")
    if folder.is_dir():
        entries = {entry.name for entry in folder.iterdir()}
        others = sorted(entries - _SAVED_MODEL_ENTRIES if is_saved_model(folder) else entries)
    else:
        others = [folder.name] if folder.exists() else []
    if others:
        few = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
        raise ValueError(f"{folder} is not overwritten: it holds other files than a SavedModel ({few}).")
    return folder


def free_file(file, form, is_of_form):
    """The path, if it does not exist, or if `is_of_form` finds a model of this form there; else a ValueError."""
    file = writable(file)
    if file.is_dir():
        raise ValueError(f"`file` must name a file; {file} is a folder.")
    if file.exists() and not is_of_form(file):
        raise ValueError(f"{file} is not overwritten: it exists, and is no {form} model.")
    return file
