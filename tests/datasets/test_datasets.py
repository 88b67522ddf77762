"""The list of data sets, and what importing it takes."""

import inspect
import os
import subprocess
import sys

import pytest

from tf_capsules import datasets


def test_the_table_names_what_there_is():
    import importlib

    assert datasets.names()[0] == "digits"
    for name, description, shape, classes in datasets.describe():
        loader = getattr(importlib.import_module(f"tf_capsules.datasets.{datasets._SETS[name][0]}"), name)
        assert {"data_dir", "download"} <= set(inspect.signature(loader).parameters)
        assert description and (classes is None) == (name == "folder")
        assert (shape is None) == (name == "folder" or datasets.of_texts(name))


def test_unknown_names_and_options():
    with pytest.raises(ValueError, match="'mnits'; there are digits, mnist"):
        datasets.load("mnits")
    with pytest.raises(ValueError, match="'digits' has no option 'size'; it has none"):
        datasets.load("digits", size=3)
    with pytest.raises(ValueError, match="'multimnist' has no option 'shift'; it has .*max_shift"):
        datasets.load("multimnist", shift=3)


def test_importing_takes_nothing_heavy():
    code = (
        "import sys, types; "
        "package = types.ModuleType('tf_capsules'); package.__path__ = ['tf_capsules']; "
        "sys.modules['tf_capsules'] = package; "
        "import tf_capsules.datasets; tf_capsules.datasets.describe(); "
        "print([name for name in ('tensorflow', 'tensorflow_datasets', 'sklearn', 'keras') if name in sys.modules])"
    )
    root = os.path.dirname(os.path.dirname(os.path.dirname(datasets.__file__)))
    run = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert run.stdout.strip() == "[]", run.stderr
