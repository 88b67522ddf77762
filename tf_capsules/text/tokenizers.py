"""The tokenizers of BERT and GPT-2 as TensorFlow operations, from strings to token ids.

They give the same tokens as Hugging Face's, but for some marks and punctuation that are newer than one of the two
tables of Unicode: 115 of the 65,536 characters of the first plane, U+061D for one. The in-graph tokenizers of keras-hub
and tensorflow-text do not: they read zero-width characters, Korean, sharp s, a line end before a word or the digit six
of Devanagari in another way. keras-hub's for GPT-2 also keeps every word that it has met in memory; these keep nothing.
Special tokens that are spelled out in a text are plain text.
"""

import json

import numpy as np

from tf_capsules.lazy import tensorflow_text, tf

# The white space of Unicode. RE2's \s has that of ASCII alone.
_SPACE = r"\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}"
_CHINESE = (
    r"[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}\x{2B740}-\x{2B81F}\x{2B920}-\x{2CEAF}"
    r"\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}]"
)
_PUNCTUATION = r"[!-/:-@\[-`{-~\pP]"
# GPT-2 joins the last white space before a word to the word if it is a space; otherwise it makes it a separate token.
# Its pattern looks ahead, which RE2 can't. So the white space before the last one is cut off first, and kept whole.
_BEFORE_LAST_SPACE = rf"([{_SPACE}]*?)([{_SPACE}]?[^{_SPACE}]+)"
_WORD = rf"^[{_SPACE}]+$|'s|'t|'re|'ve|'m|'ll|'d| ?\pL+| ?\pN+| ?[^{_SPACE}\pL\pN]+|[{_SPACE}]"
# The names of BERT's options in tokenizer_config.json, and what holds where one is absent.
_BERT = {"do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": True}
_NORMALIZER = "lowercase", "strip_accents", "handle_chinese_chars"  # the same in tokenizer.json
_ANY_CLASS = ("PreTrainedTokenizerFast", "TokenizersBackend")  # go by tokenizer.json alone
# Options of byte pairs that change the tokens.
_OTHER_MERGES = ("dropout", "ignore_merges", "byte_fallback", "continuing_subword_prefix", "end_of_word_suffix")
# Marks where to cut: a byte that UTF-8 never has.
_CUT = b"\xff"


class UnsupportedTokenizer(ValueError):
    """A tokenizer that is not built like BERT's or GPT-2's."""


