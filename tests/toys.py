"""A frozen transformer of NumPy alone."""

import numpy as np

from tf_capsules.text.checkpoint import Checkpoint
from tf_capsules.text.transformer import FrozenTransformer


class ToyTransformer(FrozenTransformer):
    """Its tokens are words and an end token; its states are sines of token, place, layer and column.

    `encoded` counts the encoded texts.
    """

    engine = "toy"

    def __init__(self, folder, layers=3, width=4, max_length=9, scale=1.0):
        super().__init__(Checkpoint(folder), layers, width, max_length, 0, attends_to_padding=False)
        self.scale, self.encoded = scale, 0

    def _tokenize(self, texts):
        return [[1 + sum(map(ord, word)) for word in text.split(" ")][: self.max_length - 1] + [1] for text in texts]

    def _spell(self, ids):
        return [str(number) for number in ids]

    def _encode(self, ids, seen):
        self.encoded += len(ids)
        place = np.arange(ids.shape[1])[:, None, None]
        column = np.arange(self.layers * self.width).reshape(self.layers, self.width)
        return (self.scale * np.sin(ids[..., None, None] + 3 * place + 5 * column)).astype(np.float32)


def write_checkpoint(folder, content=b"{}"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text('{"model_type": "toy"}')
    (folder / "model.safetensors").write_bytes(len(content).to_bytes(8, "little") + content)
    return folder


def write_trees(folder, sentences=9):
    """Writes treebank files with good and bad films by turns, of different lengths; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    words = ("(2 film)", "(2 plot)", "(2 cast)", "(2 the)", "(2 a)")
    for name, count in (("train", sentences), ("dev", 5), ("test", 7)):
        trees = []
        for i in range(count):
            label, word = (4, "good") if i % 2 else (0, "bad")
            tree = f"({label} {word}{i // 2})"
            for j in range(i % 3):
                tree = f"({label} {words[(i + j) % 5]} {tree})"
            trees.append(tree)
        (folder / f"{name}.txt").write_text("\n".join(trees) + "\n")
    return folder
