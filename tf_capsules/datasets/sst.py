"""The Stanford Sentiment Treebank (Socher et al. 2013), read from its parse trees."""

import dataclasses
import functools
import itertools
import pathlib
import re
from typing import NamedTuple

import numpy as np

from tf_capsules.files import reading
from tf_capsules.lazy import tfds

URL = "https://nlp.stanford.edu/sentiment/trainDevTestTrees_PTB.zip"
_FILES = {"train": "train.txt", "validation": "dev.txt", "test": "test.txt"}
_CLASSES = {
    "fine": ("very negative", "negative", "neutral", "positive", "very positive"),
    "binary": ("negative", "positive"),
}
_BINARY = {0: 0, 1: 0, 3: 1, 4: 1}  # neutral texts, 2, are left out


class TextSplit(NamedTuple):
    """Texts, an object array (N,) of str, and their labels, int32 (N,)."""

    texts: np.ndarray
    labels: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class TextDataset:
    """Training, development and test texts with the names of their classes."""

    name: str
    train: TextSplit
    dev: TextSplit
    test: TextSplit
    class_names: tuple[str, ...]


def sst(data_dir=None, download=False, labels="fine", phrases=True):
    """Movie-review sentences with their sentiment, a `TextDataset`: SST-5/R and SST-2/R of Heinsen 2019, section 4.

    Training texts are all distinct phrases of the training trees (words and whole sentences included), or the sentences
    only. Development and test texts are whole sentences. A phrase is its words joined by single spaces. Its case is
    kept, and brackets stay `-LRB-` and so on. Of equal phrases the first in file order counts, a tree's root before its
    parts. The paper compares GPT-2 tokens, not texts: the result is the same, as byte-level tokens spell out the text.

    | labels | classes | train (phrases) | train (sentences) | dev | test |
    | --- | --- | --- | --- | --- | --- |
    | "fine" | very negative, negative, neutral, positive, very positive | 159,274 | 8,544 | 1,101 | 2,210 |
    | "binary" | negative, positive; neutral texts are left out | 77,616 | 6,920 | 872 | 1,821 |

    Args:
        data_dir: a folder with train.txt, dev.txt and test.txt (or with a folder `trees` that has them), whose trees
            are read directly; or a folder of prepared tensorflow-datasets, as in `tf_capsules.datasets.load`.
        download: fetch and prepare the official archive with tensorflow-datasets if it is absent.
        labels: "fine" or "binary".
        phrases: train on phrases, or on sentences only.

    Raises:
        ValueError: unknown labels, or a malformed tree: the message names file and line.
        FileNotFoundError: the data are absent.

    >>> reviews = sst("trees", labels="binary")
    >>> reviews.class_names[reviews.train.labels[0]], reviews.train.texts[0]
    """
    _check_labels(labels)
    if data_dir is not None and (folder := _trees_folder(data_dir)):
        splits = (examples(folder / file, labels, phrases and split == "train") for split, file in _FILES.items())
    else:
        splits = _prepared(f"{labels}_{'phrases' if phrases else 'sentences'}", data_dir, download)
    splits = (TextSplit(np.array(texts, object), np.array(numbers, np.int32)) for texts, numbers in splits)
    return TextDataset(f"sst_{labels}", *splits, _CLASSES[labels])


def sst_fine(data_dir=None, download=False, phrases=True):
    """See `sst`: five classes."""
    return sst(data_dir, download, "fine", phrases)


def sst_binary(data_dir=None, download=False, phrases=True):
    """See `sst`: two classes."""
    return sst(data_dir, download, "binary", phrases)


def examples(path, labels="fine", phrases=False):
    """The texts and labels of one file of trees, two lists: of the whole sentences, or of all distinct phrases.

    The file has one tree a line, such as `(3 (2 Good) (2 film))`, in UTF-8. A ValueError names file and line of a
    malformed tree or of bytes that are no UTF-8. For `labels` see `sst`.
    """
    _check_labels(labels)
    seen, texts, numbers = set(), [], []
    # Not splitlines() and not str.split(): a non-breaking space is part of some words.
    for number, line in enumerate(pathlib.Path(path).read_bytes().split(b"\n"), start=1):
        line = line.removesuffix(b"\r")
        if not line:
            continue
        with reading(f"{path}, line {number}:", "malformed tree"):
            found = tree_phrases(line.decode("utf-8"))
        for label, text in found if phrases else found[:1]:
            label = label if labels == "fine" else _BINARY.get(label)
            if label is not None and not (phrases and text in seen):
                seen.add(text)
                texts.append(text)
                numbers.append(label)
    if not texts:
        raise ValueError(f"{path} holds no {'trees' if labels == 'fine' else 'positive or negative trees'}")
    return texts, numbers


def _check_labels(labels):
    if labels not in _CLASSES:
        raise ValueError(f"labels must be 'fine' or 'binary', not {labels!r}")


