import numpy as np
import pytest
from backend import untraced_steps
from small_runs import RECTIFIED, SHORT, TINY, write_arrays

from tf_capsules import datasets, recipes
from tf_capsules.datasets.pipeline import Dataset, Split
from tf_capsules.runs import Settings, train


@pytest.fixture
def eager():
    with untraced_steps():
        yield


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """A run of the tiny recipe. Tests share it and don't change it."""
    return train(TINY, tmp_path_factory.mktemp("runs") / "tiny", SHORT, verbose=0)


@pytest.fixture(scope="session")
def rectified_run(tmp_path_factory):
    """A shared run with the optimizer and schedule that have the most state to save."""
    return train(RECTIFIED, tmp_path_factory.mktemp("runs") / "rectified", SHORT, verbose=0)


@pytest.fixture(scope="session")
def run_on_arrays(tmp_path_factory):
    """A shared run of one epoch on the arrays of a file `mine.npz`."""
    folder = tmp_path_factory.mktemp("arrays")
    write_arrays(folder / "mine.npz")
    return train(TINY, folder / "run", Settings(data=str(folder / "mine.npz"), epochs=1), verbose=0)


@pytest.fixture
def views(monkeypatch):
    """Replaces the digits by noise with a split of familiar viewpoints; returns the recipe."""
    random = np.random.default_rng(0)
    splits = [
        Split({"image": random.integers(0, 256, (n, 9, 9, 1), dtype=np.uint8), "label": np.arange(n) % 10})
        for n in (60, 50, 40)
    ]
    toys = Dataset("toys", *splits[:2], tuple("abcdefghij"), "of noise", familiar=splits[2])
    recipe = TINY.replace(preprocess=(("shift", 1), ("crop", 8)), epochs=3)
    monkeypatch.setattr(datasets, "load", lambda *_, **__: toys)
    monkeypatch.setattr(recipes, "get", lambda name: recipe)
    return recipe
