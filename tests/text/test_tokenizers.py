import doctest
import json
import random

import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

from tf_capsules.text.tokenizers import BytePair, UnsupportedTokenizer, WordPiece, byte_characters  # noqa: E402

HARD = [
    "", " ", "   ", "\n", "a", " a", "a ", "  a", "a  ", "\n\na", " \n a \t b", "a\r\nb\r\n", "x=1+2;", "...",
    "a \u00a0b\u00a0\u00a0c", "a\u2003b\u2028c\u3000d", "a\u0085b\u000bc\u001cd", "8\u00a01\\/2 2 1/2",
    "we'll we'Ll don't I'm 's's ''s", "naïve Café e\u0301 ÅNGSTRÖM", "straße STRASSE ß", "ΣΑΣ σας", "İstanbul ılık",
    "中文字 ひらがな カタカナ", "한국어 film", "\u0915\u094d\u0937 ६ ५", "١٢٣ ²½Ⅷ", "👩\u200d👩\u200d👧 😀", "\ufffd",
    "zero\u200bwidth \ufeffbom soft\u00adhyphen", "a\x00b\x00", "[SEP] [CLS] [MASK]", "<|endoftext|> a", "Ĵ ĴA Ġ ĉ",
    "lollollol aaaaaaa bbbb", "a" * 100, "a" * 101, "é" * 100, "中" * 101, "क" * 100, "क" * 101, "ﬁne ǅ",
    "`~!@#$%^&*()_+-={}[]|:;<>,.?/\\\"'", "“quotes” — «and» ¿dashes?",
]  # fmt: skip
BROKEN = [
    b"\xff\xfe",
    b"a\xc3(b",
    b"\xe2\x82",
    b"\xed\xa0\x80x",
    b"\xf0\x9f\x98",
    b"\xc0\x80",
    b"\xf5abc",
    b"ok\xe4\xb8",
]


def mixtures(count):
    pieces = HARD + list("abcdefgABCD 0123  \n\t.,'") * 2
    choose = random.Random(0)
    return ["".join(choose.choices(pieces, k=choose.randrange(1, 9))) for _ in range(count)]


def byte_pair(max_length=1000, count=150):
    """GPT-2's tokenizer with merges learned from a few sentences, and Hugging Face's tokenizer with the same merges."""
    tokenizers = pytest.importorskip("tokenizers")
    from tokenizers import models, pre_tokenizers, trainers

    reference = tokenizers.Tokenizer(models.BPE())
    reference.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    options = {"vocab_size": 257 + count, "special_tokens": ["<|endoftext|>"], "initial_alphabet": alphabet}
    reference.train_from_iterator(HARD + mixtures(50), trainers.BpeTrainer(**options, show_progress=False))
    reference.encode_special_tokens = True
    model = json.loads(reference.to_str())["model"]
    assert len(model["merges"]) == count
    return BytePair(model["vocab"], [tuple(pair) for pair in model["merges"]], max_length), reference


def word_piece(max_length=1000, lowercase=True):
    tokenizers = pytest.importorskip("tokenizers")
    from tokenizers import models, normalizers, pre_tokenizers, processors, trainers

    reference = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    reference.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=lowercase)
    reference.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=special, show_progress=False)
    reference.train_from_iterator([text for text in HARD if "क" * 9 not in text], trainer)
    reference.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    reference.encode_special_tokens = True
    vocabulary = sorted(reference.get_vocab(), key=reference.get_vocab().get)
    return WordPiece(vocabulary, max_length, lowercase=lowercase, strip_accents=lowercase), reference


def assert_same(tokenizer, reference, texts, end=()):
    compiled = tf.function(tokenizer, input_signature=[tf.TensorSpec((None,), tf.string)])
    found = compiled([text.encode() if isinstance(text, str) else text for text in texts]).to_list()
    end = list(end)
    for text, ids in zip(texts, found, strict=True):
        text = text if isinstance(text, str) else text.decode("utf-8", "replace")
        assert ids == reference.encode(text).ids + end, ascii(text)