def tree_phrases(tree):
    """The phrases of one tree in Penn Treebank brackets as pairs (label, text), every node before its parts.

    Each node has a label 0 to 4 and either one word or further nodes; a ValueError says how a tree is malformed.

    >>> tree_phrases("(4 (2 A) (3 (3 good) (2 film)))")
    [(4, 'A good film'), (2, 'A'), (3, 'good film'), (3, 'good'), (2, 'film')]
    """
    words, nodes, path = [], [], []  # a node: label, first word, end; path: the nodes that are open
    tokens = iter(re.findall(r"[()]|[^() ]+", tree))
    previous = None
    for token in tokens:
        if previous == "word" and token != ")":
            raise ValueError(f"one word and ')' make a leaf, but {words[-1]!r} is followed by {token!r}")
        if nodes and not path:
            raise ValueError(f"the tree ends before {token!r}")
        if token == "(":
            label = next(tokens, "the end")
            if label not in {"0", "1", "2", "3", "4"}:
                raise ValueError(f"a label 0 to 4 must follow '(', not {label!r}")
            path.append(len(nodes))
            nodes.append([int(label), len(words), None])
            previous = "label"
        elif token == ")":
            if not path or previous == "label":
                raise ValueError("a node has neither word nor parts" if path else "it begins with ')'")
            nodes[path.pop()][2] = len(words)
            previous = "end"
        else:
            if previous != "label":
                raise ValueError(f"the word {token!r} stands beside other nodes, not in a leaf")
            words.append(token)
            previous = "word"
    if path or not nodes:
        raise ValueError(f"{len(path)} ')' missing at the end" if nodes else "there is no tree")
    return [(label, " ".join(words[first:end])) for label, first, end in nodes]


def _trees_folder(path):
    """The folder at `path` that holds the three files, or None."""
    folders = pathlib.Path(path), pathlib.Path(path) / "trees"
    return next((one for one in folders if all((one / file).is_file() for file in _FILES.values())), None)


@functools.cache
def builder_class():
    """The tensorflow-datasets builder `sst_trees`, for users who want `tfds` to hold and shuffle the texts.

    Its configurations are `fine_sentences`, `fine_phrases`, `binary_sentences` and `binary_phrases`, its splits
    `train`, `validation` and `test`, its features `text` and `label`. The official archive is downloaded, unless the
    class is called with `trees`, a folder that holds the three files.

    >>> builder = builder_class()(config="fine_phrases", trees="trees")
    >>> builder.download_and_prepare()
    >>> train = builder.as_dataset(split="train", as_supervised=True)
    """

    class SstTrees(tfds.core.GeneratorBasedBuilder):
        """Sentences and phrases of the Stanford Sentiment Treebank."""

        VERSION = tfds.core.Version("1.0.0")
        BUILDER_CONFIGS = [
            tfds.core.BuilderConfig(name=f"{labels}_{units}", description=f"{units}, {labels} labels")
            for labels, units in itertools.product(_CLASSES, ("sentences", "phrases"))
        ]

        def __init__(self, *, trees=None, **kwargs):
            self._trees = trees
            super().__init__(**kwargs)

        def _info(self):
            label = tfds.features.ClassLabel(names=_CLASSES[self.builder_config.name.split("_")[0]])
            return self.dataset_info_from_configs(
                features=tfds.features.FeaturesDict({"text": tfds.features.Text(), "label": label}),
                supervised_keys=("text", "label"),
                homepage="https://nlp.stanford.edu/sentiment/",
                description="The Stanford Sentiment Treebank, from its parse trees.",
                citation="Socher et al., Recursive deep models for semantic compositionality over a sentiment "
                "treebank, EMNLP 2013",
            )

        def _split_generators(self, dl_manager):
            path = self._trees or dl_manager.download_and_extract(URL)
            if (folder := _trees_folder(path)) is None:
                raise FileNotFoundError(f"no train.txt, dev.txt and test.txt in {path}")
            return {split: self._generate_examples(folder / file, split) for split, file in _FILES.items()}

        def _generate_examples(self, path, split):
            labels, units = self.builder_config.name.split("_")
            pairs = zip(*examples(path, labels, split == "train" and units == "phrases"), strict=True)
            yield from enumerate({"text": text, "label": label} for text, label in pairs)

    return SstTrees


def _prepared(config, data_dir, download):
    """The splits from tensorflow-datasets, in its own shuffled order."""
    from tf_capsules.datasets.standard import read_prepared

    hint = f"Or name the folder of the unpacked {URL}"
    if data_dir is not None:
        hint += f"; there are no train.txt, dev.txt and test.txt in {data_dir}"
    make = functools.partial(builder_class(), config=config)
    _, parts = read_prepared(make, _FILES, "Stanford Sentiment Treebank", data_dir, download, f"{hint}.")
    return [([text.decode("utf-8") for text in part["text"]], part["label"]) for part in parts]
