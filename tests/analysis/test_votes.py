import keras
import numpy as np
import pytest
from analysis.capsnets import array, small_capsnet, small_images

from tf_capsules import analysis
from tf_capsules.analysis.inference import predict_classes
from tf_capsules.layers import (
    ConvDynamicRouting,
    DynamicRouting,
    HeinsenRouting,
    InvertedAttentionRouting,
    SelfAttentionRouting,
)
from tf_capsules.models.hinton2018 import MatrixCapsNet
from tf_capsules.models.li2018 import CapNet


@pytest.mark.parametrize("pose", [(4, 3), 6])
def test_vote_distances_are_those_to_the_poses_that_the_votes_make(pose):
    sizes = dict(classes=5, filters=4, types=2, capsules=(3, 6), iterations=2)
    model = MatrixCapsNet((25, 22, 1), pose=pose, **sizes)
    images = np.random.default_rng(0).normal(size=(4, 25, 22, 1)).astype("float32")
    routing = model.encoder.get_layer("class_capsules")
    routing.inverse_temperature = (0.01, 0.03)
    inputs = keras.Model(model.encoder.input, routing.input)
    poses, activations = map(array, inputs(images))
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
    routed = array(model(images)["poses"])
    np.testing.assert_allclose(means, routed.reshape(4, 5, -1), atol=5e-3)


@pytest.mark.parametrize(
    "routing",
    [
        DynamicRouting(5, 4, name="routing"),
        HeinsenRouting(5, 4, name="routing"),
        SelfAttentionRouting(5, 4, use_prior=False, name="routing"),
        InvertedAttentionRouting(5, 4, initial_pose="random", layer_norm=False, name="routing"),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_every_fully_connected_routing_layer_tells_its_vote_distances(routing):
    inputs = keras.Input((3, 2, 12))
    children = keras.layers.Reshape((3, 2, 2, 6))(inputs)
    model = keras.Model(inputs, routing(children))
    images = np.random.default_rng(0).normal(size=(4, 3, 2, 12)).astype("float32")
    distances, couplings = analysis.measure_vote_distances(model, images, layer="routing", batch_size=3)
    found = routing.routed(images.reshape(4, 3, 2, 2, 6), return_couplings=True)
    votes = np.einsum("bid,ijde->bije", images.reshape(4, 12, 6), array(routing.kernel))
    want = np.linalg.norm(votes - array(found.poses)[:, None], axis=-1)
    assert distances.shape == couplings.shape == (getattr(routing, "iterations", 1), 4, 12, 5)
    np.testing.assert_allclose(distances[-1], want, atol=1e-5)
    np.testing.assert_allclose(couplings[-1], array(found.couplings), atol=1e-6)


@pytest.mark.parametrize(
    "routing, message",
    [
        (ConvDynamicRouting(5, 4, kernel_size=2, name="routing"), "a ConvDynamicRouting, not a fully connected"),
        (HeinsenRouting(None, 4, sharing="all", name="routing"), "a HeinsenRouting, not .* a fixed number of capsules"),
        (SelfAttentionRouting(5, 4, name="routing"), "'routing' are no shares: they contain a learned prior"),
    ],
    ids=["windows", "capsules by call", "prior"],
)
def test_layers_without_vote_distances_are_refused(routing, message):
    inputs = keras.Input((3, 3, 12))
    children = keras.layers.Reshape((3, 3, 2, 6))(inputs)
    model = keras.Model(inputs, routing(children))
    with pytest.raises(ValueError, match=message):
        analysis.measure_vote_distances(model, np.zeros((1, 3, 3, 12)), layer="routing")


def binned(votes, parents, labels):
    """How many votes for the right class are in each bin of their cosine with its capsule, and their lengths' sum."""
    counts, lengths = np.zeros(21), np.zeros(21)
    for sample, label in enumerate(labels):
        for vote in votes[sample, :, label]:
            norm, parent = np.linalg.norm(vote), parents[sample, label]
            place = int(np.floor(10 * (vote @ parent) / norm / np.linalg.norm(parent) + 10))
            counts[place] += 1
            lengths[place] += norm
    return counts, lengths


@pytest.mark.parametrize("routing", ["dynamic", "em"])
def test_vote_similarities_are_those_of_the_votes_for_the_right_class(routing):
    # EM routing stores its votes here: its eager loop over the 32 types of capsules takes long.
    memory = "store" if routing == "em" else "auto"
    model = CapNet((8, 8, 3), classes=4, dim=3, grid=(1, 1), routing=routing, iterations=2, votes_memory=memory)
    images = np.random.default_rng(0).random((5, 8, 8, 3)).astype("float32")
    labels = np.array([3, 0, 1, 1, 2])
    layer = model.encoder.get_layer("class_capsules")
    inputs = keras.Model(model.encoder.input, [keras.tree.flatten(layer.input)[0], model.encoder.output["poses"]])
    poses, parents = map(array, inputs(images))
    poses = poses.reshape(5, 32, 3)
    bias = layer.vote_bias if routing == "dynamic" else layer.bias
    votes = np.einsum("bid,ijde->bije", poses, array(layer.kernel)) + array(bias)
    counts, lengths = binned(votes, parents, labels)
    found = analysis.measure_vote_similarities(model, images, labels, batch_size=3)
    np.testing.assert_allclose(found[0], counts / 160, atol=2 / 160)  # a vote on the edge of a bin
    np.testing.assert_allclose(np.nansum(found[0] * found[1]), lengths.sum() / 160, rtol=1e-4)


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
        (lambda m, x: analysis.measure_vote_similarities(m, x, [1] * 6, bins=5.0), "odd.*Received: 5.0"),
        (
            lambda model, images: analysis.measure_vote_distances(model, images, layer="primary_capsules"),
            "layer 'primary_capsules' is a PrimaryCapsules, not a fully connected routing layer",
        ),
    ],
)
def test_bad_input_is_named(model, images, call, message):
    with pytest.raises(ValueError, match=message):
        call(model, images)


