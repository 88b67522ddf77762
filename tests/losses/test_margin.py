import keras
import numpy as np
import pytest
from backend import array
from keras import ops
from oracle import ATOL, CASES

from tf_capsules.losses import MarginLoss, ReconstructionLoss, SoftmaxCrossentropy, SpreadLoss

CASE = CASES["C_losses"]
LENGTHS, TARGETS = (np.array(CASE[name], "float32") for name in ("lengths", "targets"))


def test_oracle():
    per_sample = array(MarginLoss(reduction=None)(TARGETS, LENGTHS))
    np.testing.assert_allclose(per_sample, CASE["margin_per_sample"], atol=ATOL)
    np.testing.assert_allclose(per_sample, np.sum(CASE["margin_per_class"], axis=-1), atol=ATOL)
    np.testing.assert_allclose(array(MarginLoss()(TARGETS, LENGTHS)), CASE["margin_batch_mean"], atol=ATOL)
    code = array(MarginLoss(variant="code")(TARGETS, LENGTHS))
    np.testing.assert_allclose(code, CASE["official_code_margin"], atol=1e-7)


RANDOM = np.random.default_rng(0)
PREDICTIONS = RANDOM.uniform(size=(5, 4)).astype("float32")
LABELS = np.array([3, 0, 2, 2, 1])
ONE_HOT = np.eye(4, dtype="float32")[LABELS]
MULTI_HOT = np.array([[1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 1], [0, 0, 1, 0]])


def by_hand(targets, lengths=PREDICTIONS, present=0.9, absent=0.1, down_weight=0.5):
    result = np.zeros(len(lengths))
    for sample, row in enumerate(lengths.astype("float64")):
        for target, length in zip(targets[sample], row, strict=True):
            result[sample] += max(0, present - length) ** 2 if target else down_weight * max(0, length - absent) ** 2
    return result


@pytest.mark.parametrize(
    "labels, targets",
    [
        (LABELS, ONE_HOT),
        (LABELS[:, None], ONE_HOT),
        (LABELS.astype("float32"), ONE_HOT),
        (ONE_HOT, ONE_HOT),
        (ONE_HOT.astype(bool), ONE_HOT),
        (MULTI_HOT, MULTI_HOT),
    ],
    ids=["sparse", "sparse column", "floats", "one-hot", "booleans", "multi-hot"],
)
def test_all_forms_of_labels(labels, targets):
    losses = array(MarginLoss(reduction=None)(labels, PREDICTIONS))
    np.testing.assert_allclose(losses, by_hand(targets), atol=1e-6)
    np.testing.assert_allclose(array(MarginLoss()(labels, PREDICTIONS)), by_hand(targets).mean(), atol=1e-6)


def test_arguments_and_variants():
    loss = MarginLoss(present=0.8, absent=0.3, down_weight=0.25)
    expected = by_hand(ONE_HOT, present=0.8, absent=0.3, down_weight=0.25).mean()
    np.testing.assert_allclose(array(loss(LABELS, PREDICTIONS)), expected, atol=1e-6)
    code = array(MarginLoss(variant="code")(LABELS, PREDICTIONS))
    np.testing.assert_allclose(code, by_hand(ONE_HOT).mean() / (2 * 4), atol=1e-7)
    with pytest.raises(ValueError, match="`variant`.*Received: 'book'"):
        MarginLoss(variant="book")


def test_one_class():
    lengths = PREDICTIONS[:, :1]
    rows = np.array([[1], [0], [0], [1], [1]])
    np.testing.assert_allclose(array(MarginLoss(reduction=None)(rows, lengths)), by_hand(rows, lengths), atol=1e-6)


