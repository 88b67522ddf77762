import keras
import numpy as np
import oracle
import pytest
from backend import array, float64, gradients_of
from keras import ops
from layers.test_inverted_attention import CASES, matrices, of_case
from layers.windowed import memory_forms

from tf_capsules.layers import ConcurrentRouting, ConvInvertedAttentionRouting, InvertedAttentionRouting

RANDOM = np.random.default_rng(0)


def three_layers(case, dtype="float32", votes="auto", **options):
    """The chain of the case, with its weights."""
    layers = [
        ConvInvertedAttentionRouting(2, 2, kernel_size=3, dtype=dtype, votes_memory=votes),
        InvertedAttentionRouting(3, 2, dtype=dtype, votes_memory=votes),
        InvertedAttentionRouting(2, 2, dtype=dtype, votes_memory=votes),
    ]
    chain = ConcurrentRouting(layers, dtype=dtype, **options)
    chain.build((None, 4, 4, 2, 2, 2))
    for number, layer in enumerate(layers, start=1):
        of_case(layer, case, f"W{number}", f"gamma{number}", f"beta{number}", dtype)
    return chain


@pytest.mark.parametrize("schedule", ["concurrent", "sequential"])
@pytest.mark.parametrize("iterations", [1, 2, 3, 5])
def test_three_layers_of_the_hand_computed_case(iterations, schedule):
    case = CASES["C_three_layers_concurrent_and_sequential"]
    primary, w, b = (oracle.expand(**case["params"][key]) for key in ("primary", "classifier_w", "classifier_b"))
    wanted = case["outputs"][schedule][str(iterations)]
    poses = array(three_layers(case, iterations=iterations, schedule=schedule)(matrices(primary))).reshape(2, 2, 4)
    atol = 1e-4 if iterations == 5 else oracle.ATOL
    np.testing.assert_allclose((poses @ w.reshape(4, 1))[..., 0] + b, wanted["logits"], atol=atol)
    if "class_poses" in wanted:
        np.testing.assert_allclose(poses, wanted["class_poses"], atol=atol)


@pytest.mark.parametrize("schedule", ["concurrent", "sequential"])
def test_gradients_are_those_that_the_backend_finds(schedule, monkeypatch):
    case = CASES["C_three_layers_concurrent_and_sequential"]
    with float64():
        primary = matrices(oracle.expand(**case["params"]["primary"], dtype="float64"))
        found = []
        for votes in memory_forms(monkeypatch):
            chain = three_layers(case, "float64", votes, iterations=3, schedule=schedule)

            def scalar(poses, *weights, chain=chain):
                outputs, _ = chain.stateless_call(list(weights), [], poses)
                return ops.sum(ops.square(outputs) * ops.convert_to_tensor(np.arange(1.0, 3)[:, None, None]))

            value, gradients = gradients_of(scalar)(primary, *(array(x) for x in chain.trainable_variables))
            found.append([value, *gradients])
    for *written, b in zip(*found, strict=True):
        assert b.dtype == "float64" and np.abs(b).max() > 0
        for a in written:
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * np.abs(b).max())


def test_all_iterations_on_request():
    chain = [InvertedAttentionRouting(4, 3), InvertedAttentionRouting(2, 3)]
    poses = RANDOM.normal(size=(2, 9, 3)).astype("float32")
    for schedule in ("concurrent", "sequential"):
        layer = ConcurrentRouting(chain, iterations=3, schedule=schedule)
        found = layer(poses, return_iterations=True)
        assert [[x.shape for x in own] for own in found] == [[(2, 4, 3)] * 3, [(2, 2, 3)] * 3]
        np.testing.assert_allclose(array(found[-1][-1]), array(layer(poses)), atol=1e-6)
        inputs = keras.Input(poses.shape[1:])
        model = keras.Model(inputs, layer(inputs, return_iterations=True))
        for wanted, given in zip(keras.tree.flatten(found), keras.tree.flatten(model(poses)), strict=True):
            np.testing.assert_allclose(array(given), array(wanted), atol=1e-6)
    # With one layer both schedules are the same.
    both = [ConcurrentRouting(chain[:1], iterations=4, schedule=name)(poses) for name in ("concurrent", "sequential")]
    np.testing.assert_allclose(array(both[0]), array(both[1]), atol=1e-6)


class Adding(keras.layers.Layer):
    """Adds the sum of the children to the parents' poses."""

    def call(self, poses, parents=None):
        found = ops.sum(poses, axis=1, keepdims=True)
        return found if parents is None else found + parents

    def compute_output_shape(self, poses_shape):
        return poses_shape[0], 1, *poses_shape[2:]


def test_a_layer_of_ones_own_in_a_chain():
    poses = np.arange(24, dtype="float32").reshape(2, 3, 4)
    found = ConcurrentRouting([Adding(), Adding()], 3)(poses, return_iterations=True)
    lower, upper = ([array(one) / poses.sum(1, keepdims=True) for one in own] for own in found)
    # In each iteration the upper layer adds what the lower one had in the iteration before.
    np.testing.assert_allclose(lower, [np.full((2, 1, 4), factor) for factor in (1, 2, 3)])
    np.testing.assert_allclose(upper, [np.full((2, 1, 4), factor) for factor in (1, 2, 4)])
    with pytest.raises(ValueError, match="takes no `mask`"):
        ConcurrentRouting([Adding()])(poses, mask=np.ones((2, 3), bool))
    with pytest.raises(ValueError, match="takes no `mask`"):
        ConcurrentRouting([Adding()])(keras.Input((3, 4)), mask=keras.Input((3,), dtype="bool"))


@pytest.mark.parametrize("schedule", ["concurrent", "sequential"])
def test_children_masked_in_a_chain_do_not_count(schedule):
    poses = RANDOM.normal(size=(2, 5, 5, 2, 2, 3)).astype("float32")
    mask = RANDOM.integers(0, 2, size=poses.shape[:4]).astype(bool)
    layers = [ConvInvertedAttentionRouting(3, 4, strides=2), InvertedAttentionRouting(4, 4)]
    chain = ConcurrentRouting(layers, 3, schedule)
    found = array(chain(poses, mask=mask))
    other = np.where(mask[..., None, None], poses, 1.5)
    np.testing.assert_allclose(array(chain(other, mask=mask)), found, rtol=1e-4, atol=1e-4)
    assert np.abs(array(chain(other)) - array(chain(poses))).max() > 0.1


def test_what_does_not_fit_the_children_is_named_in_a_functional_model():
    chain = ConcurrentRouting([InvertedAttentionRouting(3, 4)], 2)
    with pytest.raises(ValueError, match="`mask` must be shaped like `poses` without pose axes"):
        chain(keras.Input((5, 6)), mask=keras.Input((7,), dtype="bool"))
    with pytest.raises(ValueError, match="`activations` must be shaped like `poses` without pose axes"):
        chain(keras.Input((5, 6)), keras.Input((9,)))


def test_a_copy_of_a_chain_takes_another_number_of_children():
    chain = ConcurrentRouting([InvertedAttentionRouting(3, 4)], 2)
    chain(np.ones((2, 5, 6), "float32"))
    assert ConcurrentRouting.from_config(chain.get_config())(np.ones((2, 7, 6), "float32")).shape == (2, 3, 4)


def test_a_chain_that_is_made_untrainable_learns_nothing():
    inputs = keras.Input((5, 6))
    model = keras.Model(inputs, ConcurrentRouting([InvertedAttentionRouting(3, 4)], 2, trainable=False)(inputs))
    assert not model.trainable_variables and len(model.variables) > 1
