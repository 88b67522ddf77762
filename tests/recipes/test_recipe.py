import functools

import pytest

from tf_capsules import recipes
from tf_capsules.models.hinton2018 import MatrixCapsNet


def test_a_copy_merges_options_and_leaves_the_original_alone():
    mnist = recipes.get("sabour2017-mnist")
    other = mnist.replace(model_options=dict(iterations=1), epochs=3).replace(model_options=dict(dim=4))
    assert other.model_options == {"iterations": 1, "dim": 4} and other.epochs == 3
    assert mnist.model_options == {} and mnist.epochs == 50
    assert (other.name, other.published) == (mnist.name, mnist.published)
    # Another model or data set takes other options.
    assert other.replace(model=MatrixCapsNet).model_options == {}
    assert recipes.get("li2018-h-imagenet").replace(dataset="cifar10").dataset_options == {}


def test_what_a_run_records_by_name_has_one():
    with pytest.raises(ValueError, match=r"model must be a function or class with a name. Received: functools.partial"):
        recipes.get("sabour2017-mnist").replace(model=functools.partial(MatrixCapsNet, pose=16))


def test_a_row_has_words_of_its_own():
    mnist = recipes.get("sabour2017-mnist")
    row = mnist.row("sabour2017-other", "another", epochs=3)
    assert (row.published, row.note, row.epochs, row.source) == (None, "", 3, mnist.source)
    assert mnist.row("sabour2017-other", ", again", source="table 7").title == f"{mnist.title}, again"
    assert mnist.row("sabour2017-other", "another", model=MatrixCapsNet).figures == ("training_curves",)
    row = mnist.row("sabour2017-other", "another", "1.5% error", "table 7", iterations=5)
    assert (row.published, row.source, row.model_options) == ("1.5% error", "table 7", {"iterations": 5})
    assert row.figures == mnist.figures
    short = mnist.replace(decays=None, decay_steps=100).short("sabour2017-shorter", 3)
    assert (short.warmup, short.decay_steps) == (0.2, None)


def test_what_the_learning_rate_does_is_said_in_words():
    schedules = {
        "one cycle, rising for 0.2 of all steps": dict(warmup=0.2),
        "falls to a tenth after 0.5 and 0.75 of all steps": dict(drops=(0.5, 0.75)),
        "falls by 4% 34 times": dict(decays=34),
        "falls by 4% in 60 steps": dict(decay_steps=60),
        "constant": {},
    }
    plain = recipes.get("sabour2017-mnist").replace(decays=None)
    assert [plain.replace(**changes).schedule for changes in schedules.values()] == list(schedules)
