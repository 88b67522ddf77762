import itertools

import keras
import numpy as np
import pytest

from tf_capsules import analysis
from tf_capsules.analysis import measures
from tf_capsules.models.hinton2018 import MatrixCapsNet
from tf_capsules.models.li2018 import CapNet
from tf_capsules.models.sabour2017 import CapsNet
from tf_capsules.models.tsai2020 import AttentionCapsNet


def make_model(**options):
    keras.utils.set_random_seed(0)
    sizes = {"filters": 6, "kernel_size": 3, "types": 3, "pose": 4, "primary_kernel_size": 3, "primary_strides": 1}
    return CapsNet((8, 7, 1), classes=5, dim=9, **sizes, **{"decoder_units": (11,)} | options)


@pytest.fixture(scope="module")
def model():
    return make_model()


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).random((6, 8, 7, 1), dtype="float32")


def array(tensor):
    return keras.ops.convert_to_numpy(tensor)


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


@pytest.mark.parametrize("options", [{}, {"use_bias": True, "leaky": True}, {"competition": "children"}])
def test_routing_changes_agree_with_votes_written_out(images, options):
    model = make_model(**options)
    routing = model.encoder.get_layer("class_capsules")
    if routing.use_bias:
        routing.bias.assign(np.random.default_rng(1).normal(size=(5, 9)))
    routing.kernel.assign(60 * routing.kernel)  # so that the couplings leave uniform
    children = array(keras.Model(model.encoder.input, routing.input)(images)).reshape(6, -1, 4)
    votes = np.einsum("bid,ijde->bije", children.astype("float64"), array(routing.kernel))
    logits = np.zeros(votes.shape[:3])
    want = []
    for _ in range(4):
        exponents = np.exp(logits)
        axis = 2 if routing.competition == "parents" else 1
        couplings = exponents / (exponents.sum(axis, keepdims=True) + routing.leaky)
        sums = np.einsum("bij,bije->bje", couplings, votes) + (array(routing.bias) if routing.use_bias else 0)
        norm = np.linalg.norm(sums, axis=-1, keepdims=True)
        change = np.einsum("bije,bje->bij", votes, sums * norm / (1 + norm**2))
        want.append(np.abs(change).mean())
        logits = logits + change
    got = analysis.measure_routing_changes(model, images, iterations=4)
    np.testing.assert_allclose(got, want, rtol=1e-4)
    np.testing.assert_allclose(analysis.measure_routing_changes(model, images, 4, batch_size=4), got, rtol=1e-5)
    assert not np.allclose(want[0], want[3], rtol=0.01)


@pytest.mark.parametrize("pose", [(2, 3), 6])
@pytest.mark.parametrize("schedule", ["concurrent", "sequential"])
def test_pose_changes_are_those_between_networks_of_more_and_more_iterations(pose, schedule):
    options = dict(filters=5, types=3, pose=pose, convolutions=((4, 3, 1),), schedule=schedule)
    models = [AttentionCapsNet((11, 12, 1), 4, iterations=count, **options) for count in (1, 2, 3)]
    images = np.random.default_rng(0).normal(size=(5, 11, 12, 1)).astype("float32")
    poses = []
    for model in models:
        model.set_weights(models[0].get_weights())
        poses.append(model.predict_on_batch(images)["poses"].reshape(5, 4, 6))
    found = analysis.measure_pose_changes(models[0], images, iterations=3, batch_size=2)
    assert found.shape == (2, 2)
    if schedule == "concurrent":
        want = [np.linalg.norm(after - before, axis=-1).mean() for before, after in itertools.pairwise(poses)]
        np.testing.assert_allclose(found[-1], want, rtol=1e-4)
    np.testing.assert_array_equal(analysis.measure_pose_changes(models[0].encoder, images, 3, batch_size=2), found)
    other = analysis.measure_pose_changes(models[0], images, 3, "sequential")
    assert np.allclose(found, other, rtol=1e-4) == (schedule == "sequential")


