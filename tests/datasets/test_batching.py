import numpy as np
import pytest

from tf_capsules.datasets.batching import Batching

TRAINING = {"batch_size": 2, "training": True}


@pytest.mark.parametrize(
    "options, words",
    [
        ({"batch_size": 0}, "`batch_size` must be a whole number of at least 1. Received: 0"),
        ({"batch_size": 2, "limit": 0}, "`limit` must be .* Received: 0"),
        ({"batch_size": 2, "limit": -1}, "`limit` must be .* Received: -1"),
        ({"batch_size": 2, "seed": -1}, "seed .* not -1"),
        ({"batch_size": 2, "seed": 1.5}, "seed .* not 1.5"),
        ({"batch_size": 2, "epochs": 0}, "epochs 0 to 0"),
        ({"batch_size": 2, "epochs": 2.5}, "epochs 0 to 2.5"),
        ({"batch_size": 2, "epochs": 3, "initial_epoch": 3}, "epochs 3 to 3"),
        ({**TRAINING, "epoch_size": 0}, "`epoch_size` must be .* Received: 0"),
        ({"batch_size": 2, "epoch_size": 5}, "epoch_size 5 is for training"),
        ({"batch_size": 5, "pad": True, "part": (0, 2)}, r"part \(0, 2\) .* batch_size=5"),
        ({"batch_size": 4, "part": (0, 2)}, "pad=False"),
        ({"batch_size": 4, "pad": True, "part": (2, 2)}, r"part \(2, 2\)"),
        ({"batch_size": 4, "pad": True, "part": "ab"}, r"part 'ab' must be \(index, count\)"),
        ({"batch_size": 4, "pad": True, "part": (0, 2.0)}, r"part \(0, 2.0\)"),
        ({"batch_size": 4, "pad": True, "part": (0, 2, 3)}, r"part \(0, 2, 3\)"),
        ({"batch_size": 4, "training": "no"}, "`training` must be one of True, False. Received: 'no'"),
        ({"batch_size": 4, "pad": None}, "`pad` must be one of True, False. Received: None"),
        ({"batch_size": 2, "mixup": (0.2, 3)}, "in evaluation"),
        ({**TRAINING, "mixup": (0.2, 0)}, "`classes of mixup` must be .* Received: 0"),
        ({**TRAINING, "mixup": (0, 3)}, "alpha .* not 0"),
        ({**TRAINING, "mixup": (-0.2, 3)}, "alpha .* not -0.2"),
        ({**TRAINING, "mixup": (0.2,)}, "pair"),
        ({**TRAINING, "mixup": 0.2}, "pair .* not 0.2"),
        ({"batch_size": 2, "crop": "corner"}, "crop is a whole number .* or one of .*'top left'.* not 'corner'"),
        ({"batch_size": 2, "crop": -1}, "crop is a whole number from 0 to .* not -1"),
        ({**TRAINING, "crop": 1}, "crop 1 is for evaluation"),
    ],
)
def test_bad_arguments_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        Batching(11, **options)


def test_labels_have_to_be_class_numbers():
    batching = Batching(11, 2, training=True, mixup=(0.2, 2))
    batching.check_labels(np.arange(11) % 2)
    for labels, words in (
        (np.arange(11) % 3, "mixup of 2 classes .* Received: 0 to 2"),
        (np.arange(11) % 3 - 1, r"labels .* int64 \(11,\): \[-1, +0"),
        (np.arange(11) + 0.7, r"labels .* float64 \(11,\): \[ 0.7"),
        (np.zeros((11, 1), int), r"labels .* \(11, 1\)"),
    ):
        with pytest.raises(ValueError, match=words):
            batching.check_labels(labels)


def test_a_part_is_the_same_rows_of_each_batch():
    halves = [Batching(11, 4, pad=True, part=(index, 2)).rows for index in range(2)]
    assert halves == [slice(0, 2), slice(2, 4)] and Batching(11, 4).rows == slice(0, 4)


def test_an_epoch_of_some_examples_goes_on_where_the_last_one_stopped():
    batching = Batching(5, 2, training=True, epoch_size=3, epochs=4, initial_epoch=1)
    assert (batching.size, batching.steps, batching.batches) == (3, 2, 6)
    places, passes = (
        np.concatenate(part) for part in zip(*(batching.order(e, np.arange(3)) for e in range(4)), strict=True)
    )
    assert places.tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]
    assert passes.tolist() == [0] * 5 + [1] * 5 + [2] * 2
    np.testing.assert_array_equal(Batching(5, 2).order(1, np.arange(3))[0], [0, 1, 2])  # evaluation begins anew