class TestAgainstHuggingFace:
    texts = HARD + mixtures(400) + BROKEN

    def test_byte_pair(self):
        tokenizer, reference = byte_pair()
        assert_same(tokenizer, reference, self.texts, [tokenizer.pad_id])

    @pytest.mark.parametrize("lowercase", [True, False])
    def test_word_piece(self, lowercase):
        tokenizer, reference = word_piece(lowercase=lowercase)
        assert_same(tokenizer, reference, self.texts)


def test_merges_by_hand():
    alphabet = {character: byte for byte, character in enumerate(byte_characters())}
    merges = [("a", "b"), ("c", "c"), ("ab", "ab"), ("b", "c"), ("cc", "cc"), ("Ġ", "ab")]
    vocabulary = alphabet | {"".join(pair): 256 + i for i, pair in enumerate(merges)} | {"<|endoftext|>": 999}
    tokenizer = BytePair(vocabulary, merges, 50)
    found = tokenizer(["abab ab", "abcbc", "ccccccc", "ccc", "", "bcab"]).to_list()
    assert [[tokenizer.spellings[number] for number in ids[:-1]] for ids in found] == [
        ["abab", " ab"], ["ab", "c", "bc"], ["cccc", "cc", "c"], ["cc", "c"], [], ["bc", "ab"],
    ]  # fmt: skip
    assert all(ids[-1] == 999 for ids in found)
    assert (len(tokenizer.spellings), tokenizer.spellings[998:]) == (1000, ["", "<|endoftext|>"])


def test_byte_pairs_without_merges_are_bytes():
    tokenizer = BytePair({c: b for b, c in enumerate(byte_characters())} | {"<|endoftext|>": 256}, [], 50)
    assert tokenizer([bytes(range(128)), "é"]).to_list() == [[*range(49), 256], [0xC3, 0xA9, 256]]


def test_pieces_by_hand():
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##able", "##a", "able", "film", "!", "été", "ete"]
    found = WordPiece(vocabulary, 50)(["Unable un!able", "uncle \tÉTÉ", "[CLS]"])
    assert found.to_list() == [[2, 4, 5, 4, 9, 7, 3], [2, 1, 11, 3], [2, 1, 1, 1, 3]]
    found = WordPiece(vocabulary, 50, lowercase=False, strip_accents=False)(["un été Un", "ETE"])
    assert found.to_list() == [[2, 4, 10, 1, 3], [2, 1, 3]]


def test_spelling():
    tokenizer, _ = byte_pair()
    text = "A naïve film , 中\n"
    pieces = [tokenizer.spellings[number] for number in tokenizer([text]).to_list()[0]]
    assert pieces[-1] == "<|endoftext|>" and " film" in "".join(pieces)
    if "\ufffd" not in "".join(pieces):
        assert "".join(pieces[:-1]) == text
    tokenizer, _ = word_piece()
    assert tokenizer.spellings[:4] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


@pytest.mark.parametrize("make, special", [(byte_pair, 1), (word_piece, 2)])
def test_long_texts_lose_their_end(make, special):
    long, _ = make()
    short, _ = make(max_length=7)
    texts = ["a b c d e f g h i j", "we'll", "x" * 300_000, "", "a " * 100_000]
    for text, ids in zip(texts, short(texts).to_list(), strict=True):
        whole = long([text]).to_list()[0]
        if len(whole) <= 7:
            assert ids == whole
        else:
            assert len(ids) == 7 and ids[-1] == whole[-1] and ids[: 7 - special] == whole[: 7 - special]


@pytest.mark.parametrize("make", [byte_pair, word_piece])
def test_no_texts(make):
    tokenizer, _ = make()
    assert tokenizer(tf.constant([], tf.string)).shape[0] == 0