@pytest.mark.parametrize("activations", [False, True])
@pytest.mark.parametrize("schedule, iterations", [("concurrent", 1), ("concurrent", 3), ("sequential", 2)])
def test_routing_maps_are_the_couplings_on_the_way_up(schedule, iterations, activations):
    options = dict(filters=5, types=2, pose=(2, 3), convolutions=((3, 3, 1),), hidden=(4,), activations=activations)
    model = AttentionCapsNet((11, 12, 1), 3, schedule=schedule, iterations=iterations, **options)
    images = 3 * np.random.default_rng(0).normal(size=(5, 11, 12, 1)).astype("float32")
    maps = analysis.measure_routing_maps(model, images, batch_size=2)
    assert maps.shape == (5, 6, 6, 3)
    np.testing.assert_allclose(maps.sum(-1), 1, rtol=1e-5)
    if iterations == 1:
        np.testing.assert_allclose(maps, 1 / 3, rtol=1e-5)
        return
    assert np.ptp(maps) > 0.01
    routing = model.encoder.get_layer("routing")
    convolution, hidden, last = routing.chain
    lowest = keras.Model(model.encoder.input, keras.tree.flatten(routing.input)).predict_on_batch(images)
    lowest = lowest if activations else [lowest[0] if isinstance(lowest, list) else lowest]
    found = routing(*lowest, return_iterations=True)

    def couplings(layer, children, parents):
        children = children if isinstance(children, (tuple, list)) else [children]
        return array(layer(*children, parents=parents, return_couplings=True)[-1])

    if schedule == "sequential":
        steps = [(lowest, found[0][0]), (found[0][-1], found[1][0]), (found[1][-1], found[2][0])]
    else:
        steps = [(lowest, None), (found[0][0], found[1][0]), (found[1][1], found[2][1])]
    first, second, third = (couplings(layer, *step) for layer, step in zip(routing.chain, steps, strict=True))
    above = (second @ third).reshape(5, 4, 4, 3, 3)  # of each capsule of the convolution, by class
    wanted = np.zeros((5, 6, 6, 3))
    for row, column in np.ndindex(4, 4):
        window = np.einsum("bij,bjc->bic", first[:, row, column], above[:, row, column]).reshape(5, 3, 3, 2, 3)
        wanted[:, row : row + 3, column : column + 3] += window.sum(3)
    np.testing.assert_allclose(maps, wanted / wanted.sum(-1, keepdims=True), rtol=1e-4)


@pytest.mark.parametrize("pose", [(4, 3), 6])
def test_vote_distances_are_those_to_the_poses_that_the_votes_make(pose):
    sizes = dict(classes=5, filters=4, types=2, capsules=(3, 6), iterations=2)
    model = MatrixCapsNet((25, 22, 1), pose=pose, **sizes)
    images = np.random.default_rng(0).normal(size=(4, 25, 22, 1)).astype("float32")
    routing = model.encoder.get_layer("class_capsules")
    routing.inverse_temperature = (0.01, 0.03)
    inputs = keras.Model(model.encoder.input, routing.input)
    poses, activations = inputs.predict(images, batch_size=2, verbose=0)
    assert poses.shape[1:4] == (3, 2, 6)
    poses, kernel = poses.reshape(4, 3, 2, 6, -1, poses.shape[-1]), array(routing.kernel)
    votes = np.einsum("bhwnrc,nocd->bhwnord", poses, kernel)
    rows, columns = np.array([1, 3, 5]) / 6, np.array([1, 3]) / 4
    first, second = ((0, 2), (1, 2)) if pose == (4, 3) else ((0, 0), (0, 1))
    votes[..., first[0], first[1]] += rows[:, None, None, None]
    votes[..., second[0], second[1]] += columns[:, None, None]
    votes, activations = votes.reshape(4, 36, 5, -1), activations.reshape(4, 36, 1)
    distances, couplings = analysis.measure_vote_distances(model, images, batch_size=2)
    assert distances.shape == couplings.shape == (2, 4, 36, 5)
    np.testing.assert_allclose(couplings[0], 0.2, atol=1e-6)
    np.testing.assert_allclose(couplings[1].sum(-1), 1, atol=1e-5)
    assert couplings[1].std() > 0.01
    for iteration in range(2):
        shares = couplings[iteration] * activations
        means = np.einsum("bio,bioe->boe", shares, votes) / shares.sum(1)[..., None]
        want = np.linalg.norm(votes - means[:, None], axis=-1)
        # Untrained couplings amplify the rounding of the two forms of the votes.
        np.testing.assert_allclose(distances[iteration], want, atol=5e-3)
    routed = model.predict(images, batch_size=2, verbose=0)["poses"]
    np.testing.assert_allclose(means, routed.reshape(4, 5, -1), atol=5e-3)


@pytest.mark.parametrize("routing", ["dynamic", "em"])
def test_vote_similarities_are_those_of_the_votes_for_the_right_class(routing):
    model = CapNet((8, 8, 3), classes=4, dim=3, grid=(1, 1), routing=routing)
    images = np.random.default_rng(0).random((5, 8, 8, 3)).astype("float32")
    labels = np.array([3, 0, 1, 1, 2])
    layer = model.encoder.get_layer("class_capsules")
    inputs = keras.Model(model.encoder.input, keras.tree.flatten(layer.input)[0])
    poses = inputs.predict(images, verbose=0).reshape(5, 32, 3)
    bias = layer.vote_bias if routing == "dynamic" else layer.bias
    votes = np.einsum("bid,ijde->bije", poses, array(layer.kernel)) + array(bias)
    parents = model.predict(images, verbose=0)["poses"]
    shares, lengths = np.zeros(21), np.zeros(21)
    for sample, label in enumerate(labels):
        for vote in votes[sample, :, label]:
            norm, parent = np.linalg.norm(vote), parents[sample, label]
            place = int(np.floor(10 * (vote @ parent) / norm / np.linalg.norm(parent) + 10))
            shares[place] += 1
            lengths[place] += norm
    found = analysis.measure_vote_similarities(model, images, labels, batch_size=2)
    np.testing.assert_allclose(found[0], shares / 160, atol=2 / 160)  # a vote on the edge of a bin
    np.testing.assert_allclose(np.nansum(found[0] * found[1]), lengths.sum() / 160, rtol=1e-4)


