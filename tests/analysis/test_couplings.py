import keras
import numpy as np
import pytest
from backend import array

from tf_capsules.analysis import couplings, measure_couplings
from tf_capsules.layers import (
    CapsuleLength,
    ConcurrentRouting,
    ConvDynamicRouting,
    ConvEMRouting,
    DynamicRouting,
    EMRouting,
    HeinsenRouting,
    InvertedAttentionRouting,
    PrimaryCapsules,
)
from tf_capsules.models import with_feedback
from tf_capsules.models.hinton2018 import MatrixCapsNet
from tf_capsules.models.tsai2020 import AttentionCapsNet

IMAGES = np.random.default_rng(0).random((6, 8, 8, 1)).astype("float32")


def own_model():
    """A functional model with several kinds of routing that is none of the papers' networks."""
    images = keras.Input((8, 8, 1))
    x = PrimaryCapsules(types=4, pose=4, kernel_size=3, strides=2)(images)
    x = ConvDynamicRouting(3, 4, kernel_size=2, name="convolution")(x)
    x = DynamicRouting(3, 5, iterations=2, name="classes")(x)
    model = keras.Model(images, CapsuleLength()(x))
    for layer in model.layers:
        if isinstance(layer, (DynamicRouting, ConvDynamicRouting)):
            layer.kernel.assign(30 * layer.kernel)  # votes as long as after training, so that couplings change
    return model


def test_couplings_of_every_iteration_and_layer():
    found = measure_couplings(own_model(), IMAGES)
    assert {name: [x.shape for x in each] for name, each in found.items()} == {
        "convolution": [(6, 2, 2, 16, 3)] * 3,
        "classes": [(6, 12, 3)] * 2,
    }
    for each in found.values():
        np.testing.assert_allclose(each[0], 1 / 3, atol=1e-6)
        np.testing.assert_allclose(each[-1].sum(-1), 1, atol=1e-5)
        assert np.abs(each[-1] - each[0]).max() > 1e-3


def test_each_network_that_shares_its_layers_has_its_own_couplings():
    model = own_model()
    images = keras.Input((8, 8, 1))
    x = keras.layers.Rescaling(5.0)(images)
    for layer in model.layers[1:]:
        x = layer(x)
    other = keras.Model(images, x)
    first, second = measure_couplings(model, IMAGES), measure_couplings(other, IMAGES)
    scaled = measure_couplings(model, 5 * IMAGES)
    for name, each in scaled.items():
        np.testing.assert_allclose(second[name], each, atol=1e-6)
        assert np.abs(each[-1] - first[name][-1]).max() > 1e-3


def test_a_sequential_model_that_knows_its_input_is_measured():
    model = own_model()
    with pytest.raises(ValueError, match="a Sequential that knows its input. Received: <Sequential"):
        measure_couplings(keras.Sequential(model.layers[1:]), IMAGES)
    called = keras.Sequential(model.layers[1:])
    called(IMAGES)
    for one in (called, keras.Sequential([keras.Input((8, 8, 1)), *model.layers[1:]])):
        for name, each in measure_couplings(one, IMAGES).items():
            np.testing.assert_allclose(each, measure_couplings(model, IMAGES)[name], atol=1e-6)


def test_couplings_of_a_chain_are_those_of_its_layers():
    options = dict(types=4, pose=(2, 2), convolutions=((3, 3, 1),), filters=8, iterations=2)
    model = AttentionCapsNet((12, 12, 1), classes=3, **options)
    images = np.random.default_rng(0).random((2, 12, 12, 1)).astype("float32")
    found = measure_couplings(model, images)
    chain = model.encoder.get_layer("routing").chain
    assert list(found) == [layer.name for layer in chain] and all(len(each) == 2 for each in found.values())
    *_, last = found.values()
    np.testing.assert_allclose(last[0], 1 / 3, atol=1e-6)
    np.testing.assert_allclose(last[1].sum(-1), 1, atol=1e-5)
    assert np.abs(last[1] - last[0]).max() > 1e-4


def test_em_and_heinsen_routing_are_measured_too():
    em = MatrixCapsNet((17, 17, 1), classes=3, filters=4, types=2, capsules=(3, 4), iterations=2)
    images = np.random.default_rng(0).random((2, 17, 17, 1)).astype("float32")
    assert all(len(each) == 2 for each in measure_couplings(em, images).values())
    assert EMRouting in {type(layer) for layer in em.encoder.layers}
    poses = keras.Input((20, 4))
    routed = HeinsenRouting(5, 4, name="heinsen")(poses)
    found = measure_couplings(keras.Model(poses, routed), np.random.default_rng(0).normal(size=(2, 20, 4)))
    assert [x.shape for x in found["heinsen"]] == [(2, 20, 5)] * 3


