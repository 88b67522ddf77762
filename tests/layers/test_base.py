"""All routing layers: weights, votes, and what they answer."""

import dataclasses
import json
import warnings

import keras
import numpy as np
import pytest
from backend import BACKEND, array
from keras import ops

from tf_capsules.layers import (
    ConcurrentRouting,
    ConvDynamicRouting,
    ConvEMRouting,
    ConvInvertedAttentionRouting,
    DynamicRouting,
    EMRouting,
    HeinsenRouting,
    InvertedAttentionRouting,
    SelfAttentionRouting,
)
from tf_capsules.layers.connections import children_of

BATCH, HEIGHT, WIDTH, TYPES, ROWS, COLUMNS, CAPSULES, DIM = 2, 4, 5, 3, 6, 7, 8, 9
POSES = np.random.default_rng(0).normal(size=(BATCH, HEIGHT, WIDTH, TYPES, ROWS, COLUMNS)).astype("float32")
# Layers that take a second array beside the poses of 6 children, and that array's shape.
BESIDE = {
    "em": (lambda: EMRouting(3, 4, sharing="all"), (6,)),
    "em in windows": (lambda: ConvEMRouting(3, 4, 2), (2, 3, 2)),
    "heinsen": (lambda: HeinsenRouting(3, 4, sharing="all"), (6,)),
    "attention": (lambda: InvertedAttentionRouting(3, 4), (6,)),
    "attention in windows": (lambda: ConvInvertedAttentionRouting(3, 4, 2), (2, 3, 2)),
    "concurrent": (lambda: ConcurrentRouting([InvertedAttentionRouting(3, 4)]), (6,)),
}
FULL = {
    "dynamic": (lambda: DynamicRouting(CAPSULES, DIM, use_vote_bias=True, vote_bias_initializer="ones"), ()),
    "em": (lambda: EMRouting(CAPSULES, DIM, sharing="positions", coordinates=True), ("activations", "logits")),
    "heinsen": (lambda: HeinsenRouting(CAPSULES, DIM, sharing="all"), ("logits", "variances")),
    "attention": (lambda: InvertedAttentionRouting(CAPSULES, DIM, use_activations=True), ("activations",)),
}
WINDOWED = {
    "dynamic": (lambda: ConvDynamicRouting(CAPSULES, DIM, (3, 2)), ()),
    "em": (
        lambda: ConvEMRouting(CAPSULES, DIM, (3, 2), use_bias=True, bias_initializer="ones"),
        ("activations", "logits"),
    ),
    "attention": (lambda: ConvInvertedAttentionRouting(CAPSULES, DIM, (3, 2)), ()),
}
WINDOW, GRID = 3 * 2 * TYPES, (2, 4)


@pytest.mark.parametrize("routing", FULL)
def test_a_layer_answers_by_name(routing):
    make, names = FULL[routing]
    layer = make()
    answers = layer.routed(POSES, return_couplings=True)
    assert {name for name, value in answers._asdict().items() if value is not None} == {"poses", "couplings", *names}
    assert answers.poses.shape == (BATCH, CAPSULES, ROWS, DIM)
    assert answers.couplings.shape == (BATCH, HEIGHT * WIDTH * TYPES, CAPSULES)
    if answers.activations is not None:
        assert answers.activations.shape == (BATCH, CAPSULES) and (array(answers.activations) <= 1).all()
    assert layer.routed(POSES).couplings is None
    if routing == "em":
        np.testing.assert_allclose(array(keras.ops.sigmoid(answers.logits)), array(answers.activations), atol=1e-6)


@pytest.mark.parametrize("routing", WINDOWED)
def test_a_convolutional_layer_answers_by_name(routing):
    make, names = WINDOWED[routing]
    answers = make().routed(POSES, return_couplings=True)
    assert {name for name, value in answers._asdict().items() if value is not None} == {"poses", "couplings", *names}
    assert answers.poses.shape == (BATCH, *GRID, CAPSULES, ROWS, DIM)
    assert answers.couplings.shape == (BATCH, *GRID, WINDOW, CAPSULES)