def test_a_wrong_image_is_of_a_class_not_yet_shown(monkeypatch):
    monkeypatch.setattr(analysis.votes, "find_layer", lambda *layer: None)
    monkeypatch.setattr(
        analysis.votes, "predict_classes", lambda model, images, labels: (np.array([0, 1, 2, 2]), labels)
    )
    monkeypatch.setattr(analysis.votes, "measure_vote_distances", lambda model, images: (None, None))
    found = analysis.measure_example_votes(None, np.zeros((4, 2, 2, 1)), np.array([0, 1, 0, 3]))
    assert found.labels.tolist() == [0, 1, 3] and found.predictions.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="whole numbers of at least 0. Received: right=-1 and wrong=1"):
        analysis.measure_example_votes(None, np.zeros((4, 2, 2, 1)), np.array([0, 1, 0, 3]), right=-1)


def test_lengths_are_those_of_the_votes_in_a_bin():
    model, images, labels = small_capsnet(), small_images(), np.array([0, 1, 2, 3, 4, 0])
    layer = model.encoder.get_layer("class_capsules")
    poses = array(keras.Model(model.encoder.input, layer.input)(images))
    parents = array(model(images)["poses"])
    votes = array(layer.votes(poses))
    counts, lengths = binned(votes, parents, labels)
    shares, means = analysis.measure_vote_similarities(model, images, labels, batch_size=4)
    same = np.isclose(shares * counts.sum(), counts) & (counts > 0)  # not where a vote is on the edge of a bin
    assert same.sum() > 8
    np.testing.assert_allclose(means[same], (lengths / np.maximum(counts, 1))[same], rtol=1e-3)


def test_votes_of_a_functional_model_are_those_of_the_classifier_around_it(model, images):
    labels = [0, 1, 2, 3, 4, 0]
    both = (analysis.measure_vote_similarities(one, images, labels) for one in (model, model.encoder))
    for found, wanted in zip(*both, strict=True):
        np.testing.assert_array_equal(found, wanted)
    changes = [analysis.measure_routing_changes(one, images) for one in (model, model.encoder)]
    np.testing.assert_array_equal(*changes)
    with pytest.raises(ValueError, match="needs a CapsuleClassifier. Received: <Functional"):
        predict_classes(model.encoder, images, labels)