def test_equivariance_is_measured_on_shifted_images(model, images):
    shifts = [(0, 0), (0, 2), (-1, 0), (1, -1)]
    moved = np.zeros((4, 8, 7, 1), "float32")
    image = images[0]
    moved[0] = image
    moved[1, :, 2:] = image[:, :-2]
    moved[2, :-1] = image[1:]
    moved[3, 1:, :-1] = image[:-1, 1:]
    want = model(moved)
    lengths, poses = analysis.measure_equivariance(model, image, 4, shifts)
    np.testing.assert_allclose(lengths, array(want["activations"])[:, 4], atol=1e-6)
    np.testing.assert_allclose(poses, array(want["poses"])[:, 4], atol=1e-6)
    assert lengths.shape == (4,) and poses.shape == (4, 9)


def test_predictions_do_not_depend_on_the_batches(model, images):
    whole, parts = measures.predict(model, images), measures.predict(model, images, batch_size=4)
    for name in ("activations", "poses"):
        np.testing.assert_allclose(parts[name], whole[name], atol=1e-6)
    plain = keras.Sequential([keras.Input((8, 7, 1)), keras.layers.Flatten(), keras.layers.Dense(5)])
    assert measures.predict(plain, images, batch_size=4).shape == (6, 5)


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda m, x: analysis.measure_vote_similarities(m, x, [1] * 6, layer="encoder_input"),
            "encoder_input",
        ),
        (lambda m, x: analysis.measure_vote_similarities(m, x, [1] * 5), "6 images and 5 labels"),
        (lambda m, x: analysis.measure_vote_similarities(m, x, [9] * 6), "9"),
        (lambda m, x: analysis.measure_vote_similarities(m, x, [1] * 6, bins=20), "odd.*Received: 20"),
        (
            lambda model, images: analysis.measure_vote_distances(model, images),
            "layer 'class_capsules' is a DynamicRouting, not an EMRouting",
        ),
        (
            lambda m, x: analysis.perturb_dimensions(make_model(decoder_units=None), x[0], 1),
            "decoder; 'capsnet' has none",
        ),
        (lambda m, x: analysis.perturb_dimensions(m, x[0], 5), "0 to 4. Received: 5"),
        (lambda m, x: analysis.perturb_dimensions(m, x[0, :, 1:], 1), r"Received an array of shape \(1, 8, 6, 1\)"),
        (lambda m, x: analysis.perturb_dimensions(m, x, 1), r"\(1, 6, 8, 7, 1\)"),
        (lambda m, x: analysis.reconstruct_parts(m, x, [[1, 2]]), r"6 images. Received shape \(1, 2\)"),
        (lambda m, x: analysis.reconstruct_parts(m, x, [[-1, 2]] * 6), "Received: .*-1"),
        (lambda m, x: analysis.measure_routing_changes(m, x, 0), "Received: 0"),
        (lambda m, x: analysis.measure_pose_changes(m, x, 1), "Received: 1"),
        (lambda m, x: analysis.measure_pose_changes(m, x, layer="convolution"), "Conv2D, not a ConcurrentRouting"),
        (lambda m, x: analysis.measure_routing_maps(m, x, layer="convolution"), "Conv2D, not a ConcurrentRouting"),
        (lambda m, x: analysis.measure_routing_changes(m, x, layer="convolution"), "Conv2D, not a DynamicRouting"),
        (lambda m, x: analysis.measure_routing_changes(m, x[:0]), r"\(0, 8, 7, 1\)"),
        (lambda m, x: analysis.measure_equivariance(m, x[0], 1, [1, 2]), r"Received: \[1, 2\]"),
        (lambda m, x: analysis.measure_equivariance(m, x[0], 1, [(0.5, 1)]), "whole pixels"),
        (lambda m, x: analysis.measure_equivariance(m, x[0], 7, [(0, 1)]), "Received: 7"),
    ],
)
def test_bad_input_is_named(model, images, call, message):
    with pytest.raises(ValueError, match=message):
        call(model, images)
