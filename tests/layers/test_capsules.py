import keras
import numpy as np
import pytest
from backend import array

from tf_capsules.layers import CapsuleLength, LabelMask

POSES = np.random.default_rng(0).normal(size=(3, 4, 2, 5)).astype("float32")


def test_length():
    np.testing.assert_allclose(array(CapsuleLength()(POSES)), np.sqrt(np.square(POSES).sum((-1, -2))), rtol=1e-6)
    np.testing.assert_allclose(
        array(CapsuleLength()(POSES[:, :, 0])), np.linalg.norm(POSES[:, :, 0], axis=-1), rtol=1e-6
    )


def keep(labels):
    expected = np.zeros_like(POSES)
    for sample, label in enumerate(labels):
        expected[sample, label] = POSES[sample, label]
    return expected


@pytest.mark.parametrize("form", ["list", "sparse", "column", "floats", "one-hot", "integer one-hot"])
def test_label_mask(form):
    labels = np.array([2, 0, 3])
    given = {
        "list": labels.tolist(),
        "sparse": labels,
        "column": labels[:, None],
        "floats": labels.astype("float32"),
        "one-hot": np.eye(4, dtype="float32")[labels],
        "integer one-hot": np.eye(4, dtype="int32")[labels],
    }[form]
    np.testing.assert_array_equal(array(LabelMask()(POSES, labels=given)), keep(labels))


def test_label_mask_keeps_large_class_numbers_in_half_precision():
    kept = LabelMask(dtype="mixed_bfloat16")(np.ones((1, 1000, 2), "float32"), labels=np.array([259.0], "float32"))
    assert keras.backend.standardize_dtype(kept.dtype) == "bfloat16"
    assert np.flatnonzero(array(keras.ops.cast(kept, "float32"))[0, :, 0]).tolist() == [259]


def test_label_mask_without_labels_keeps_the_most_active():
    longest = np.square(POSES).sum((-1, -2)).argmax(1)
    np.testing.assert_array_equal(array(LabelMask()(POSES)), keep(longest))
    activations = np.random.default_rng(1).normal(size=(3, 4))
    assert (activations.argmax(1) != longest).any()
    for given in (activations, activations.tolist()):
        np.testing.assert_array_equal(array(LabelMask()(POSES, activations=given)), keep(activations.argmax(1)))


def test_label_mask_with_one_class():
    poses = POSES[:, :1]
    np.testing.assert_array_equal(array(LabelMask()(poses)), poses)
    np.testing.assert_array_equal(array(LabelMask()(poses, np.array([0, 0, 0]))), poses)
    rows = np.array([[1], [0], [1]])  # as for the losses: one row a sample, the class is there or not
    np.testing.assert_array_equal(array(LabelMask()(poses, rows)), poses * rows[:, :, None, None])


@pytest.mark.parametrize("shape", [(3, 5), (3, 4, 1), ()])
def test_label_mask_names_labels_that_do_not_fit(shape):
    with pytest.raises(
        ValueError, match=r"(?s)Labels must be.*\(batch, 4\).*Received labels of shape \(.*\(3, 4, 2, 5\)"
    ):
        LabelMask()(POSES, np.zeros(shape, "int32"))


@pytest.mark.parametrize("layer", [CapsuleLength, LabelMask])
@pytest.mark.parametrize("shape", [(2, 3), (2, 4, 4, 3, 5)])
def test_poses_with_other_axes_are_named(layer, shape):
    with pytest.raises(ValueError, match=f"{layer.__name__} takes poses .*Received shape \\({shape[0]}, {shape[1]}"):
        layer()(np.ones(shape))


@pytest.mark.parametrize("layer", [CapsuleLength, LabelMask])
def test_poses_with_other_axes_are_named_in_a_functional_model(layer):
    for shape in ((5,), (4, 4, 8, 16)):
        with pytest.raises(ValueError, match=f"{layer.__name__} takes poses .*Received shape"):
            layer()(keras.Input(shape))


def test_several_arrays_are_not_poses():
    with pytest.raises(ValueError, match=r"CapsuleLength takes poses .*Received shape \(\(2, 4, 3\), \(2, 4\)\)"):
        CapsuleLength()((np.ones((2, 4, 3)), np.ones((2, 4))))


@pytest.mark.parametrize("shape", [(3, 4, 1), (3, 1), (3, 5), (3,)])
def test_label_mask_names_activations_that_do_not_fit(shape):
    with pytest.raises(ValueError, match=r"`activations` must be \(batch, classes\), here \(3, 4\). Received shape"):
        LabelMask()(POSES, activations=np.ones(shape, "float32"))
    poses, activations = keras.Input(POSES.shape[1:]), keras.Input(shape[1:])
    with pytest.raises(ValueError, match=r"`activations` must be \(batch, classes\), here \(None, 4\)"):
        LabelMask()(poses, activations=activations)
