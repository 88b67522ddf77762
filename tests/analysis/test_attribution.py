import keras
import numpy as np
import pytest
from backend import BACKEND, array, compiled

from tf_capsules.analysis.attribution import class_shares, routings
from tf_capsules.layers import HeinsenRouting, SequenceCapsules
from tf_capsules.models.classifier import CapsuleClassifier
from tf_capsules.models.heinsen2019 import ImageCapsNet, TextCapsNet
from tf_capsules.models.sabour2017 import CapsNet


def random_betas(model):
    """Draws the betas, since a new network has betas of zero, with which all scores are equal."""
    random = np.random.default_rng(1)
    for weight in model.weights:
        if "beta" in weight.name:
            weight.assign(random.normal(scale=0.1, size=weight.shape))
    return model


@pytest.fixture(scope="module")
def text_model():
    keras.utils.set_random_seed(0)
    return random_betas(TextCapsNet(layers=3, width=8, classes=4, dim=6, parts=9))


@pytest.fixture(scope="module")
def text():
    mask = np.array([[1, 1, 1, 0.3, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1]], "float32")
    embeddings = np.random.default_rng(2).normal(size=(2, 7, 3, 8)).astype("float32")
    return {"embeddings": embeddings, "mask": mask}


def quick(function):
    """The function itself; on JAX the compiled function, since JAX's eager mode compiles each operation separately."""
    return compiled(function) if BACKEND == "jax" else function


def by_hand(activations, first, second):
    """The shares, summed one by one in float64; each array is (batch, children[, parents])."""
    shares = np.zeros((*first.shape[:2], second.shape[2]))
    for b, i, j in np.ndindex(first.shape):
        shares[b, i] += np.float64(activations[b, i]) * first[b, i, j] * second[b, j]
    return shares


def couplings(model, poses, scores):
    parts, classes = (model.encoder.get_layer(name) for name in ("parts", "classes"))

    def both(inputs):
        poses, scores, _, first = parts(*inputs, return_couplings=True)
        return first, classes(poses, scores, return_couplings=True)[-1]

    return map(array, quick(both)((poses, scores)))


def test_shares_of_a_text(text_model, text):
    shares = array(quick(lambda inputs: class_shares(text_model, inputs))(text))
    assert shares.shape == (2, 7, 3, 4) and shares.min() >= 0
    np.testing.assert_allclose(shares.sum(-1), np.repeat(text["mask"][..., None], 3, axis=-1), atol=1e-6)
    assert not shares[0, 4:].any()
    poses, scores = text_model.encoder.get_layer("capsules")(text["embeddings"], mask=text["mask"])
    # The layers run fastest.
    want = by_hand(np.repeat(text["mask"], 3, axis=1), *couplings(text_model, poses, scores)).reshape(2, 7, 3, 4)
    np.testing.assert_allclose(shares, want, atol=1e-6)
    assert shares[1].std((0, 1)).min() > 1e-3


def test_shares_of_an_image():
    keras.utils.set_random_seed(0)
    model = random_betas(ImageCapsNet((45, 37, 2), classes=5, filters=6, types=4, parts=9, pose=(3, 2)))
    images = np.random.default_rng(0).random((6, 45, 37, 2), dtype="float32")
    shares = array(quick(lambda inputs: class_shares(model, inputs))(images))
    assert shares.shape == (6, 3, 2, 4, 5)
    layers = [model.encoder.get_layer(name).output for name in ("poses", "scores")]
    poses, scores = quick(keras.Model(model.encoder.input, layers))(images)
    activations = 1 / (1 + np.exp(-array(scores)))
    np.testing.assert_allclose(shares.sum(-1), activations, atol=1e-6)
    want = by_hand(activations.reshape(6, 24), *couplings(model, poses, scores))
    np.testing.assert_allclose(shares, want.reshape(shares.shape), atol=1e-6)
    assert activations.std() > 1e-3 and shares.std((1, 2, 3)).min() > 1e-3


def test_outputs_come_with_the_shares(text_model, text):
    outputs, shares = quick(lambda inputs: class_shares(text_model, inputs, return_outputs=True))(text)
    expected_shares = quick(lambda inputs: class_shares(text_model, inputs))(text)
    np.testing.assert_allclose(array(shares), array(expected_shares), atol=1e-6)
    expected = quick(text_model)(text)
    assert set(outputs) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(array(outputs[name]), array(value), atol=1e-6)