class WordPiece:
    """BERT's tokenizer (Devlin et al. 2019): [CLS], the pieces of the words, [SEP].

    Args:
        vocabulary: the tokens in the order of their ids, [CLS], [SEP], [PAD] and [UNK] among them.
        max_length: texts of more tokens, the special ones included, are cut at the end.
        lowercase, strip_accents, split_chinese: as in the tokenizer's configuration.

    Attributes:
        spellings: the tokens by their ids, a list of str, `##` before a piece that continues a word.

    >>> tokenizer = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "film", "##s"], max_length=9)
    >>> tokenizer(["Good films", ""])
    <tf.RaggedTensor [[2, 4, 5, 6, 3], [2, 3]]>
    """

    longest_word = 100  # characters; a longer word is unknown

    def __init__(self, vocabulary, max_length, *, lowercase=True, strip_accents=True, split_chinese=True):
        if missing := sorted({"[CLS]", "[SEP]", "[PAD]", "[UNK]"} - set(vocabulary)):
            raise UnsupportedTokenizer(f"the vocabulary has no token {', '.join(missing)}")
        if len(set(vocabulary)) < len(vocabulary):
            raise UnsupportedTokenizer(f"the vocabulary has {len(vocabulary) - len(set(vocabulary))} tokens twice")

        self.spellings, self._max_length = list(vocabulary), max_length
        self._lowercase, self._strip_accents, self._split_chinese = lowercase, strip_accents, split_chinese
        self.pad_id, self._first, self._last = map(self.spellings.index, ("[PAD]", "[CLS]", "[SEP]"))
        self.resources = []
        options = dict(max_bytes_per_word=4 * self.longest_word, token_out_type=tf.int32, no_pretokenization=True)
        self._pieces = tensorflow_text.FastWordpieceTokenizer(self.spellings, **options)

    def __call__(self, texts):
        """Token ids of strings (batch,), a ragged int32 tensor (batch, tokens)."""
        words = self._words(texts)
        known = tf.strings.length(words.flat_values, unit="UTF8_CHAR") <= self.longest_word
        words = words.with_flat_values(tf.where(known, words.flat_values, "?" * (4 * self.longest_word + 1)))
        ids = self._pieces.tokenize(words).merge_dims(1, 2)[:, : self._max_length - 2]
        ends = tf.ones_like(ids[:, :0].to_tensor(shape=(None, 1)))
        return tf.concat([ends * self._first, ids, ends * self._last], axis=1)

    def _words(self, texts):
        replace = tf.strings.regex_replace
        texts = replace(_utf8(texts), r"[\t\n\r]", " ")
        texts = replace(texts, r"[\x{FFFD}\pC]", "")
        if self._split_chinese:
            texts = replace(texts, _CHINESE, r" \0 ")
        if self._strip_accents:
            texts = replace(tensorflow_text.normalize_utf8(texts, "NFD"), r"\p{Mn}", "")
        if self._lowercase:
            # A sigma at a word's end would become another letter.
            texts = tf.strings.lower(replace(texts, "Σ", "σ"), encoding="utf-8")
        texts = replace(texts, _PUNCTUATION, _CUT + rb"\0" + _CUT)
        return _split(replace(texts, rf"[{_SPACE}]+", _CUT))

    @classmethod
    def from_folder(cls, folder, max_length):
        """Reads a checkpoint's tokenizer.json, else its vocab.txt; an UnsupportedTokenizer says what does not fit."""
        config, more = _json(folder / "tokenizer_config.json", {}), ()  # overrules the other files
        options = _bert_options(*map(config.get, _BERT, _BERT.values()))
        if (data := _json(folder / "tokenizer.json")) is not None:
            model, normalizer = data["model"], data["normalizer"] or {}
            _require("model", _kind(model), "WordPiece")
            _require("normalizer", normalizer.get("type"), "BertNormalizer")
            _require("cleaning", normalizer["clean_text"], True)
            _require("splitting", (data["pre_tokenizer"] or {}).get("type"), "BertPreTokenizer")
            _require("prefix", model["continuing_subword_prefix"], "##")
            _require("longest word", model["max_input_chars_per_word"], cls.longest_word)
            _require("special tokens", _template(data["post_processor"] or {}), ["[CLS]", "A", "[SEP]"])
            vocabulary = sorted(model["vocab"], key=model["vocab"].get)
            if sorted(model["vocab"].values()) != list(range(len(vocabulary))):
                count = len(vocabulary)
                raise UnsupportedTokenizer(f"the ids of its {count} tokens are not 0 to {count - 1}")
            more, said = data["added_tokens"], options
            options = _bert_options(*(normalizer[name] for name in _NORMALIZER))
            if config.get("tokenizer_class") not in _ANY_CLASS:
                _require("tokenizer_config.json (with Hugging Face's defaults)", said, options)
        elif (folder / "vocab.txt").is_file():
            vocabulary = (folder / "vocab.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n")
        else:
            raise UnsupportedTokenizer(f"{folder} has neither tokenizer.json nor vocab.txt")
        _require_no_more_tokens(folder, config, more)
        lowercase, strip_accents, chinese = options.values()
        return cls(vocabulary, max_length, lowercase=lowercase, strip_accents=strip_accents, split_chinese=chinese)