def test_sample_weights():
    weights = np.array([0.0, 2.0, 1.0, 0.5, 0.25], "float32")
    expected = (weights * by_hand(ONE_HOT)).sum() / 5
    np.testing.assert_allclose(array(MarginLoss()(LABELS, PREDICTIONS, sample_weight=weights)), expected, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_predictions_are_compared_in_float32(dtype):
    half = ops.cast(PREDICTIONS, dtype)
    loss = MarginLoss(reduction=None)(LABELS, half)
    assert keras.backend.standardize_dtype(loss.dtype) == "float32"
    np.testing.assert_allclose(array(loss), by_hand(ONE_HOT, array(ops.cast(half, "float32"))), atol=1e-6)


@pytest.mark.parametrize("shape", [(5, 3), (5, 4, 1), (2, 5, 1), (3,), (3, 4)])
def test_labels_that_do_not_fit_are_named(shape):
    with pytest.raises(
        ValueError, match=r"(?s)\(batch, 4\).*Received labels of shape \(.*predictions of shape \(5, 4\)"
    ):
        MarginLoss()(np.zeros(shape), PREDICTIONS)


@pytest.mark.parametrize("shape", [(5,), (5, 4, 3)])
def test_predictions_that_are_no_lengths_are_named(shape):
    with pytest.raises(ValueError, match=r"\(batch, classes\). Received predictions of shape \(5,"):
        MarginLoss()(np.zeros(5), np.zeros(shape))


@pytest.mark.parametrize(
    "loss, arguments",
    [
        (MarginLoss(0.8, 0.2, 0.3, "code", name="other"), (LABELS, PREDICTIONS)),
        (ReconstructionLoss(0.25, reduction="sum"), (MULTI_HOT, PREDICTIONS)),
    ],
)
def test_config_round_trip(loss, arguments):
    for other in (
        type(loss).from_config(loss.get_config()),
        keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss)),
    ):
        assert other.get_config() == loss.get_config() and other.name == loss.name
        np.testing.assert_array_equal(array(other(*arguments)), array(loss(*arguments)))


@pytest.mark.parametrize("label", [-1, 4, 2**30, 1.7, -0.5])
def test_a_number_that_is_no_class_gives_nan_and_not_a_row_of_zeros(label):
    losses = array(MarginLoss(reduction=None)(np.array([1, label, 3, 0, 2]), PREDICTIONS))
    np.testing.assert_array_equal(np.isnan(losses), [False, True, False, False, False])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(present="x"), "`present` must be a number from 0 to 1. Received: 'x'"),
        (dict(present=5), "`present` must be a number from 0 to 1. Received: 5"),
        (dict(absent=float("nan")), "`absent` must be a number from 0 to 1. Received: nan"),
        (dict(down_weight=-1), "`down_weight` must be a number from 0 to 1. Received: -1"),
        (dict(present=0.1, absent=0.9), "`absent` must be below `present`. Received: absent=0.9, present=0.1"),
    ],
)
def test_numbers_out_of_range_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        MarginLoss(**options)


@pytest.mark.parametrize("loss", [MarginLoss(), SpreadLoss(), ReconstructionLoss()])
def test_lists_are_taken(loss):
    rows, outputs = [[1.0, 0, 0], [0, 0, 1]], [[0.8, 0.3, 0.05], [0.2, 0.95, 0.5]]
    assert float(loss(rows, outputs)) == float(loss(np.array(rows), np.array(outputs)))


@pytest.mark.parametrize("make", [MarginLoss, SpreadLoss, SoftmaxCrossentropy])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_numbers_of_many_classes_are_not_rounded(make, dtype):
    outputs = np.eye(3000, dtype="float32")[[257, 2999]]
    for labels in ([257, 2999], [[257], [2999]]):
        np.testing.assert_allclose(make(dtype=dtype)(np.array(labels), outputs), make()(np.array(labels), outputs))


def test_a_loss_derived_from_it_has_its_arguments_too():
    class Gained(MarginLoss):
        def __init__(self, gain=2.0, **kwargs):
            super().__init__(**kwargs)
            self.gain = gain

    loss = Gained(3.0, present=0.8, reduction="sum")
    again = Gained.from_config(loss.get_config())
    assert (again.gain, again.present, again.absent, again.reduction) == (3.0, 0.8, 0.1, "sum")
