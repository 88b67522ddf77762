import dataclasses

import keras
import numpy as np
import oracle
import pytest
from backend import EAGER, JIT, array, float64, gradients_of
from keras import ops
from layers.windowed import memory_forms, windows_of

from tf_capsules.layers import ConcurrentRouting, ConvInvertedAttentionRouting, DynamicRouting, InvertedAttentionRouting

CASES = oracle.read("inverted_attention")
RANDOM = np.random.default_rng(0)


def matrices(x):
    """Poses of four numbers as matrices of 2x2."""
    return x.reshape(*x.shape[:-1], 2, 2)


def of_case(layer, case, kernel="W", gamma="gamma", beta="beta", dtype="float32"):
    """Assigns the weights of a case to a built layer."""
    layer.kernel.assign(oracle.expand(**case["params"][kernel], dtype=dtype))
    layer.normalization.gamma.assign(matrices(oracle.expand(**case["params"][gamma], dtype=dtype)))
    layer.normalization.beta.assign(matrices(oracle.expand(**case["params"][beta], dtype=dtype)))
    return layer


@pytest.mark.parametrize("votes", ["auto", "store"])
def test_convolution_of_the_hand_computed_case(votes):
    case = CASES["B_conv_matrix_k3_s2_valid"]
    poses = matrices(oracle.expand(**case["params"]["child"]))
    layer = ConvInvertedAttentionRouting(3, 2, kernel_size=3, strides=2, votes_memory=votes)
    layer.build(poses.shape)
    of_case(layer, case)
    parents = None
    for wanted in case["iterations"]:
        again, couplings = layer(poses, parents=parents, return_couplings=True)
        parents = layer(poses, parents=parents)
        expected = np.array(wanted["pose"])
        np.testing.assert_allclose(array(parents).reshape(expected.shape), expected, atol=oracle.ATOL)
        np.testing.assert_allclose(array(again), array(parents), atol=1e-5)
        if "R_position00" in wanted:
            np.testing.assert_allclose(array(couplings)[0, 0, 0], wanted["R_position00"], atol=oracle.ATOL)


@pytest.mark.parametrize("masked", [False, True])
def test_a_convolution_is_the_same_layer_on_each_window(masked):
    poses = RANDOM.normal(size=(2, 4, 5, 3, 6)).astype("float32")
    mask = RANDOM.integers(0, 2, size=poses.shape[:4]).astype(bool) if masked else None
    convolution = ConvInvertedAttentionRouting(4, 5, kernel_size=(2, 3))
    above = convolution(poses, parents=convolution(poses, mask=mask), mask=mask)
    assert above.shape == (2, 3, 3, 4, 5)
    layer = InvertedAttentionRouting(4, 5)
    layer.build((None, 18, 6))
    layer.kernel.assign(array(convolution.kernel).reshape(18, 4, 6, 5))
    for place, window, keep in windows_of(poses, mask, 2, 3):
        wanted = layer(window, parents=layer(window, mask=keep), mask=keep)
        np.testing.assert_allclose(array(above)[:, *place], array(wanted), rtol=1e-4, atol=1e-5)


def test_masked_children_do_not_count():
    poses = RANDOM.normal(size=(3, 7, 2, 3)).astype("float32")
    mask = np.ones((3, 7), bool)
    mask[:, 2] = False
    mask[1] = False
    layer = InvertedAttentionRouting(4, 5)
    parents = layer(poses, mask=mask)
    found = array(layer(poses, parents=parents, mask=mask))
    other = np.where(mask[:, :, None, None], poses, 1.5)
    np.testing.assert_allclose(
        array(layer(other, parents=layer(other, mask=mask), mask=mask)), found, rtol=1e-5, atol=1e-5
    )
    # Without any children only the offset of the normalization is left.
    np.testing.assert_allclose(found[1], 0, atol=1e-6)
    couplings = array(layer(poses, parents=parents, mask=mask, return_couplings=True)[1])
    np.testing.assert_allclose(couplings.sum(-1), mask, atol=1e-6)