@pytest.mark.parametrize("routing", ["full", "windowed"])
def test_variances_on_request_are_those_of_the_votes(routing):
    """Couplings store the votes; without couplings the variances come from the form without stored votes."""
    layer = (FULL if routing == "full" else WINDOWED)["em"][0]()
    answers = layer.routed(POSES, return_variances=True, return_couplings=True)
    votes = array(layer.votes(POSES)).astype("float64")  # (batch [* positions], children, parents, *pose)
    couplings = array(answers.couplings).reshape(votes.shape[:3])[..., None, None]
    masses = couplings.astype("float64").sum(axis=1) + layer.epsilon  # with few children a parent may get none
    means = (couplings * votes).sum(axis=1) / masses
    expected = (couplings * np.square(votes - means[:, None])).sum(axis=1) / masses
    shape = answers.poses.shape
    np.testing.assert_allclose(array(answers.poses), means.reshape(shape), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(array(answers.variances), expected.reshape(shape), rtol=1e-4, atol=1e-5)
    alone = layer(POSES, return_variances=True)
    np.testing.assert_allclose(array(alone[3]), array(answers.variances), rtol=1e-3, atol=1e-5)
    symbolic = layer(keras.KerasTensor(POSES.shape), return_variances=True, return_couplings=True)
    assert [x.shape for x in symbolic] == [x.shape for x in (*alone, answers.couplings)]
    assert layer.routed(POSES).variances is None


@pytest.mark.parametrize("routing", FULL)
def test_votes_are_poses_times_matrices_with_biases_and_coordinates(routing):
    layer = FULL[routing][0]()
    layer.build(POSES.shape)
    votes = array(layer.votes(POSES)).reshape(BATCH, HEIGHT, WIDTH, TYPES, CAPSULES, ROWS, DIM)
    kernel = array(layer.kernel)
    kernel = np.broadcast_to(kernel, (TYPES, *kernel.shape[1:])) if len(kernel) in (1, TYPES) else kernel
    kernel = np.broadcast_to(
        kernel.reshape(-1, TYPES, CAPSULES, COLUMNS, DIM), (HEIGHT * WIDTH, TYPES, CAPSULES, COLUMNS, DIM)
    )
    kernel = kernel.reshape(HEIGHT, WIDTH, *kernel.shape[1:])
    expected = np.einsum("bhwtrd,hwtjde->bhwtjre", POSES, kernel) + (1 if routing == "dynamic" else 0)
    if routing == "em":
        expected[..., 0, -1] += ((np.arange(HEIGHT) + 0.5) / HEIGHT)[:, None, None, None]
        expected[..., 1, -1] += ((np.arange(WIDTH) + 0.5) / WIDTH)[:, None, None]
    np.testing.assert_allclose(votes, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("routing", [*FULL, *WINDOWED])
def test_votes_of_arrays_in_float64(routing):
    layer = (FULL | WINDOWED)[routing][0]()
    layer.build(POSES.shape)
    votes = layer.votes(POSES.astype("float64"))
    assert keras.backend.standardize_dtype(votes.dtype) == "float32"
    np.testing.assert_allclose(array(votes), array(layer.votes(POSES)), rtol=1e-6)


@pytest.mark.parametrize("routing", [*FULL, *WINDOWED])
def test_a_layer_without_weights_has_no_votes(routing):
    with pytest.raises(ValueError, match="The layer '.*' has no weights yet: build or call it first."):
        (FULL | WINDOWED)[routing][0]().votes(POSES)


@pytest.mark.parametrize("routing", WINDOWED)
def test_votes_in_windows(routing):
    layer = WINDOWED[routing][0]()
    layer.build(POSES.shape)
    votes = array(layer.votes(POSES)).reshape(BATCH, *GRID, 3, 2, TYPES, CAPSULES, ROWS, DIM)
    expected = np.einsum("bxytrd,xytjde->bxytjre", POSES[:, 1:4, 2:4], array(layer.kernel)) + (routing == "em")
    np.testing.assert_allclose(votes[:, 1, 2], expected, rtol=1e-4, atol=1e-4)


def test_cost_of_votes():
    children = HEIGHT * WIDTH * TYPES
    pairs = BATCH * children * CAPSULES
    for make, held in [
        (lambda: DynamicRouting(CAPSULES, DIM), ROWS * COLUMNS),
        (lambda: DynamicRouting(CAPSULES, DIM, iterations=1), 0),
        (lambda: DynamicRouting(CAPSULES, DIM, iterations=1, initial_logits="learned"), ROWS * COLUMNS),
        (lambda: InvertedAttentionRouting(CAPSULES, DIM), 0),
        (lambda: InvertedAttentionRouting(CAPSULES, DIM, initial_pose="learned"), ROWS * COLUMNS),
        (lambda: DynamicRouting(CAPSULES, DIM, votes_memory="store"), ROWS * DIM),
        (lambda: HeinsenRouting(CAPSULES, DIM, sharing="all"), 0),
        (lambda: HeinsenRouting(None, DIM, sharing="all"), 0),
    ]:
        layer = make()
        layer.build(POSES.shape)
        cost = layer.votes_cost(POSES.shape, capsules=CAPSULES)
        assert cost == (4 * pairs * ROWS * DIM, 4 * pairs * held)
    layer = ConvInvertedAttentionRouting(CAPSULES, DIM, (3, 2))
    layer.build(POSES.shape)
    pairs = BATCH * GRID[0] * GRID[1] * WINDOW * CAPSULES
    assert layer.votes_cost(POSES.shape) == (4 * pairs * ROWS * DIM, 0)
    assert layer.votes_cost(POSES.shape, later=True) == (4 * pairs * ROWS * DIM,) * 2
    assert layer.votes_cost(POSES.shape, return_couplings=True) == (4 * pairs * ROWS * DIM,) * 2
    layer = ConvInvertedAttentionRouting(CAPSULES, DIM, (3, 2), use_activations=True)
    layer.build(POSES.shape)
    assert layer.votes_cost(POSES.shape) == (4 * pairs * ROWS * DIM,) * 2


def test_calls_that_return_couplings_hold_the_pairs_of_the_whole_batch():
    layer = InvertedAttentionRouting(CAPSULES, DIM)
    layer.build(POSES.shape)
    layer.plan = dataclasses.replace(layer.plan, examples=1)
    pairs = children_of(POSES.shape) * CAPSULES * ROWS * COLUMNS
    assert layer.votes_cost(POSES.shape, later=True).held == 4 * pairs
    assert layer.votes_cost(POSES.shape, later=True, return_couplings=True).held == 4 * BATCH * pairs


@pytest.mark.parametrize("routing", FULL)
def test_the_configuration_is_that_of_the_constructor(routing):
    layer = FULL[routing][0]()
    config = json.loads(json.dumps(layer.get_config()))
    other = type(layer).from_config(config)
    assert json.loads(json.dumps(other.get_config())) == config
    assert config["votes_memory"] == "auto" and config["kernel_regularizer"] is None


def test_sizes_of_chunks_may_be_numbers_of_numpy():
    chunks = dict.fromkeys(("em", "heinsen"), {"sharing": "all", "children_per_chunk": np.int64(2)})
    chunks["dynamic"] = {"sharing": "all", "competition": "children", "parents_per_chunk": np.int64(2)}
    for routing, options in chunks.items():
        layer = type(FULL[routing][0]())(CAPSULES, DIM, **options)
        assert all(type(getattr(layer, name)) is int for name in options if name.endswith("chunk"))


def test_weights_have_regularizers_and_constraints():
    options = {f"{name}_regularizer": "l2" for name in ("kernel", "bias", "beta_u", "beta_a")}
    options |= {f"{name}_constraint": "non_neg" for name in ("kernel", "bias", "beta_u", "beta_a")}
    layer = EMRouting(CAPSULES, DIM, sharing="all", use_bias=True, **options)
    layer.build((None, 5, COLUMNS))
    assert len(layer.weights) == 4 and all(weight.regularizer and weight.constraint for weight in layer.weights)


def test_only_weights_have_regularizers_and_constraints():
    for name in ("kernel_regulariser", "capsules_constraint", "beta_u_regularizer"):
        with pytest.raises(ValueError, match=name):
            DynamicRouting(CAPSULES, DIM, **{name: "l2"})


@pytest.mark.parametrize("routing", ["dynamic", "em", "attention"])
def test_only_some_layers_get_their_number_of_capsules_with_the_call(routing):
    with pytest.raises(ValueError, match="`capsules`.*Received: None"):
        type(FULL[routing][0]())(None, DIM)


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: DynamicRouting(CAPSULES, DIM, initial_logits="random", seed=seed),
        lambda seed: InvertedAttentionRouting(CAPSULES, DIM, initial_pose="random", seed=seed),
    ],
)
def test_random_weights_are_drawn_by_the_seed(make):
    drawn = []
    for seed in (1, 1, 2):
        layer = make(seed)
        layer.build((None, 5, COLUMNS))
        drawn.append(next(array(x) for x in layer.non_trainable_weights if x.shape[0] in (5, CAPSULES)))
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert (drawn[0] != drawn[2]).any()


