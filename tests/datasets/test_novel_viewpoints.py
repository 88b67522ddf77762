import itertools

import numpy as np
import pytest

from tf_capsules import datasets
from tf_capsules.datasets import smallnorb
from tf_capsules.datasets.novel_viewpoints import novel_viewpoints
from tf_capsules.datasets.pipeline import Dataset, Split

FACTORS = ("label", "instance", "elevation", "azimuth", "lighting")
FAMILIAR = {"azimuth": {300, 320, 340, 0, 20, 40}, "elevation": {30, 35, 40}}
DEGREES = {"azimuth": lambda number: 20 * number, "elevation": lambda number: 30 + 5 * number}


def all_pairs(instances):
    """The factors of all smallNORB pairs of these toys, in random order."""
    table = np.array(list(itertools.product(range(5), instances, range(9), range(18), range(6))))
    return dict(zip(FACTORS, np.random.default_rng(1).permutation(table).T, strict=True))


@pytest.fixture
def norb(monkeypatch):
    """Replaces smallNORB by black pictures of one pixel; returns the columns of its two splits."""
    black = {"image": np.zeros((24300, 1, 1, 2), "uint8")}
    splits = [all_pairs(instances) | black for instances in ((4, 6, 7, 8, 9), (0, 1, 2, 3, 5))]

    def load(data_dir, download):
        note = "a copy without them" if splits[0]["azimuth"][0] == -1 else ""
        return Dataset("smallnorb", *map(Split, splits), tuple("abcde"), note)

    monkeypatch.setattr(smallnorb, "smallnorb", load)
    return splits


def views(split, factor):
    return {DEGREES[factor](int(number)) for number in split.arrays[factor]}


def toys(split):
    return set(zip(split.arrays["label"].tolist(), split.arrays["instance"].tolist(), strict=True))


@pytest.mark.parametrize("factor", ["azimuth", "elevation"])
@pytest.mark.parametrize("inside", ["", "_test_toys"])
def test_views_and_toys_of_the_training_familiar_and_test_splits(norb, factor, inside):
    one = datasets.load(f"smallnorb_novel_{factor}{inside}")
    sizes = (one.train.size, one.familiar.size, one.test.size)
    assert sizes == ((4860, 3240, 6480) if inside else (8100, 8100, 16200))
    assert views(one.train, factor) == views(one.familiar, factor) == FAMILIAR[factor]
    other = {"azimuth": "elevation", "elevation": "azimuth"}[factor]
    assert len(views(one.test, factor)) == 2 * len(FAMILIAR[factor]) and not views(one.test, factor) & FAMILIAR[factor]
    assert views(one.train, other) == views(one.test, other)  # all of them
    assert toys(one.familiar) == toys(one.test) and not toys(one.train) & toys(one.test)
    assert {instance for _, instance in toys(one.train)} == ({0, 1, 2} if inside else {4, 6, 7, 8, 9})
    assert one.name == f"smallnorb_novel_{factor}{inside}" and ("inside the test toys" in one.note) == bool(inside)


def test_training_pairs_without_poses_do_for_the_test_toys_alone(norb):
    norb[0].update({name: np.full(24300, -1) for name in ("elevation", "azimuth", "lighting")})
    with pytest.raises(ValueError, match="needs the azimuth of the training .*smallnorb_novel_azimuth_test_toys does"):
        datasets.load("smallnorb_novel_azimuth")
    one = datasets.load("smallnorb_novel_azimuth_test_toys")
    assert one.train.size == 4860 and one.note.startswith("a copy without them; inside the test toys")


def test_another_factor_is_named():
    with pytest.raises(ValueError, match="novel by azimuth or elevation, not 'lighting'"):
        novel_viewpoints({}, {}, "lighting")
