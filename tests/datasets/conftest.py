import importlib.util
import os
import pathlib

import pytest

from tf_capsules import datasets

PREPARE = pathlib.Path(__file__).parents[2].parent / "shared" / "data" / "prepare.py"


@pytest.fixture(scope="session")
def prepare(tmp_path_factory):
    """prepare("mnist" | "smallnorb" | "cifar10") -> a tensorflow-datasets folder that holds the real set.

    Writing CIFAR-10 takes 20 seconds. If the folder TFDS_DATA_DIR has the set already, that folder is the result.
    """
    if not PREPARE.is_file():
        pytest.skip("needs the real data, in the folder shared/data beside the repository")
    pytest.importorskip("tensorflow_datasets")
    spec = importlib.util.spec_from_file_location("prepare_data", PREPARE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    out, done = tmp_path_factory.mktemp("tfds"), set()
    write = {"mnist": module.copy_mnist, "smallnorb": module.copy_smallnorb, "cifar10": module.write_cifar10}

    def folder(name):
        ready = os.environ.get("TFDS_DATA_DIR")
        if ready and (pathlib.Path(ready) / name).is_dir():
            return ready
        if name not in done:
            write[name](out)
            done.add(name)
        return out

    return folder


@pytest.fixture(scope="session")
def mnist(prepare):
    """The real MNIST."""
    return datasets.load("mnist", prepare("mnist"))


@pytest.fixture
def mnist_at_hand(mnist, prepare, monkeypatch):
    """The folder of the real MNIST. Data sets made from MNIST get the loaded one and do not read it again."""
    from tf_capsules.datasets import standard

    def load(data_dir=None, download=False):
        assert data_dir == prepare("mnist")
        return mnist

    monkeypatch.setattr(standard, "mnist", load)
    return prepare("mnist")