class TestFiles:
    def test_byte_pair(self, tmp_path):
        tokenizer, reference = byte_pair()
        (tmp_path / "old").mkdir()
        reference.model.save(str(tmp_path / "old"))
        assert "#version" in (tmp_path / "old" / "merges.txt").read_text()
        reference.save(str(tmp_path / "tokenizer.json"))
        for folder in (tmp_path, tmp_path / "old"):
            assert BytePair.from_folder(folder, 1000)(HARD).to_list() == tokenizer(HARD).to_list()

    @pytest.mark.parametrize("lowercase", [True, False])
    def test_word_piece(self, tmp_path, lowercase):
        tokenizer, reference = word_piece(lowercase=lowercase)
        reference.save(str(tmp_path / "tokenizer.json"))
        (tmp_path / "old").mkdir()
        reference.model.save(str(tmp_path / "old"))
        config = {"do_lower_case": lowercase, "strip_accents": None}  # the other file says true or false
        for folder in (tmp_path, tmp_path / "old"):
            (folder / "tokenizer_config.json").write_text(json.dumps(config))
            assert WordPiece.from_folder(folder, 1000)(HARD).to_list() == tokenizer(HARD).to_list()

    @pytest.mark.parametrize(
        "kind, change, words",
        [
            (BytePair, {"normalizer": {"type": "NFC"}}, "normalizer is {'type': 'NFC'}, not None"),
            (BytePair, {"pre_tokenizer": {"type": "Whitespace"}}, "splitting is 'Whitespace', not 'ByteLevel'"),
            (BytePair, {"model": {"type": "Unigram"}}, "model is 'Unigram', not 'BPE'"),
            (WordPiece, {"normalizer": None}, "normalizer is None, not 'BertNormalizer'"),
            (WordPiece, {"pre_tokenizer": None}, "splitting is None, not 'BertPreTokenizer'"),
            (WordPiece, {"model": {"type": "BPE"}}, "model is 'BPE', not 'WordPiece'"),
            (BytePair, {"added_tokens": [{"content": "ab", "special": False}]}, "added tokens is \\['ab'\\]"),
            (BytePair, {"model": {"merges": [], "ignore_merges": True}}, "ignore_merges is True, not None"),
            (BytePair, {"post_processor": {"type": "RobertaProcessing"}}, "special tokens is None, not"),
            (WordPiece, {"added_tokens": [{"content": "ab", "special": False}]}, "added tokens is \\['ab'\\]"),
            (WordPiece, {"post_processor": None}, "special tokens is None, not \\['\\[CLS\\]', 'A', '\\[SEP\\]'\\]"),
        ],
    )
    def test_other_tokenizers_are_named(self, tmp_path, kind, change, words):
        _, reference = (byte_pair if kind is BytePair else word_piece)()
        (tmp_path / "tokenizer.json").write_text(json.dumps(json.loads(reference.to_str()) | change))
        with pytest.raises(UnsupportedTokenizer, match=words):
            kind.from_folder(tmp_path, 1000)

    @pytest.mark.parametrize(
        "kind, change",
        [(BytePair, {"add_prefix_space": True}), (BytePair, {"add_bos_token": True}),
         (BytePair, {"added_tokens_decoder": {"300": {"content": "ab", "special": False}}}),
         (WordPiece, {"do_lower_case": False}), (WordPiece, {"strip_accents": False}),
         (WordPiece, {"tokenize_chinese_chars": False})],
    )  # fmt: skip
    def test_a_configuration_that_overrules_the_tokenizer_is_named(self, tmp_path, kind, change):
        _, reference = (byte_pair if kind is BytePair else word_piece)()
        (tmp_path / "tokenizer.json").write_text(reference.to_str())
        kind.from_folder(tmp_path, 1000)
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(change))
        with pytest.raises(UnsupportedTokenizer, match="the tokenizer's .* is .*, not"):
            kind.from_folder(tmp_path, 1000)
        if kind is WordPiece:  # this class does not look into its configuration
            (tmp_path / "tokenizer_config.json").write_text(
                json.dumps(change | {"tokenizer_class": "PreTrainedTokenizerFast"})
            )
            kind.from_folder(tmp_path, 1000)

    def test_an_absent_option_overrules_the_tokenizer_too(self, tmp_path):
        """Hugging Face's library takes its defaults, such as lowercase letters, whatever tokenizer.json says."""
        (tmp_path / "tokenizer.json").write_text(word_piece(lowercase=False)[1].to_str())
        with pytest.raises(UnsupportedTokenizer, match="tokenizer_config.json .*'do_lower_case': True.*, not"):
            WordPiece.from_folder(tmp_path, 1000)

    def test_added_tokens_in_a_file_of_their_own_are_named(self, tmp_path):
        _, reference = byte_pair()
        reference.model.save(str(tmp_path))
        (tmp_path / "tokenizer_config.json").write_text('{"pad_token": "<pad>"}')
        (tmp_path / "added_tokens.json").write_text('{"<pad>": 500}')  # special, so plain text where a text has it
        BytePair.from_folder(tmp_path, 1000)
        (tmp_path / "added_tokens.json").write_text('{"<pad>": 500, "ab": 501}')
        with pytest.raises(UnsupportedTokenizer, match=r"added tokens is \['ab'\]"):
            BytePair.from_folder(tmp_path, 1000)

    def test_byte_pairs_may_have_a_template_without_special_tokens(self, tmp_path):
        tokenizer, reference = byte_pair()
        from tokenizers import processors

        reference.post_processor = processors.TemplateProcessing(single="$A", special_tokens=[])
        reference.save(str(tmp_path / "tokenizer.json"))
        assert BytePair.from_folder(tmp_path, 1000)(HARD).to_list() == tokenizer(HARD).to_list()

    @pytest.mark.parametrize("kind", [BytePair, WordPiece])
    def test_older_files_do_not_name_their_model(self, tmp_path, kind):
        tokenizer, reference = (byte_pair if kind is BytePair else word_piece)()
        data = json.loads(reference.to_str())
        del data["model"]["type"]
        (tmp_path / "tokenizer.json").write_text(json.dumps(data))
        assert kind.from_folder(tmp_path, 1000)(HARD).to_list() == tokenizer(HARD).to_list()

    def test_the_special_tokens_may_be_given_as_a_template(self, tmp_path):
        tokenizer, reference = word_piece()
        from tokenizers import processors

        special = [("[CLS]", 2), ("[SEP]", 3)]
        reference.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=special)
        reference.save(str(tmp_path / "tokenizer.json"))
        assert WordPiece.from_folder(tmp_path, 1000)(HARD).to_list() == tokenizer(HARD).to_list()

    @pytest.mark.parametrize("kind, words", [(BytePair, "vocab.json and merges.txt"), (WordPiece, "vocab.txt")])
    def test_missing_files_are_named(self, tmp_path, kind, words):
        with pytest.raises(UnsupportedTokenizer, match=words):
            kind.from_folder(tmp_path, 1000)


def test_incomplete_vocabularies_are_named():
    with pytest.raises(UnsupportedTokenizer, match=r"no token \[CLS\], \[PAD\]"):
        WordPiece(["[UNK]", "[SEP]", "a"], 10)
    vocabulary = {character: byte for byte, character in enumerate(byte_characters())}
    with pytest.raises(UnsupportedTokenizer, match="lacks 1 tokens, among them '<|endoftext|>'"):
        BytePair(vocabulary, [], 10)
    with pytest.raises(UnsupportedTokenizer, match="lacks 1 tokens, among them 'ab'"):
        BytePair(vocabulary | {"<|endoftext|>": 256}, [("a", "b")], 10)


def test_examples_run():
    from tf_capsules.text import tokenizers

    result = doctest.testmod(tokenizers)
    assert result.attempted > 6 and not result.failed