@pytest.mark.parametrize("of", [InvertedAttentionRouting, ConvInvertedAttentionRouting])
def test_initial_poses(of):
    poses = RANDOM.normal(size=(2, 3, 4, 5, 2, 3)).astype("float32")
    layers = {start: of(4, 5, initial_pose=start) for start in ("zeros", "random", "learned")}
    found = {start: array(layer(poses)) for start, layer in layers.items()}
    assert [len(layer.trainable_weights) for layer in layers.values()] == [3, 3, 4]
    for layer in layers.values():
        layer.kernel.assign(layers["zeros"].kernel)
    found = {start: array(layer(poses)) for start, layer in layers.items()}
    # Learned initial poses begin at zeros, which gives the same even couplings as no poses.
    np.testing.assert_allclose(found["learned"], found["zeros"], rtol=1e-4, atol=1e-5)
    assert np.abs(found["random"] - found["zeros"]).max() > 0.01


def test_poses_are_normalized_and_dropped():
    poses = RANDOM.normal(size=(2, 9, 2, 3)).astype("float32")
    normal = array(InvertedAttentionRouting(4, 5)(poses)).reshape(2, 4, 10)
    np.testing.assert_allclose(normal.mean(-1), 0, atol=1e-5)
    np.testing.assert_allclose(normal.std(-1), 1, atol=1e-3)
    layer = InvertedAttentionRouting(4, 5, layer_norm=False, dropout=0.5)
    assert np.mean(array(layer(poses)) == 0) == 0
    assert 0.2 < np.mean(array(layer(poses, training=True)) == 0) < 0.8


def test_a_new_kernel_is_drawn_as_the_authors_do():
    layer = ConvInvertedAttentionRouting(16, 4, kernel_size=3)
    layer.build((None, 8, 8, 32, 4, 4))
    assert layer.count_params() == 3 * 3 * 32 * 16 * 16 + 32
    np.testing.assert_allclose(array(layer.kernel).std(), (16 / (4 * 32 * 9)) ** 0.5, rtol=0.02)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: InvertedAttentionRouting(0, 4), "capsules"),
        (lambda: InvertedAttentionRouting(3, 4, initial_pose="ones"), "initial_pose"),
        (lambda: InvertedAttentionRouting(3, 4, dropout=1.0), "dropout"),
        (lambda: InvertedAttentionRouting(3, 4, layer_norm="false"), "`layer_norm`.*Received: 'false'"),
        (lambda: ConvInvertedAttentionRouting(3, 4, use_activations="relu"), "`use_activations`.*Received: 'relu'"),
        (lambda: InvertedAttentionRouting(3, 4, votes_memory="free"), "`votes_memory`.*Received: 'free'"),
        (lambda: InvertedAttentionRouting(3, 4, use_activations=True, votes_memory="recompute"), "use_activations"),
        (lambda: InvertedAttentionRouting(3, 4).build((None, None, 4)), "number of children"),
        (lambda: ConvInvertedAttentionRouting(3, 4, kernel_size=0), "kernel_size"),
        (lambda: ConvInvertedAttentionRouting(3, 4).build((None, 9, 4)), "on a grid"),
        (lambda: ConvInvertedAttentionRouting(3, 4, name="low").build((None, 2, 5, 3, 4)), "'low': .* than the window"),
        (lambda: InvertedAttentionRouting(3, 4)(np.ones((2, 5, 4)), mask=np.ones((2, 4))), "mask"),
        (lambda: InvertedAttentionRouting(3, 4)([np.ones((2, 5, 4)), np.ones((2, 5))]), "Poses must be one array"),
        (lambda: ConcurrentRouting([]), r"one or more.*Received: \[\]"),
        (lambda: ConcurrentRouting(InvertedAttentionRouting(3, 4)), "a list of one or more.*Received: <Inverted"),
        (lambda: ConcurrentRouting([DynamicRouting(3, 4)]), "parents"),
        (lambda: ConcurrentRouting([InvertedAttentionRouting(3, 4)], iterations=0), "iterations"),
        (lambda: ConcurrentRouting([InvertedAttentionRouting(3, 4)], schedule="both"), "schedule"),
    ],
)
def test_clear_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_layer_keeps_to_the_pose_it_was_built_for():
    layer = InvertedAttentionRouting(3, 4)
    layer(np.ones((2, 5, 4, 4)))
    with pytest.raises(ValueError, match="axis -2 .* value 4, but received .* shape \\(2, 5, 3, 4\\)"):
        layer(np.ones((2, 5, 3, 4)))


