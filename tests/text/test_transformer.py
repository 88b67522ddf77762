import importlib.util
import pathlib
import re

import numpy as np
import pytest

from tf_capsules import text
from tf_capsules.text import transformer as module

SST = pathlib.Path(__file__).parents[2].parent / "shared" / "data" / "sst" / "trees" / "dev.txt"
ODD = ["", " ", "中文 😀 \r\n é", "x " * 200, "a\x00b", "[SEP] <|endoftext|>", b"caf\xe9", "lone \ud83d surrogate"]


def assert_equal(one, two, texts):
    """Checks for the same tokens, and for hidden states of real tokens that differ by at most 1e-4."""
    for a, b in zip(one.tokenize(texts), two.tokenize(texts), strict=True):
        np.testing.assert_array_equal(a, b)
    (x, mask), (y, other) = one.hidden_states(texts), two.hidden_states(texts)
    np.testing.assert_array_equal(mask, other)
    assert x.shape == (len(texts), mask.shape[1], one.layers, one.width) and x.dtype == mask.dtype == np.float32
    assert np.isfinite(x).all() and np.isfinite(y).all()
    np.testing.assert_allclose(x[mask > 0], y[mask > 0], atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind, layers, max_length", [("gpt2", 4, 24), ("bert", 3, 21)])
@pytest.mark.usefixtures("pytorch")
def test_engines_agree(request, load, sentences, kind, layers, max_length):
    folder = request.getfixturevalue(kind)
    one, two = (load(folder, engine) for engine in ("keras-hub", "transformers"))
    for transformer in (one, two):
        assert (transformer.layers, transformer.width, transformer.max_length) == (layers, 12, max_length)
    assert_equal(one, two, sentences)
    assert_equal(one, two, ODD)
    for sentence in sentences + ODD:
        assert one.tokens(sentence) == two.tokens(sentence)
    # The states of no two layers are alike.
    states, mask = one.hidden_states(sentences)
    means = states[mask > 0].mean(0)
    assert np.unique(means.round(4), axis=0).shape == means.shape


def test_engines_agree_on_real_weights(load, minilm, sentences):
    pytest.importorskip("torch")
    one, two = (load(minilm, engine) for engine in ("keras-hub", "transformers"))
    assert (one.layers, one.width, one.max_length) == (two.layers, two.width, two.max_length) == (7, 384, 512)
    assert_equal(one, two, sentences + ODD[:3] + ODD[4:])
    if SST.is_file():
        reviews = [" ".join(re.findall(r"([^() ]+)\)", line)) for line in SST.read_text("utf-8").split("\n")]
        for a, b in zip(one.tokenize(reviews), two.tokenize(reviews), strict=True):
            np.testing.assert_array_equal(a, b)
        assert_equal(one, two, sorted(reviews, key=len)[-5:])


@pytest.mark.parametrize("engine", ["keras-hub", "transformers"])
class TestOfAnEngine:
    @pytest.fixture(params=["gpt2", "bert"])
    def transformer(self, request, load, engine):
        if engine == "transformers":
            request.getfixturevalue("pytorch")
        return load(request.getfixturevalue(request.param), engine)

    def test_special_tokens(self, transformer):
        gpt2 = transformer.checkpoint.config["model_type"] == "gpt2"
        empty, full = transformer.tokens(""), transformer.tokens("So slow")
        assert empty == (["<|endoftext|>"] if gpt2 else ["[CLS]", "[SEP]"])
        assert full[-1] == empty[-1] and full[0] == ("S" if gpt2 else "[CLS]")
        cut = transformer.tokens("slow " * 100)
        assert len(cut) == transformer.max_length and cut[-1] == empty[-1]

    def test_padding_does_not_matter(self, transformer, sentences):
        together, mask = transformer.hidden_states(sentences)
        np.testing.assert_array_equal(mask.sum(1), [len(ids) for ids in transformer.tokenize(sentences)])
        assert len(set(mask.sum(1))) > 1
        for states, row, sentence in zip(together, mask, sentences, strict=True):
            alone, ones = transformer.hidden_states([sentence])
            assert ones.all() and alone.shape[1] == row.sum()
            np.testing.assert_allclose(states[row > 0], alone[0], atol=2e-5)

    def test_no_texts(self, transformer):
        states, mask = transformer.hidden_states([])
        assert states.shape == (0, 0, transformer.layers, 12) and mask.shape == (0, 0)
        assert transformer.tokenize([]) == []


def test_padding_of_gpt2_is_its_end_token_without_a_mask(load, gpt2):
    """States at the padding equal those of a text that continues with end-of-text tokens."""
    transformer = load(gpt2, "keras-hub")
    short, long = transformer.tokenize(["So", "So slow, so slow"])
    padded, mask = transformer.encode([short, long])
    longer = np.concatenate([short, np.full(len(long) - len(short), short[-1])])
    np.testing.assert_allclose(padded[0], transformer.encode([longer])[0][0], atol=1e-5)
    assert mask[0].sum() == len(short) < len(long)


def test_the_last_layer_of_gpt2_is_normalised(load, gpt2):
    from safetensors.numpy import load_file

    weights = load_file(gpt2 / "model.safetensors")
    scale, offset = (weights[f"transformer.ln_f.{name}"] for name in ("weight", "bias"))
    states, mask = load(gpt2, "keras-hub").hidden_states(["Witty"])
    last = (states[mask > 0][:, -1] - offset) / scale
    np.testing.assert_allclose(last.mean(-1), 0, atol=1e-5)
    np.testing.assert_allclose(last.var(-1), 1, atol=1e-3)
    # The first hidden state is the sum of token and position embeddings.
    (ids,) = load(gpt2, "keras-hub").tokenize(["Witty"])
    first = weights["transformer.wte.weight"][ids] + weights["transformer.wpe.weight"][: len(ids)]
    np.testing.assert_allclose(states[0, :, 0], first, atol=1e-6)


def test_texts_of_a_transformer(toy):
    transformer = toy()
    assert [ids.tolist() for ids in transformer.tokenize(["a b", b"a\xff"])] == [[98, 99, 1], [98 + 0xFFFD, 1]]
    assert all(ids.dtype == np.int32 for ids in transformer.tokenize(np.array(["a b", "c"], object)))
    assert transformer.tokens("a b") == ["98", "99", "1"]
    assert len(transformer.tokenize(["a"] * 2500)) == 2500
    states, mask = transformer.hidden_states(["a b", "a"])
    np.testing.assert_array_equal(mask, [[1, 1, 1], [1, 1, 0]])
    np.testing.assert_array_equal(states[1, 0], states[0, 0])
    with pytest.raises(TypeError, match="put the single text 'film' into a list"):
        transformer.hidden_states("film")
    with pytest.raises(TypeError, match="texts are str or bytes, not int: 3"):
        transformer.tokenize(["film", 3])
    with pytest.raises(RuntimeError, match="3 layers, width 4.*engine='keras-hub'"):
        _ = transformer.graph


class TestLoading:
    def test_an_unknown_engine_is_named(self, toy):
        with pytest.raises(ValueError, match="'keras-hub', 'transformers', not 'onnx'"):
            text.load(toy().checkpoint.folder, "onnx")

    @pytest.mark.usefixtures("pytorch")
    def test_a_transformer_that_no_engine_computes(self, toy, request):
        request.getfixturevalue("gpt2")  # the engines are installed
        with pytest.raises(ValueError, match="'keras-hub' can't compute it: .* 'toy'.*'transformers' can't compute it"):
            text.load(toy().checkpoint.folder)

    @pytest.fixture
    def lacking(self, monkeypatch):
        """lacking(package, ...) hides packages as if they were not installed."""
        real = importlib.util.find_spec

        def hide(*packages):
            monkeypatch.setattr(
                module.importlib.util, "find_spec", lambda name, *rest: None if name in packages else real(name, *rest)
            )

        return hide

    def test_a_missing_package_is_named(self, toy, lacking):
        lacking("keras_hub", "torch", "transformers")
        with pytest.raises(ImportError, match=r"'keras-hub' needs keras_hub.*pip install 'tf_capsules\[text\]'"):
            text.load(toy().checkpoint.folder, "keras-hub")
        with pytest.raises(ImportError, match="'transformers' needs transformers, torch.*pip install torch"):
            text.load(toy().checkpoint.folder, "transformers")
        with pytest.raises(ValueError, match="needs keras_hub.*needs transformers, torch"):
            text.load(toy().checkpoint.folder)

    @pytest.mark.usefixtures("pytorch")
    def test_auto_takes_what_there_is(self, bert, lacking):
        assert text.load(bert).engine == "keras-hub"
        lacking("keras_hub")
        assert text.load(bert).engine == "transformers"