@pytest.mark.parametrize("name", BESIDE)
def test_a_mask_of_keras_is_used_beside_another_array(name):
    make, shape = BESIDE[name]
    random = np.random.default_rng(0)
    poses, others = random.normal(size=(2, *shape, 5)).astype("float32"), random.random((2, *shape), "float32")
    poses.reshape(2, -1, 5)[:, 1:3] = 1
    inputs, layer = [keras.Input(poses.shape[1:]), keras.Input(shape)], make()
    results = keras.tree.flatten(layer(keras.layers.Masking(1.0)(inputs[0]), inputs[1]))
    found = keras.Model(inputs, results[0])([poses, others])
    masked, plain = (
        keras.tree.flatten(layer(poses, others, mask=mask))[0] for mask in (np.any(poses != 1, axis=-1), None)
    )
    np.testing.assert_allclose(array(found), array(masked), atol=1e-6)
    assert np.abs(array(masked) - array(plain)).max() > 1e-4


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: DynamicRouting(3, 4, leaky="False"), "leaky"),
        (lambda: ConvDynamicRouting(3, 4, 3, use_bias="no"), "use_bias"),
        (lambda: EMRouting(3, 4, coordinates="no"), "coordinates"),
        (lambda: ConvEMRouting(3, 4, 3, use_bias=2), "use_bias"),
        (lambda: HeinsenRouting(3, 4, single_beta="no"), "single_beta"),
        (lambda: DynamicRouting(3, 4, leaky=np.ones(2)), "leaky"),
    ],
)
def test_flags_are_true_or_false(make, name):
    with pytest.raises(ValueError, match=f"`{name}` must be true or false. Received: "):
        make()