def test_children_that_take_no_part_have_no_couplings():
    random = np.random.default_rng(0)
    poses, logits, mask = keras.Input((7, 4)), keras.Input((7,)), keras.Input((7,), dtype="bool")
    routed = HeinsenRouting(5, 3, iterations=2, name="heinsen")(poses, logits)
    model = keras.Model(
        [poses, logits, mask], [*routed, *EMRouting(5, 3, name="em")(poses, keras.ops.sigmoid(logits), mask)]
    )
    x, scores, present = random.normal(size=(2, 7, 4)), random.normal(size=(2, 7)), random.random((2, 7)) < 0.6
    absent = np.where(present, scores, -np.inf)
    for name, given in {"heinsen": absent, "em": scores}.items():
        for each in measure_couplings(model, [x, given, present])[name]:
            np.testing.assert_allclose(each.sum(-1), present, atol=1e-5)
    x = keras.Input((4, 3, 2, 5))
    routed = ConvEMRouting(3, 4, kernel_size=2, competition="types", name="em")(x, keras.ops.max(x, axis=-1))
    values = random.random((2, 4, 3, 2, 5)) * (random.random((2, 4, 3, 2, 1)) < 0.6)
    (last, *_) = measure_couplings(keras.Model(x, routed), values)["em"]
    windows = [values[:, i : i + 2, j : j + 2].max(-1).reshape(2, -1) > 0 for i in range(3) for j in range(2)]
    np.testing.assert_allclose(last.sum(-1), np.stack(windows, 1).reshape(2, 3, 2, 8), atol=1e-5)


def test_a_model_with_feedback_units_is_measured_without_them():
    images = keras.Input((8, 8, 1))
    low = keras.layers.Conv2D(4, 3, padding="same", name="low")(images)
    high = keras.layers.Conv2D(4, 3, padding="same", name="high")(low)
    poses = PrimaryCapsules(types=4, pose=4, kernel_size=3, strides=2)(high)
    model = keras.Model(images, CapsuleLength()(DynamicRouting(3, 5, name="classes")(poses)))
    found = measure_couplings(with_feedback(model, [("low", "high")], groups=1), IMAGES)
    for a, b in zip(found["classes"], measure_couplings(model, IMAGES)["classes"], strict=True):
        np.testing.assert_array_equal(a, b)


def test_arguments_of_a_layer_keep_their_names():
    poses, mask = keras.Input((6, 4)), keras.Input((6,), dtype="bool")
    layer = HeinsenRouting(3, 4, iterations=2, name="heinsen", beta_initializer="ones")
    model = keras.Model([poses, mask], layer(poses, mask=mask))
    given = np.random.default_rng(0).normal(size=(2, 6, 4)), np.arange(12).reshape(2, 6) % 3 > 0
    found = measure_couplings(model, list(given))["heinsen"]
    wanted = layer(given[0], mask=given[1], return_couplings=True)[-1]
    np.testing.assert_allclose(found[-1], np.where(given[1][..., None], array(wanted), 0), atol=1e-6)
    logits = keras.Input((6,))
    named = HeinsenRouting(3, 4, name="named")(poses=poses, logits=logits)
    found = measure_couplings(keras.Model([poses, logits], named), [given[0], np.zeros((2, 6))])["named"]
    assert [one.shape for one in found] == [(2, 6, 3)] * 3


@keras.saving.register_keras_serializable("tests")
class Gated(keras.layers.Layer):
    """A layer with iterations, whose weights depend on the shapes of two arguments."""

    def __init__(self, iterations=2, **kwargs):
        super().__init__(**kwargs)
        self.iterations = iterations

    def build(self, poses_shape, gates_shape):
        self.gain = self.add_weight((poses_shape[-1], gates_shape[-1]), "ones")

    def call(self, poses, gates, return_couplings=False):
        couplings = keras.ops.softmax(poses @ self.gain * gates[:, None] * (self.iterations - 1))
        return (poses, couplings) if return_couplings else poses

    def get_config(self):
        return {**super().get_config(), "iterations": self.iterations}


def test_a_layer_of_one_s_own_may_have_weights_for_several_arguments():
    poses, gates = keras.Input((3, 2)), keras.Input((4,))
    model = keras.Model([poses, gates], Gated(name="own")(poses, gates))
    found = measure_couplings(model, [np.ones((2, 3, 2)), np.tile(np.arange(4.0), (2, 1))])["own"]
    np.testing.assert_allclose(found[0], 1 / 4)
    np.testing.assert_allclose(found[1][0, 0], array(keras.ops.softmax(2.0 * np.arange(4))), rtol=1e-6)