@pytest.mark.parametrize("batch, tokens", [(0, 7), (2, 0), (1, 1)])
def test_few_texts_and_tokens(text_model, text, batch, tokens):
    part = {name: value[:batch, :tokens] for name, value in text.items()}
    shares = quick(lambda inputs: class_shares(text_model, inputs))(part)
    assert shares.shape == (batch, tokens, 3, 4)
    np.testing.assert_allclose(array(shares).sum(-1), 1, atol=1e-6)


def test_compiled_shares_equal_eager_shares(text_model, text):
    shares = compiled(lambda inputs: class_shares(text_model, inputs))(text)
    np.testing.assert_allclose(array(shares), array(class_shares(text_model, text)), atol=1e-6)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="a graph of TensorFlow's")
def test_one_graph_for_any_number_of_tokens(text_model, text):
    import tensorflow as tf

    specs = [tf.TensorSpec((None, None, 3, 8)), tf.TensorSpec((None, None))]

    @tf.function(input_signature=specs, autograph=False)
    def graph(embeddings, mask):
        return class_shares(text_model, {"embeddings": embeddings, "mask": mask})

    for tokens in (7, 2, 0):
        part = {name: value[:, :tokens] for name, value in text.items()}
        np.testing.assert_allclose(graph(*part.values()), class_shares(text_model, part), atol=1e-6)


def test_shares_of_a_single_routing_layer_are_its_couplings():
    embeddings, mask = keras.Input((None, 2, 3)), keras.Input((None,))
    poses, scores = SequenceCapsules(4, name="capsules")(embeddings, mask=mask)
    routing = HeinsenRouting(5, 2, sharing="all", name="classes")
    results = dict(zip(("poses", "activations", "variances"), routing(poses, scores), strict=True))
    model = CapsuleClassifier(keras.Model([embeddings, mask], results), logits=True)
    x = [np.random.default_rng(0).normal(size=(2, 6, 2, 3)).astype("float32"), np.full((2, 6), 0.5, "float32")]
    shares = array(quick(lambda x: class_shares(model, x))(x))
    assert [layer.name for layer in routings(model)] == ["classes"]

    def coupled(x):
        return routing(*model.encoder.get_layer("capsules")(x[0], mask=x[1]), return_couplings=True)[-1]

    np.testing.assert_allclose(shares.reshape(2, 12, 5), 0.5 * array(quick(coupled)(x)), atol=1e-6)


def test_other_networks_are_refused():
    sizes = {"filters": 6, "kernel_size": 3, "types": 3, "pose": 4, "primary_kernel_size": 3, "primary_strides": 1}
    plain = keras.Sequential([keras.Input((8, 7, 1)), keras.layers.Flatten(), keras.layers.Dense(5)], name="plain")
    inputs = keras.Input((3,))
    dense = keras.Model(inputs, {"activations": keras.layers.Dense(5, name="classes")(inputs)})
    for model in (
        CapsNet((8, 7, 1), classes=5, dim=9, **sizes, name="plain"),
        plain,
        CapsuleClassifier(dense, name="plain"),
    ):
        assert routings(model) == ()
        with pytest.raises(ValueError, match='HeinsenRouting layers "parts" and "classes", .*name=plain'):
            class_shares(model, np.zeros((1, 8, 7, 1), "float32"))


def test_shares_of_children_without_logits_with_a_mask_and_outputs_of_another_kind():
    poses, mask = keras.Input((6, 4)), keras.Input((6,))
    found, logits, variances = HeinsenRouting(3, 4, name="classes")(poses, mask=mask)
    results = {"activations": keras.ops.sigmoid(logits), "poses": found, "variances": variances}
    model = CapsuleClassifier(keras.Model([poses, mask], results))
    x = [np.random.default_rng(0).normal(size=(2, 6, 4)).astype("float32"), np.float32([[1] * 6, [1, 0, 1, 0, 0, 1]])]
    outputs, shares = class_shares(model, x, return_outputs=True)
    assert shares.shape == (2, 6, 3)
    np.testing.assert_allclose(array(shares).sum(-1), x[1] > 0, atol=1e-6)
    np.testing.assert_allclose(array(outputs["activations"]), array(model(x)["activations"]), atol=1e-6)
