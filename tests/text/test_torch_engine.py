import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

from tf_capsules import text  # noqa: E402

WORDS = ["so", "slow", "a", "witty", "film"]


def save(folder, model, tokens, post, **tokenizer_config):
    """A checkpoint with a tokenizer of whole words; `post` are the special tokens around a text."""
    vocabulary = {token: number for number, token in enumerate(tokens + WORDS)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    if post:
        special = [(token, vocabulary[token]) for token in tokens if token in post]
        tokenizer.post_processor = tokenizers.processors.TemplateProcessing(single=post, special_tokens=special)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>"} | tokenizer_config
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    torch.manual_seed(0)
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def roberta(tmp_path):
    config = transformers.RobertaConfig(
        vocab_size=9, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=6,
        max_position_embeddings=14, pad_token_id=1, bos_token_id=0, eos_token_id=2,
    )  # fmt: skip
    names = {"pad_token": "<pad>", "eos_token": "</s>", "bos_token": "<s>"}
    tokens = ["<s>", "<pad>", "</s>", "<unk>"]
    return save(tmp_path, transformers.RobertaModel(config), tokens, "<s> $A </s>", **names)


def test_a_model_that_keras_hub_is_not_asked_for(roberta):
    transformer = text.load(roberta)
    assert transformer.engine == "transformers"
    # RoBERTa reserves two of its 14 positions for padding.
    assert (transformer.layers, transformer.width, transformer.max_length) == (3, 8, 12)
    assert transformer.tokens("so slow film") == ["<s>", "so", "slow", "film", "</s>"]
    states, mask = transformer.hidden_states(["so " * 50, "a film", ""])
    np.testing.assert_array_equal(mask.sum(1), [12, 4, 2])
    with torch.inference_mode():
        ids = torch.tensor([transformer.tokenize(["a film"])[0].tolist()])
        expected = transformer._model(ids, output_hidden_states=True).hidden_states
    np.testing.assert_allclose(states[1, :4], torch.stack(expected, 2)[0], atol=1e-5)


def test_an_encoder_with_a_decoder(tmp_path):
    config = transformers.T5Config(
        vocab_size=8, d_model=6, d_kv=3, d_ff=5, num_layers=2, num_decoder_layers=1, num_heads=2,
        decoder_start_token_id=0,
    )  # fmt: skip
    tokens, names = ["<pad>", "</s>", "<unk>"], {"pad_token": "<pad>", "eos_token": "</s>"}
    save(tmp_path, transformers.T5Model(config), tokens, "$A </s>", **names, model_max_length=7)
    transformer = text.load(tmp_path)
    assert (transformer.layers, transformer.width, transformer.max_length) == (3, 6, 7)
    states, mask = transformer.hidden_states(["so slow", "a"])
    np.testing.assert_array_equal(mask, [[1, 1, 1], [1, 1, 0]])
    alone, _ = transformer.hidden_states(["a"])
    np.testing.assert_allclose(states[1, :2], alone[0], atol=1e-5)


def decoder(**config):
    return transformers.GPT2Model(
        transformers.GPT2Config(vocab_size=8, n_positions=10, n_embd=6, n_layer=2, n_head=2, **config)
    )


def test_a_text_that_nothing_ends_gets_the_end_token(tmp_path):
    """The tokenizer has a padding token, so padding is masked. The engine appends an unmasked end token."""
    names = {"eos_token": "<end>", "pad_token": "<pad>"}
    transformer = text.load(save(tmp_path, decoder(), ["<unk>", "<end>", "<pad>"], None, **names), "transformers")
    assert transformer.tokens("so slow") == ["so", "slow", "<end>"] and transformer.tokens("") == ["<end>"]
    assert transformer.tokens("so " * 20) == ["so"] * 9 + ["<end>"]
    ids = transformer.tokenize(["", "so slow"])
    states, mask = transformer.encode(ids)
    np.testing.assert_array_equal(mask, [[1, 0, 0], [1, 1, 1]])
    np.testing.assert_allclose(states[0, :1], transformer.encode(ids[:1])[0][0], atol=1e-5)


def test_no_way_to_end_a_text_is_an_error(tmp_path):
    folder = save(tmp_path, decoder(), ["<unk>", "<end>", "<pad>"], None)
    with pytest.raises(ValueError, match="neither closes texts nor has an end-of-text token"):
        text.load(folder, "transformers")


def test_missing_weights_are_named(roberta):
    from safetensors.numpy import load_file, save_file

    path = roberta / "model.safetensors"
    weights = load_file(path)
    without = {name: value for name, value in weights.items() if "pooler" not in name}
    save_file(without, path, {"format": "pt"})
    assert text.load(roberta).layers == 3
    del without["encoder.layer.1.output.dense.bias"]
    save_file(without, path, {"format": "pt"})
    with pytest.raises(ValueError, match="lacks 1 weights, among them 'encoder.layer.1.output.dense.bias'"):
        text.load(roberta)


def test_unknown_types_are_named(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "no-such-type"}')
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match="does not know the type 'no-such-type'"):
        text.load(tmp_path, "transformers")