class Listed(keras.layers.Layer):
    """A layer that takes a list."""

    def call(self, arrays, return_couplings=False):
        (x,) = arrays if isinstance(arrays, list) else (arrays,)
        return (x, keras.ops.softmax(x)) if return_couplings else x


def test_a_layer_of_one_s_own_may_take_a_list():
    x = keras.Input((3, 2))
    found = measure_couplings(keras.Model(x, Listed(name="own")([x])), np.zeros((2, 3, 2)))
    np.testing.assert_allclose(found["own"][0], 0.5)


def test_entropy_and_dead_capsules():
    for unknown in (np.array([[[0.5, np.nan]]]), np.array([[[1.5, -0.5]]])):
        assert np.isnan(couplings.coupling_entropy(unknown)) and np.isnan(couplings.dead_capsules(unknown))
    assert couplings.coupling_entropy(np.full((2, 7, 4), 0.25)) == pytest.approx(1)
    assert couplings.coupling_entropy(np.eye(3)[None]) == 0
    assert couplings.coupling_entropy(np.array([[0.0, 0.0], [0.5, 0.5]])) == pytest.approx(1)  # one child is masked
    assert couplings.coupling_entropy(np.ones((2, 3, 1))) == 0
    half = np.array([0.5, 0.5, 0.0, 0.0])
    assert couplings.coupling_entropy(half[None]) == pytest.approx(0.5)
    once = np.stack([np.tile(half, (3, 1)), np.tile(half[::-1], (3, 1))])
    assert couplings.dead_capsules(once) == 0  # each is alive in one example
    assert couplings.dead_capsules(once[:1]) == 0.5


def test_models_without_routing_are_refused():
    plain = keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten(), keras.layers.Dense(3)], name="plain")
    with pytest.raises(ValueError, match="'plain' has no layer"):
        measure_couplings(plain, IMAGES)

    class Own(keras.Model):
        pass

    with pytest.raises(ValueError, match="functional"):
        measure_couplings(Own(), IMAGES)


class OneShape(DynamicRouting):
    def __init__(self, capsules, **kwargs):
        kwargs.pop("dim", None)
        super().__init__(capsules, dim=4, **kwargs)


def test_layers_that_no_file_could_hold_are_measured():
    """What a user passes need not be registered with Keras for a look at the couplings."""
    poses = keras.Input((6, 4))
    x = OneShape(5, kernel_initializer=lambda shape, dtype=None: keras.random.normal(shape, dtype=dtype, seed=1))(poses)
    x = EMRouting(4, 4, inverse_temperature=[0.1, 0.2, 0.3], kernel_regularizer=lambda w: 0.0, name="em")(x)
    model = keras.Model(poses, CapsuleLength()(x[0]))
    inputs = np.random.default_rng(0).normal(size=(2, 6, 4)).astype("float32")
    before = array(model(inputs))
    for layer, each in zip(model.layers[1:], measure_couplings(model, inputs).values(), strict=False):
        assert len(each) == 3 and np.abs(each[1] - each[0]).max() > 1e-4 and layer.iterations == 3
    np.testing.assert_array_equal(model(inputs), before)
    assert list(model.get_layer("em").inverse_temperature) == [0.1, 0.2, 0.3]


def test_a_chain_with_a_mask():
    random, (poses, mask) = np.random.default_rng(0), (keras.Input((7, 4)), keras.Input((7,), dtype="bool"))
    chain = [InvertedAttentionRouting(5, 4), InvertedAttentionRouting(3, 4)]
    model = keras.Model([poses, mask], ConcurrentRouting(chain, 2, name="chain")(poses, mask=mask))
    x, present = random.normal(size=(2, 7, 4)).astype("float32"), np.arange(7) < np.array([[5], [7]])
    for name, each in measure_couplings(model, [x, present]).items():
        children = present[..., None] if each[0].shape[1] == 7 else np.ones((2, 5, 1))
        for found in each:
            np.testing.assert_allclose(found.sum(-1, keepdims=True), children, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("layer", [EMRouting, HeinsenRouting])
def test_children_that_keras_masks_take_no_part(layer):
    poses, scores = keras.Input((7, 4)), keras.Input((7,))
    routed = layer(3, 3, name="routing")(keras.layers.Masking()(poses), scores)
    x = np.random.default_rng(0).normal(size=(2, 7, 4)).astype("float32")
    x[:, 5:] = 0
    for found in measure_couplings(keras.Model([poses, scores], routed), [x, np.ones((2, 7), "float32")])["routing"]:
        assert (found[:, 5:] == 0).all() and (found[:, :5].sum(-1) > 0).all()