class Mine(DynamicRouting):
    def __init__(self, *, mine=2, **kwargs):
        super().__init__(**kwargs)
        self.mine = mine


def test_a_layer_of_one_s_own_keeps_the_arguments_that_it_passes_on():
    layer = Mine(capsules=3, dim=4, iterations=5, mine=7, kernel_initializer="zeros")
    again = Mine.from_config(layer.get_config())
    assert (again.iterations, again.mine, again.capsules) == (5, 7, 3)
    assert isinstance(again.kernel_initializer, keras.initializers.Zeros)


class OtherNames(DynamicRouting):
    def call(self, inputs, mask=None, return_couplings=False):
        return super().call(inputs, mask, return_couplings)


def test_a_layer_of_one_s_own_may_call_its_arguments_otherwise():
    assert OtherNames(3, 4)(keras.Input((5, 2)), return_couplings=True)[1].shape == (None, 5, 3)


class Hotter(DynamicRouting):
    def call(self, poses, temperature=1.0, mask=None):
        return ops.sum(super().call(poses / temperature, mask), axis=-1)


def test_a_layer_of_one_s_own_may_have_more_arguments_and_other_results():
    layer, poses = Hotter(3, 4), POSES[:, 0, 0, :, 0]
    inputs = keras.Input(poses.shape[1:])
    model = keras.Model(inputs, layer(inputs, temperature=2.0))
    assert model.output_shape == (None, 3)
    np.testing.assert_allclose(array(model(poses)), array(layer(poses, temperature=2.0)), rtol=1e-5)


