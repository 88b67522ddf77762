import keras
import numpy as np
import pytest
from backend import array

from tf_capsules.layers import SequenceCapsules

RANDOM = np.random.default_rng(0)
EMBEDDINGS = RANDOM.normal(2.0, 3.0, size=(2, 4, 3, 7)).astype("float32")


def silu(x):
    return x / (1 + np.exp(-x))


def normalized(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


@pytest.mark.parametrize("scale", [1, 0.003])  # a small one shows the normalization's epsilon
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_against_numpy(norm, scale):
    layer = SequenceCapsules(6, norm)
    layer.build(EMBEDDINGS.shape)
    embeddings = EMBEDDINGS * np.float32(scale)
    weights = {weight.path: RANDOM.normal(size=weight.shape) for weight in layer.weights}
    for path, value in weights.items():
        value *= scale if path.endswith(("depth", "dense/bias")) else 1
    for weight in layer.weights:
        weight.assign(weights[weight.path])
    part = {path.split("/", 1)[1]: value for path, value in weights.items()}
    x = embeddings + part["depth"]

    def norm_of(x):
        return normalized(x) * part["norm/gamma"] + part["norm/beta"]

    x = norm_of(x) if norm == "pre" else x
    x = silu(x @ part["dense/kernel"] + part["dense/bias"])
    x = x if norm == "pre" else norm_of(x)
    poses, found = layer(embeddings)
    np.testing.assert_allclose(array(poses), x.reshape(2, 12, 1, 6), rtol=1e-3, atol=1e-4)
    assert (array(found) == np.inf).all()


def test_a_token_s_capsules_stand_side_by_side():
    mask = np.array([[1, 0.25, 0, 0], [1, 1, 0.5, 0]], "float32")
    _, found = SequenceCapsules(6)(EMBEDDINGS, mask=mask)
    logits = np.array([[np.inf, np.log(1 / 3), -np.inf, -np.inf], [np.inf, np.inf, 0, -np.inf]])
    np.testing.assert_allclose(array(found), np.repeat(logits, 3, axis=1), atol=1e-6)


def test_numpy_s_whole_numbers_are_taken():
    assert SequenceCapsules(np.int64(6))(EMBEDDINGS)[0].shape == (2, 12, 1, 6)


def test_any_number_of_tokens():
    inputs = keras.Input((None, 3, 7)), keras.Input((None,))
    layer = SequenceCapsules(6)
    outputs = layer(inputs[0], mask=inputs[1])
    assert outputs[0].shape == (None, None, 1, 6) and outputs[1].shape == (None, None)
    model = keras.Model(inputs, outputs)
    for tokens in (1, 4):
        poses, _ = model([EMBEDDINGS[:, :tokens], np.ones((2, tokens), "float32")])
        np.testing.assert_allclose(array(poses), array(layer(EMBEDDINGS)[0])[:, : 3 * tokens], atol=1e-6)


def test_what_does_not_fit_is_named():
    with pytest.raises(ValueError, match="`dim`.*Received: 0"):
        SequenceCapsules(0)
    with pytest.raises(ValueError, match="`norm`.*Received: 'between'"):
        SequenceCapsules(6, "between")
    with pytest.raises(ValueError, match=r"Received input shape \(2, 4, 7\)"):
        SequenceCapsules(6).build((2, 4, 7))
    for inputs in (EMBEDDINGS, keras.KerasTensor(EMBEDDINGS.shape)):
        with pytest.raises(
            ValueError, match=r"`mask` must be \(batch, tokens\), here \(2, 4\). Received shape \(2, 3\)"
        ):
            SequenceCapsules(6)(inputs, mask=np.ones((2, 3), "float32"))
    with pytest.raises(ValueError, match="number of layers"):
        SequenceCapsules(6).build((2, 4, None, 7))


def test_a_mask_keeps_its_digits_in_half_precision():
    embeddings, mask = np.zeros((1, 2, 3, 4), "float32"), [[0.999, 1.0]]
    _, exact = SequenceCapsules(4)(embeddings, mask=mask)
    _, logits = SequenceCapsules(4, dtype="mixed_bfloat16")(embeddings, mask=np.array(mask, "float32"))
    np.testing.assert_allclose(array(exact)[0, :3], np.log(0.999 / 0.001), rtol=1e-3)
    np.testing.assert_allclose(array(logits).astype("float32")[0, :3], array(exact)[0, :3], rtol=4e-3)


@pytest.mark.parametrize(("built", "called"), [(1, 3), (3, 1)])
def test_another_number_of_layers_is_refused(built, called):
    layer = SequenceCapsules(3)
    layer(np.zeros((2, 4, built, 5), "float32"))
    with pytest.raises(ValueError, match=f"expected axis 2 .* to have value {built}"):
        layer(np.zeros((2, 4, called, 5), "float32"))
