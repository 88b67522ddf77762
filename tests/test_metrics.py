import keras
import numpy as np
import pytest
from backend import array
from keras import ops

from tf_capsules.metrics import ExactMatch, TopKAccuracy


def count(labels, scores):
    """Counts samples whose k present classes have the k largest scores, without a tie at the k-th."""
    right = 0
    for present, row in zip(labels.astype(bool), scores, strict=True):
        k = present.sum()
        order = np.argsort(-row, kind="stable")
        tied = 0 < k < len(row) and row[order[k - 1]] == row[order[k]]
        right += set(order[:k]) == set(np.flatnonzero(present)) and not tied
    return right


def test_equals_a_count_with_ties():
    random = np.random.default_rng(0)
    scores = random.integers(0, 6, size=(400, 5)).astype("float32") / 5
    labels = (scores + random.normal(scale=0.2, size=scores.shape) > 0.5).astype("int32")
    expected = count(labels, scores)
    tied = sum(len(set(row)) < 5 for row in scores)
    assert 50 < expected < 350 and tied > 100
    metric = ExactMatch()
    for rows in np.array_split(np.arange(400), 3):
        metric.update_state(labels[rows], scores[rows])
    np.testing.assert_allclose(array(metric.result()), expected / 400, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_by_hand(dtype):
    scores = ops.cast(np.array([[0.9, 0.8, 0.1], [0.9, 0.1, 0.8], [0.5, 0.5, 0.1], [0.3, 0.2, 0.1]]), dtype)
    labels = np.array([[1, 1, 0], [1, 1, 0], [1, 0, 0], [1, 1, 1]])
    assert float(ExactMatch()(labels, scores)) == 0.5
    weights = np.array([3.0, 1.0, 0.0, 0.0])
    assert float(ExactMatch()(labels, scores, sample_weight=weights)) == 0.75


def test_the_class_of_a_mixed_example_is_the_one_with_the_larger_share():
    scores = np.array([[0.1, 0.7, 0.2], [0.5, 0.4, 0.1], [0.3, 0.3, 0.4]])
    rows = np.array([[0.4, 0.6, 0.0], [0.0, 0.9, 0.1], [1.0, 0.0, 0.0]])
    numbers = rows.argmax(-1)
    for labels in (rows, numbers):
        assert float(TopKAccuracy()(labels, scores)) == pytest.approx(1 / 3)
        assert float(TopKAccuracy(2)(labels, scores)) == pytest.approx(1)  # a tie with the second counts, as in Keras
    assert float(TopKAccuracy()(numbers, scores, sample_weight=np.array([3.0, 1.0, 0.0]))) == 0.75
    assert float(TopKAccuracy(3)(np.array([0, 3, -1]), scores)) == pytest.approx(1 / 3)
    assert float(TopKAccuracy()(np.array([0, 1, 2]), np.full((3, 3), 1 / 3))) == pytest.approx(1 / 3)  # equal scores
    metric = TopKAccuracy(2, name="two")
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(metric))
    assert again.get_config() == metric.get_config() and again.k == 2
    with pytest.raises(ValueError, match="`k` must be .* Received: 0"):
        TopKAccuracy(0)


def test_with_a_threshold_the_number_of_classes_must_be_right_too():
    scores = np.array([[0.9, 0.6, 0.1], [0.9, 0.4, 0.1], [0.9, 0.8, 0.6], [0.4, 0.3, 0.1]])
    labels = np.array([[1, 1, 0]] * 3 + [[0, 0, 0]])
    assert float(ExactMatch(0.5)(labels, scores)) == 0.5
    assert float(ExactMatch()(labels[:3], scores[:3])) == 1
    metric = ExactMatch(0.3, name="set")
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(metric))
    assert again.get_config() == metric.get_config() and float(again(labels[:2], scores[:2])) == 1


def test_class_numbers_count_as_one_present_class():
    scores = np.array([[0.9, 0.8, 0.1], [0.9, 0.1, 0.8], [0.5, 0.6, 0.1]])
    assert float(ExactMatch()(np.array([0, 2, 1]), scores)) == np.float32(2 / 3)


@pytest.mark.parametrize("threshold", [None, 0.5])
def test_a_number_that_is_no_class_is_never_right(threshold):
    assert float(ExactMatch(threshold)(np.array([7, -1]), np.array([[0.1, 0.2, 0.3]] * 2))) == 0


def test_labels_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"(?s)Received labels of shape \(4, 2\) for predictions of shape \(4, 3\)"):
        ExactMatch()(np.zeros((4, 2)), np.zeros((4, 3)))


@pytest.mark.parametrize("metric", [ExactMatch, TopKAccuracy])
def test_predictions_of_another_rank_are_named(metric):
    message = rf"{metric.__name__} takes activations \(batch, classes\). Received predictions of shape \(2, 3, 3\)"
    with pytest.raises(ValueError, match=f"(?s){message}"):
        metric()(np.zeros((2, 3)), np.zeros((2, 3, 3)))


def test_a_threshold_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="`threshold` must be a number or None. Received: 'high'"):
        ExactMatch("high")


def test_config_round_trip():
    metric = ExactMatch(name="both")
    other = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(metric))
    assert isinstance(other, ExactMatch) and other.name == "both" and other.get_config() == metric.get_config()


@pytest.mark.parametrize("threshold", [None, 0.5])
def test_no_examples_change_no_count(threshold):
    metric = ExactMatch(threshold)
    metric.update_state(np.array([[1, 1, 0]]), np.array([[0.9, 0.6, 0.4]]))
    metric.update_state(np.zeros((0, 3)), np.zeros((0, 3), "float32"))
    assert float(metric.result()) == 1


def test_lists_are_taken():
    rows, outputs = [[1, 0, 0], [0, 0, 1]], [[0.8, 0.3, 0.05], [0.2, 0.95, 0.5]]
    assert float(ExactMatch()(rows, outputs)) == float(TopKAccuracy()(rows, outputs)) == 0.5
