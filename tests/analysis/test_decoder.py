import keras
import numpy as np
import pytest
from analysis.capsnets import array, small_capsnet

from tf_capsules import analysis
from tf_capsules.analysis import measure_overlapping_reconstructions as overlapping


def decode(model, poses, label):
    """One capsule through the decoder, in NumPy: poses (classes, dim) to an image."""
    masked = np.zeros_like(poses)
    masked[label] = poses[label]
    first, second = model.decoder.dense
    hidden = np.maximum(masked.reshape(-1) @ array(first.kernel) + array(first.bias), 0)
    return (1 / (1 + np.exp(-(hidden @ array(second.kernel) + array(second.bias))))).reshape(8, 7, 1)


def test_perturbation_adds_to_one_dimension_and_does_not_squash(model, images):
    grid = analysis.perturb_dimensions(model, images[0], 3)
    assert grid.shape == (9, 11, 8, 7, 1)
    poses = array(model(images[:1])["poses"])[0]
    for dimension in range(9):
        for column, offset in enumerate([-0.25, -0.2, -0.15, -0.1, -0.05, 0, 0.05, 0.1, 0.15, 0.2, 0.25]):
            changed = poses.copy()
            changed[3, dimension] += offset
            np.testing.assert_allclose(grid[dimension, column], decode(model, changed, 3), atol=1e-6)


def test_perturbation_of_matrix_poses_goes_row_by_row(model, images):
    class MatrixPoses:
        """The model, with its poses of 9 seen as matrices 3 x 3."""

        name, decoder, image_shape = model.name, model.decoder, model.image_shape

        def __call__(self, images, training=False):
            outputs = model(images, training=training)
            return {**outputs, "poses": keras.ops.reshape(outputs["poses"], (-1, 5, 3, 3))}

        def reconstruct(self, poses, labels=None):
            return model.reconstruct(keras.ops.reshape(poses, (-1, 5, 9)), labels)

    want = analysis.perturb_dimensions(model, images[0], 2, offsets=(-0.5, 1.0))
    np.testing.assert_allclose(analysis.perturb_dimensions(MatrixPoses(), images[0], 2, (-0.5, 1.0)), want, atol=1e-6)
    assert want.shape == (9, 2, 8, 7, 1)


def test_each_part_is_reconstructed_from_its_own_capsule(model, images):
    labels = np.array([[1, 4], [0, 2], [3, 3]])
    parts = analysis.reconstruct_parts(model, images[:3], labels)
    assert parts.shape == (3, 2, 8, 7, 1)
    poses = array(model(images[:3])["poses"])
    for i in range(3):
        for k in range(2):
            np.testing.assert_allclose(parts[i, k], decode(model, poses[i], labels[i, k]), atol=1e-6)


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda m, x: analysis.perturb_dimensions(small_capsnet(decoder_units=None), x[0], 1),
            "decoder; 'capsnet' has none",
        ),
        (lambda m, x: analysis.perturb_dimensions(m, x[0], 5), "0 to 4. Received: 5"),
        (lambda m, x: analysis.perturb_dimensions(m, x[0], np.array([1, 2])), r"0 to 4. Received: array\(\[1, 2\]\)"),
        (lambda m, x: analysis.perturb_dimensions(m, x[0, :, 1:], 1), r"Received an array of shape \(1, 8, 6, 1\)"),
        (lambda m, x: analysis.perturb_dimensions(m, x, 1), r"\(1, 6, 8, 7, 1\)"),
        (lambda m, x: analysis.reconstruct_parts(m, x, [[1, 2]]), r"6 images. Received shape \(1, 2\)"),
        (lambda m, x: analysis.reconstruct_parts(m, x, [[-1, 2]] * 6), "Received: .*-1"),
        (lambda m, x: analysis.measure_reconstructions(m, x, [1, 2]), "6 images and 2 labels"),
        (lambda m, x: analysis.measure_reconstructions(m, x, [1] * 6, right=0, wrong=0), "right=0 and wrong=0"),
        (lambda m, x: analysis.measure_reconstructions(m, x, [1] * 6, right=-1), "right=-1 and wrong=2"),
        (lambda m, x: analysis.measure_reconstructions(m, x, [1] * 6, right=1.5), "right=1.5 and wrong=2"),
        (lambda m, x: overlapping(m, x, x[:, None], [[1, 2]] * 6), r"\(6, 1, 8, 7, 1\)"),
        (lambda m, x: overlapping(m, x, np.stack([x, x], 1), [1] * 6), r"and \(6,\)"),
        (lambda m, x: overlapping(m, x[:1], np.stack([x, x], 1)[:1], [[1, 12]]), r"Received: \[\[ *1, 12\]\]"),
        (lambda m, x: overlapping(small_capsnet(classes=1), x, np.stack([x, x], 1), [[0, 0]] * 6), "'capsnet' has one"),
    ],
)
def test_bad_input_is_named(model, images, call, message):
    with pytest.raises(ValueError, match=message):
        call(model, images)