class BytePair:
    """GPT-2's byte-level byte-pair encoding (Radford et al. 2019), with the end-of-text token after every text.

    No space is put before the first word.

    Args:
        vocabulary: dict from token to id. It has the 256 bytes, written as GPT-2 writes them, and `<|endoftext|>`.
        merges: pairs of tokens, in the order in which they are merged.
        max_length: texts of more tokens, the end-of-text token included, are cut at the end.

    Attributes:
        spellings: the tokens by their ids, a list of str, as they are in the text. A part of a character is U+FFFD.

    >>> alphabet = {character: byte for byte, character in enumerate(byte_characters())}
    >>> vocabulary = alphabet | {"ab": 256, "abab": 257, "<|endoftext|>": 258}
    >>> tokenizer = BytePair(vocabulary, [("a", "b"), ("ab", "ab")], max_length=9)
    >>> tokenizer(["ababab", ""])
    <tf.RaggedTensor [[257, 256, 258], [258]]>
    """

    end = "<|endoftext|>"

    def __init__(self, vocabulary, merges, max_length):
        characters = byte_characters()
        tokens = {*characters, *(token for pair in merges for token in (*pair, "".join(pair))), self.end}
        if missing := sorted(tokens - set(vocabulary)):
            raise UnsupportedTokenizer(f"the vocabulary lacks {len(missing)} tokens, among them {missing[0]!r}")

        self._max_length, self.pad_id = max_length, vocabulary[self.end]
        byte = {character: number for number, character in enumerate(characters)}
        self.spellings = [""] * (max(vocabulary.values()) + 1)
        for token, number in vocabulary.items():
            if byte.keys() >= set(token):
                token = bytes(map(byte.get, token)).decode("utf-8", "replace")
            self.spellings[number] = token
        self._longest = max(map(len, vocabulary))  # a character of the vocabulary is a byte
        self._byte_ids = np.array([vocabulary[character] for character in characters])
        self._base, self._no_merge = max(vocabulary.values()) + 1, len(merges)
        self._merged = np.array([vocabulary[a + b] for a, b in merges] + [0])
        # A table can't be empty, so it also has a pair that never occurs.
        pairs = np.array([vocabulary[a] * self._base + vocabulary[b] for a, b in merges] + [-1], np.int64)
        ranks = tf.lookup.KeyValueTensorInitializer(pairs, np.arange(len(pairs)))
        self._ranks = tf.lookup.StaticHashTable(ranks, self._no_merge)
        self.resources = [self._ranks]

    def __call__(self, texts):
        """Token ids of strings (batch,), a ragged int32 tensor (batch, tokens)."""
        # Text behind the last token that is kept would only take time.
        texts = tf.strings.substr(texts, 0, self._max_length * self._longest)
        words = self._words(texts)
        distinct, index = tf.unique(words.flat_values, out_idx=tf.int64)
        ids = words.with_flat_values(tf.gather(self._merge(distinct), index)).merge_dims(1, 2)
        ids = ids[:, : self._max_length - 1]
        ends = tf.ones_like(ids[:, :0].to_tensor(shape=(None, 1)))
        return tf.cast(tf.concat([ids, ends * self.pad_id], axis=1), tf.int32)

    def _words(self, texts):
        parts = _split(tf.strings.regex_replace(_utf8(texts), _BEFORE_LAST_SPACE, rb"\1" + _CUT + rb"\2" + _CUT))
        words = _split(tf.strings.regex_replace(parts.flat_values, _WORD, rb"\0" + _CUT))
        return parts.with_flat_values(words).merge_dims(1, 2)

    def _merge(self, words):
        """Token ids of words, a ragged int64 tensor; each step merges in every word its pair of lowest rank."""
        count = tf.size(words, out_type=tf.int64)
        letters = tf.io.decode_raw(tf.strings.reduce_join(words), tf.uint8)
        ids = tf.gather(self._byte_ids, tf.cast(letters, tf.int32))
        word = tf.repeat(tf.range(count), tf.strings.length(words))

        def step(_, ids, word):
            left = word[:-1]
            rank = self._ranks.lookup(ids[:-1] * self._base + ids[1:])
            rank = tf.where(left == word[1:], rank, self._no_merge)
            lowest = tf.math.unsorted_segment_min(rank, left, count)
            match = (rank < self._no_merge) & (rank == tf.gather(lowest, left))
            # If pairs overlap (a a a), every other one is merged, from the first of the run on.
            place = tf.range(tf.size(match))
            begins = match & ~tf.concat([[False], match], 0)[:-1]
            run = tf.cumsum(tf.cast(begins, tf.int32))
            match &= (place - tf.gather(tf.concat([[0], place[begins]], 0), run)) % 2 == 0
            ids = tf.concat([tf.where(match, tf.gather(self._merged, rank), ids[:-1]), ids[-1:]], 0)
            keep = ~tf.concat([[False], match], 0)
            return tf.reduce_any(match), ids[keep], word[keep]

        shapes = tf.TensorShape([]), tf.TensorShape([None]), tf.TensorShape([None])
        start = tf.size(ids) > 1, ids, word
        _, ids, word = tf.while_loop(lambda more, *_: more, step, start, shape_invariants=shapes)
        return tf.RaggedTensor.from_value_rowids(ids, word, nrows=count, validate=False)

    @classmethod
    def from_folder(cls, folder, max_length):
        """Reads a checkpoint's tokenizer.json, or else vocab.json and merges.txt; for errors see `WordPiece`."""
        config, more = _json(folder / "tokenizer_config.json", {}), ()
        _require("space before the first word", config.get("add_prefix_space", False), False)
        _require("start token", config.get("add_bos_token", False), False)
        if (data := _json(folder / "tokenizer.json")) is not None:
            model, splitting = data["model"], data["pre_tokenizer"] or {}
            _require("model", _kind(model), "BPE")
            for option in _OTHER_MERGES:
                _require(option, model.get(option) or None, None)
            _require("normalizer", data["normalizer"], None)
            _require("splitting", splitting.get("type"), "ByteLevel")
            _require("splitting", splitting.get("use_regex", True), True)
            _require("space before the first word", splitting["add_prefix_space"], False)
            processor, more = data["post_processor"] or {}, data["added_tokens"]
            if processor.get("type", "ByteLevel") != "ByteLevel":
                _require("special tokens", _template(processor), ["A"])
            vocabulary, merges = dict(model["vocab"]), model["merges"]
            vocabulary |= {one["content"]: one["id"] for one in more if one["content"] == cls.end}
        elif (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
            vocabulary = json.loads((folder / "vocab.json").read_bytes())
            lines = (folder / "merges.txt").read_text(encoding="utf-8").split("\n")
            merges = [line for line in lines if line and not line.startswith("#version")]
        else:
            raise UnsupportedTokenizer(f"{folder} has neither tokenizer.json nor vocab.json and merges.txt")
        _require_no_more_tokens(folder, config, more)
        pairs = [tuple(pair.split(" ")) if isinstance(pair, str) else tuple(pair) for pair in merges]
        return cls(vocabulary, pairs, max_length)


def byte_characters():
    """The 256 printable characters that stand for the bytes 0 .. 255 in GPT-2's vocabulary.

    >>> byte_characters()[ord("a")], byte_characters()[ord(" ")]
    ('a', 'Ġ')
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def _utf8(texts):
    """The strings, with U+FFFD in place of bytes that are no UTF-8."""
    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace", replacement_char=0xFFFD)


def _split(texts):
    """The parts between cuts, without empty ones: a ragged tensor (strings, parts)."""
    parts = tf.strings.split(texts, _CUT)
    return tf.ragged.boolean_mask(parts, parts != b"")


def _json(path, absent=None):
    """What a file says; `absent` if it is not there."""
    return json.loads(path.read_bytes()) if path.is_file() else absent


def _kind(model):
    """The kind of a tokenizer.json's model. Those of GPT-2 and BERT, which are older, don't say it."""
    return model.get("type") or ("BPE" if "merges" in model else "WordPiece")


def _template(post_processor):
    """The special tokens around a text A, in their order; None for another form."""
    if post_processor.get("type") == "BertProcessing":
        return [post_processor["cls"][0], "A", post_processor["sep"][0]]
    return [next(iter(part.values()))["id"] for part in post_processor.get("single", ())] or None


def _bert_options(lowercase, strip_accents, split_chinese):
    """BERT's options by name; without a value, accents are stripped where letters are lowercased."""
    strip_accents = lowercase if strip_accents is None else strip_accents
    return dict(zip(_BERT, (lowercase, strip_accents, split_chinese), strict=True))


def _require_no_more_tokens(folder, config, listed):
    """Added tokens that are not special are kept whole in every text. `listed`: those of tokenizer.json."""
    added = [*listed, *config.get("added_tokens_decoder", {}).values()]
    special = {token["content"] for token in added if token["special"]}
    special |= {value for key, value in config.items() if key.endswith("_token") and isinstance(value, str)}
    more = {token["content"] for token in added}
    more |= set(_json(folder / "added_tokens.json", ()))  # of earlier versions of the library
    _require("list of added tokens", sorted(more - special), [])


def _require(what, found, wanted):
    if found != wanted:
        raise UnsupportedTokenizer(f"the tokenizer's {what} is {found!r}, not {wanted!r}")