@pytest.mark.parametrize("layer", [DynamicRouting, SelfAttentionRouting])
@pytest.mark.parametrize("memory", ["store", "recompute"])
def test_a_masked_child_does_not_count_whatever_its_pose(layer, memory):
    options = {"use_prior": False} if layer is SelfAttentionRouting else {}
    layer = layer(3, 4, sharing="all", votes_memory=memory, **options)
    poses = np.random.default_rng(0).normal(size=(2, 6, 5)).astype("float32")
    mask = np.arange(6) != 2
    expected = array(layer(poses[:, mask]))
    poses[:, 2] = 1e8
    np.testing.assert_allclose(array(layer(poses, mask=np.stack([mask, mask]))), expected, atol=1e-5)


@pytest.mark.parametrize("name", FULL)
def test_routing_stays_in_float32_where_all_else_is_half(name):
    make, _ = FULL[name]
    exact, policy = make(), keras.config.dtype_policy()
    poses = array(ops.cast(ops.cast(POSES, "bfloat16"), "float32"))
    expected = keras.tree.flatten(exact(poses))
    keras.config.set_dtype_policy("bfloat16")
    half = make()
    keras.config.set_dtype_policy(policy)
    half.build(POSES.shape)
    half.set_weights(exact.get_weights())
    found = keras.tree.flatten(half(poses, return_couplings=True))
    symbolic = keras.tree.flatten(half(keras.KerasTensor(POSES.shape), return_couplings=True))
    assert [keras.backend.standardize_dtype(one.dtype) for one in found] == [one.dtype for one in symbolic]
    assert {weight.dtype for weight in half.weights} == {"float32"} and symbolic[0].dtype == "bfloat16"
    for one, wanted in zip(found, expected, strict=False):
        np.testing.assert_allclose(array(ops.cast(one, "float32")), array(wanted), atol=1e-5, rtol=0.005)


@pytest.mark.parametrize(
    ("kind", "chunk"),
    [(DynamicRouting, "parents_per_chunk"), (EMRouting, "children_per_chunk"), (HeinsenRouting, "children_per_chunk")],
)
def test_tensorflow_s_xla_is_left_out_where_it_can_not_train(kind, chunk):
    options = dict(sharing="positions", votes_memory="recompute")
    options |= {"competition": "children"} if kind is DynamicRouting else {}
    layers = kind(3, 4, **options), kind(3, 4, **options, **{chunk: 1})
    assert [layer.supports_jit for layer in layers] == [True, BACKEND != "tensorflow"]  # Keras may ask before `build`
    inputs = keras.Input((2, 2, 3, 4))
    outputs = [keras.tree.flatten(layer(inputs))[0] for layer in layers]
    assert [layer.supports_jit for layer in layers] == [True, BACKEND != "tensorflow"]
    if kind is not DynamicRouting:  # the quickest to train
        return
    model = keras.Model(inputs, keras.layers.Add()(outputs))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Model doesn't support `jit_compile=True`")
        model.compile("sgd", "mse", jit_compile=True)
    poses = np.random.default_rng(0).normal(size=(2, 2, 2, 3, 4))
    assert np.isfinite(model.train_on_batch(poses, np.zeros((2, 3, 4))))


@pytest.mark.parametrize("kind", [EMRouting, HeinsenRouting])
@pytest.mark.parametrize("sharing", ["all", "positions"])
def test_gradients_of_the_weights_are_the_same_in_chunks_without_a_graph(kind, sharing):
    tf = pytest.importorskip("tensorflow")
    if BACKEND != "tensorflow":
        pytest.skip("JAX has no such mode")
    poses = np.random.default_rng(0).normal(size=(2, 5, 4, 2, 2, 4)).astype("float32")
    found = []
    for chunk in (None, 7):
        keras.utils.set_random_seed(0)
        layer = kind(3, 4, sharing=sharing, iterations=2, votes_memory="recompute", children_per_chunk=chunk)
        with tf.GradientTape() as tape:
            loss = ops.sum(ops.square(layer(poses)[0]))
        found.append(tape.gradient(loss, [weight.value for weight in layer.trainable_variables]))
    for one, other in zip(*found, strict=True):
        assert np.abs(one).max() > 0
        np.testing.assert_allclose(other, one, atol=2e-4 * np.abs(one).max())
