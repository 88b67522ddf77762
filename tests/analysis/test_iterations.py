import itertools

import keras
import numpy as np
import pytest
from analysis.capsnets import array, small_capsnet
from backend import run

from tf_capsules import analysis
from tf_capsules.models.hinton2018 import MatrixCapsNet
from tf_capsules.models.tsai2020 import AttentionCapsNet


@pytest.mark.parametrize(
    "options", [{}, {"use_bias": True, "leaky": True}, {"competition": "children"}, {"initial_logits": "learned"}]
)
def test_routing_changes_agree_with_votes_written_out(images, options):
    model = small_capsnet(**options)
    routing = model.encoder.get_layer("class_capsules")
    if routing.use_bias:
        routing.bias.assign(np.random.default_rng(1).normal(size=(5, 9)))
    routing.kernel.assign(60 * routing.kernel)  # so that the couplings become uneven
    children = array(keras.Model(model.encoder.input, routing.input)(images)).reshape(6, -1, 4)
    votes = np.einsum("bid,ijde->bije", children.astype("float64"), array(routing.kernel))
    logits = np.zeros(votes.shape[:3])
    if routing.first_logits is not None:
        routing.first_logits.assign(np.random.default_rng(2).normal(size=routing.first_logits.shape))
        logits = logits + array(routing.first_logits)
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


@pytest.mark.parametrize("pose, schedule", [((2, 3), "concurrent"), (6, "concurrent"), ((2, 3), "sequential")])
def test_pose_changes_are_those_between_networks_of_more_and_more_iterations(pose, schedule):
    options = dict(filters=5, types=3, pose=pose, convolutions=((4, 3, 1),), schedule=schedule)
    network = AttentionCapsNet((11, 12, 1), 4, iterations=1, **options)
    images = np.random.default_rng(0).normal(size=(5, 11, 12, 1)).astype("float32")
    found = analysis.measure_pose_changes(network, images, iterations=3, batch_size=2)
    assert found.shape == (2, 2)
    if schedule == "concurrent":
        poses = []
        for count in (1, 2, 3):
            model = AttentionCapsNet((11, 12, 1), 4, iterations=count, **options)
            model.set_weights(network.get_weights())
            poses.append(run(lambda x, model=model: model(x)["poses"], images).reshape(5, 4, 6))
        want = [np.linalg.norm(after - before, axis=-1).mean() for before, after in itertools.pairwise(poses)]
        np.testing.assert_allclose(found[-1], want, rtol=1e-4)
    np.testing.assert_array_equal(analysis.measure_pose_changes(network.encoder, images, 3, batch_size=2), found)
    other = analysis.measure_pose_changes(network, images, 3, "sequential")
    assert np.allclose(found, other, rtol=1e-4) == (schedule == "sequential")


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda m, x: analysis.measure_routing_changes(m, x, 0), "Received: 0"),
        (lambda m, x: analysis.measure_pose_changes(m, x, 1), "Received: 1"),
        (lambda m, x: analysis.measure_pose_changes(m, x, layer="convolution"), "Conv2D, not a chain of"),
        (lambda m, x: analysis.measure_routing_changes(m, x, layer="convolution"), "Conv2D, not a fully"),
        (lambda m, x: analysis.measure_routing_changes(m, x[:0]), r"\(0, 8, 7, 1\)"),
    ],
)
def test_bad_input_is_named(model, images, call, message):
    with pytest.raises(ValueError, match=message):
        call(model, images)


def test_routing_that_adds_no_agreements_has_no_changes():
    model = MatrixCapsNet((17, 17, 1), classes=3, filters=4, types=2, capsules=(2, 2), iterations=2)
    with pytest.raises(ValueError, match="EMRouting 'class_capsules' does not add agreements to its routing logits"):
        analysis.measure_routing_changes(model, np.zeros((1, 17, 17, 1)))