@pytest.mark.parametrize("convolutional", [False, True])
@pytest.mark.parametrize("activations", [False, True])
def test_parents_of_another_shape_are_refused(convolutional, activations):
    layer = InvertedAttentionRouting(3, 2, use_activations=activations)
    poses = np.ones((2, 5, 5, 2, 4, 4), "float32")
    if convolutional:
        layer = ConvInvertedAttentionRouting(3, 2, kernel_size=2, use_activations=activations)
    found = layer(poses)
    layer(poses, parents=found)
    own = found[0] if activations else found
    wrong = [own[:1], own[..., :1], own[:, :1], own if activations else (own, own)]
    wrong += [(own, own), found[:1]] if activations else []
    for parents in wrong:
        with pytest.raises(ValueError, match="`parents` must be what the layer returned.*Received shape"):
            layer(poses, parents=parents)


@pytest.mark.long
def test_it_trains_in_a_network():
    images = keras.Input((7, 7, 8))
    x = keras.layers.Reshape((7, 7, 2, 2, 2))(images)
    chain = [ConvInvertedAttentionRouting(3, 2, strides=2), InvertedAttentionRouting(4, 2)]
    x = ConcurrentRouting(chain, iterations=2)(x)
    x = keras.layers.Dense(1)(keras.layers.Reshape((4, 4))(x))
    model = keras.Model(images, keras.layers.Flatten()(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.02), loss, jit_compile=JIT, run_eagerly=EAGER)
    inputs, labels = RANDOM.normal(size=(32, 7, 7, 8)).astype("float32"), np.arange(32) % 4
    losses = model.fit(inputs, labels, epochs=12, verbose=0).history["loss"]
    assert losses[-1] < 0.8 * losses[0]


def activated(layer, iterations, poses, activations):
    """Computes poses and activations of a fully connected layer in NumPy, as the layer's docstring says."""
    kernel, beta_u, beta_a = (array(x) for x in (layer.kernel, layer.beta_u, layer.beta_a))
    votes = np.einsum("bird,ijde->bijre", poses, kernel).reshape(*poses.shape[:2], 4, 10)
    parents = np.zeros((len(poses), 4, 10))
    for _ in range(iterations):
        logits = np.einsum("bje,bije->bij", parents, votes) / 10**0.5
        couplings = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True) * activations[..., None]
        sums, mass = np.einsum("bij,bije->bje", couplings, votes), couplings.sum(1)
        variances = np.einsum("bij,bije->bje", couplings, np.square(votes - (sums / mass[..., None])[:, None]))
        variances = variances / mass[..., None]
        centered = sums - sums.mean(-1, keepdims=True)
        parents = centered / np.sqrt(np.square(centered).mean(-1, keepdims=True) + 1e-5)
        cost = (10 * beta_u + 0.5 * np.log(variances + 1e-5).sum(-1)) * mass
    return parents, 1 / (1 + np.exp(-0.01 * (beta_a - cost)))


@pytest.mark.parametrize("iterations", [1, 3])
def test_activations_weigh_votes_and_are_made_of_their_variance(iterations):
    poses = RANDOM.normal(size=(3, 9, 2, 3)).astype("float32")
    activations = RANDOM.uniform(0.1, 1, size=(3, 9)).astype("float32")
    layer = InvertedAttentionRouting(4, 5, use_activations=True)
    layer.build(poses.shape)
    layer.beta_u.assign(RANDOM.normal(size=4))
    layer.beta_a.assign(30 * RANDOM.normal(size=4))
    found = ConcurrentRouting([layer], iterations)(poses, activations)
    wanted = activated(layer, iterations, poses, activations)
    np.testing.assert_allclose(array(found[0]).reshape(3, 4, 10), wanted[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(array(found[1]), wanted[1], rtol=1e-4)
    assert np.ptp(wanted[1]) > 0.1


def test_gradients_with_activations_are_those_that_the_backend_finds(monkeypatch):
    with float64():
        poses, activations = RANDOM.normal(size=(3, 4, 5, 2, 2, 3)), RANDOM.uniform(0.1, 1, size=(3, 4, 5, 2))
        found = []
        for votes in memory_forms(monkeypatch):
            options = dict(votes_memory=votes, dtype="float64")
            layers = [
                ConvInvertedAttentionRouting(4, 5, kernel_size=(3, 2), use_activations=True, **options),
                ConvInvertedAttentionRouting(3, 2, kernel_size=2, use_activations=True, **options),
                InvertedAttentionRouting(2, 2, **options),
            ]
            chain = ConcurrentRouting(layers, 3, dtype="float64")
            chain.build(poses.shape, activations.shape)
            for weight in chain.trainable_variables:
                size = int(np.prod(weight.shape))
                weight.assign(np.sin(np.arange(1.0, size + 1)).reshape(weight.shape))
            if votes == "auto":
                layers[0].plan = dataclasses.replace(layers[0].plan, examples=2)

            def scalar(poses, activations, *weights, chain=chain):
                outputs, _ = chain.stateless_call(list(weights), [], poses, activations)
                return ops.sum(ops.square(outputs) * ops.convert_to_tensor(np.arange(1.0, 3)[:, None, None]))

            value, gradients = gradients_of(scalar)(poses, activations, *(array(x) for x in chain.trainable_variables))
            found.append([value, *gradients])
    for *written, b in zip(*found, strict=True):
        assert b.dtype == "float64" and np.abs(b).max() > 0
        for a in written:
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * np.abs(b).max())


def test_one_child_leaves_no_variance_however_far_its_votes_are_from_zero(monkeypatch):
    poses = RANDOM.normal(size=(2, 4, 4, 1, 4)).astype("float32") + 100
    found = []
    for votes in memory_forms(monkeypatch):
        layer = ConvInvertedAttentionRouting(3, 4, kernel_size=1, use_activations=True, votes_memory=votes)
        layer.build(poses.shape)
        layer.kernel.assign(np.sin(np.arange(48.0)).reshape(layer.kernel.shape))

        def scalar(poses, layer=layer):
            parents, activations = layer(poses)
            return ops.sum(parents[..., 0]) + ops.sum(ops.square(activations))

        found.append([*layer(poses), *gradients_of(scalar)(poses)[1]])
    for *written, b in zip(*map(keras.tree.flatten, found), strict=True):
        for a in written:
            np.testing.assert_allclose(array(a), array(b), rtol=1e-4, atol=1e-4 * np.abs(array(b)).max())


@pytest.mark.parametrize("of", [InvertedAttentionRouting, ConvInvertedAttentionRouting])
def test_sums_are_dropped_before_they_are_normalized(of):
    poses = RANDOM.normal(size=(2, 4, 5, 3, 2, 3)).astype("float32")
    found = array(of(4, 5, dropout=0.5)(poses, training=True))
    np.testing.assert_allclose(found.mean((-2, -1)), 0, atol=1e-5)
    np.testing.assert_allclose(found.std((-2, -1)), 1, atol=1e-2)


@pytest.mark.parametrize("of", [InvertedAttentionRouting, ConvInvertedAttentionRouting])
def test_training_reaches_dropout(of):
    poses = RANDOM.normal(size=(2, 4, 5, 3, 2, 3)).astype("float32")
    layer = of(4, 5, layer_norm=False, dropout=0.5)
    assert np.mean(array(layer(poses)) == 0) == 0
    assert 0.2 < np.mean(array(layer(poses, training=True)) == 0) < 0.8


def test_unscaled_agreements():
    poses = RANDOM.normal(size=(2, 9, 2, 3)).astype("float32")
    layer = InvertedAttentionRouting(4, 5, scaled=False)
    parents = layer(poses)
    couplings = array(layer(poses, parents=parents, return_couplings=True)[1])
    votes = np.einsum("bird,ijde->bijre", poses, array(layer.kernel))
    logits = np.einsum("bijre,bjre->bij", votes, array(parents))
    wanted = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_allclose(couplings, wanted, rtol=1e-4, atol=1e-6)
