"""Hidden states computed once: a folder of shards, written whole or not at all, read by memory map."""

import hashlib
import json
import math
import pathlib
import shutil
import time

import numpy as np

from tf_capsules.arguments import is_number
from tf_capsules.files import read_npz, reading, replacing, writable
from tf_capsules.text.transformer import unicode_texts

_FORMAT = 1  # part of the key: raise it when the format of the files changes
_SHARD_BYTES = 2**28
_BATCH_TOKENS = 2048  # computed together, padding included


class CacheTooLarge(ValueError):
    """The hidden states need more room than is allowed or free. `found` says how much, the message also what to do."""

    def __init__(self, found, advice):
        super().__init__(f"{found}: {advice}")
        self.found = found


class LiveStates:
    """The hidden states of texts, a sequence of str, computed by a `FrozenTransformer` whenever they are asked for.

    They equal those of `CachedStates`, which rounds them to its dtype.

    Attributes:
        layers, width: of the hidden states.
        lengths: tokens of each text, int (texts,).
    """

    def __init__(self, transformer, texts):
        self._transformer, self._ids = transformer, transformer.tokenize(texts)
        self.layers, self.width = transformer.layers, transformer.width
        self.lengths = np.array([len(ids) for ids in self._ids], int)

    def __len__(self):
        return len(self._ids)

    def batch(self, indices, tokens=0):
        """Hidden states of these texts, padded to the longest or to more `tokens`: see `FrozenTransformer.encode`."""
        ids = [self._ids[index] for index in indices]
        embeddings, mask = _blank(self, indices, tokens)
        for members, states, real in _computed(self._transformer, ids, np.argsort([len(row) for row in ids])):
            embeddings[members, : states.shape[1]] = states * real[..., None, None]
        return embeddings, mask


class CachedStates:
    """The hidden states of texts from a folder that `cache_states` has written. Reading needs NumPy alone.

    Attributes:
        path: the folder, a `pathlib.Path`.
        layers, width, lengths: as for `LiveStates`.
        about: a dict that describes the cache: transformer, dtype, texts, tokens, bytes and more.

    Raises:
        FileNotFoundError: there is no finished cache, or one of its files is gone.
        ValueError: a file is damaged.
    """

    def __init__(self, path):
        self.path = pathlib.Path(path)
        if not (self.path / "about.json").is_file():
            raise FileNotFoundError(f"{self.path} holds no finished cache of hidden states; `cache_states` makes one")
        with reading(self.path, "is a damaged cache of hidden states, which can be removed", (OSError,)):
            self.about = json.loads((self.path / "about.json").read_text())
            self.layers, self.width = self.about["layers"], self.about["width"]
            index = read_npz(self.path / "index.npz")
            self.lengths, self._shard, self._start = index["lengths"], index["shard"], index["start"]
            names = [self.path / _shard_name(number) for number in range(self.about["shards"])]
            self._shards = [np.load(name, mmap_mode="r", allow_pickle=False) for name in names]
            tokens, shapes = sum(map(len, self._shards)), {shard.shape[1:] for shard in self._shards}
            if tokens != (wanted := self.lengths.sum()) or shapes != {(self.layers, self.width)}:
                raise ValueError(f"it has {tokens} tokens of {shapes}, not {wanted} of its layers and width")

    def __len__(self):
        return len(self.lengths)

    def batch(self, indices, tokens=0):
        """As `LiveStates.batch`."""
        embeddings, mask = _blank(self, indices, tokens)
        for row, index in zip(embeddings, indices, strict=True):
            start, length = self._start[index], self.lengths[index]
            row[:length] = self._shards[self._shard[index]][start : start + length]
        return embeddings, mask


def cache_states(transformer, texts, folder, *, dtype="float16", limit_gb=20.0, report=print):
    """Computes all hidden states of texts once, as `CachedStates` in a folder. A finished cache is only opened.

    The size is reported before the work begins. Interrupted work goes on where it stopped: files are written beside
    their place and renamed when they are complete. If several processes write one cache, each computes all of it.

    Args:
        transformer, texts: as for `LiveStates`.
        folder: holds any number of caches, each in a folder of its own that is named after a hash of the transformer's
            files, its engine and `max_length`, the texts and the dtype.
        dtype: "float16" (relative error up to 5e-4) or "float32".
        limit_gb: the most room to take, in gigabytes (10^9 bytes).
        report: is called with lines of text: the size, and progress.

    Raises:
        CacheTooLarge: before anything is computed, for more than the limit or the free room; the message has the size.
        ValueError: no texts, an unknown dtype, a limit below 0, a folder that can't be written, or hidden states that
            float16 can't hold or that are not finite.
        TypeError: texts that are neither str nor bytes.

    >>> states = cache_states(transformer, reviews.train.texts, "cache")
    159,274 texts, 1,704,643 tokens of 7 x 384 in float16: 9.16 GB in cache/f6989e66af2f67fbc8f2
    """
    if dtype not in ("float16", "float32"):
        raise ValueError(f"dtype must be 'float16' or 'float32', not {dtype!r}")
    if not is_number(limit_gb, 0):
        raise ValueError(f"limit_gb must be a number of at least 0, not {limit_gb!r}")
    texts = unicode_texts(texts)
    if not texts:
        raise ValueError("there are no texts whose hidden states could be kept")
    path = pathlib.Path(folder) / _key(transformer, texts, dtype)
    if (path / "about.json").is_file():
        return CachedStates(path)
    try:
        writable(path / "index.npz")
    except ValueError as error:
        raise ValueError(f"{error} Name another (--cache DIR), or keep no hidden states (--cache none).") from error

    ids = transformer.tokenize(texts)
    lengths = np.array([len(row) for row in ids], np.int64)
    token_bytes = transformer.layers * transformer.width * np.dtype(dtype).itemsize
    order, shard, start = _plan(lengths, token_bytes)
    shards, tokens = int(shard.max()) + 1, int(lengths.sum())
    about = {"transformer": str(transformer.checkpoint.folder), "fingerprint": transformer.checkpoint.fingerprint}
    about |= {name: getattr(transformer, name) for name in ("engine", "layers", "width")}
    about |= {"dtype": dtype, "texts": len(texts), "tokens": tokens, "bytes": tokens * token_bytes, "shards": shards}
    wanted = [number for number in range(shards) if not (path / _shard_name(number)).is_file()]
    todo = int(lengths[np.isin(shard, wanted)].sum())
    _check_room(about, path, limit_gb, todo * token_bytes)
    there = f", {shards - len(wanted)} of {shards} shards are there" if len(wanted) < shards else ""
    report(f"{_size(about)} in {path}{there}")

    with replacing(path / "index.npz") as part:
        np.savez(part, lengths=lengths, shard=shard, start=start)
    started, done = time.monotonic(), 0
    for number in wanted:
        members = order[shard[order] == number]
        states = np.empty((lengths[members].sum(), transformer.layers, transformer.width), dtype)
        end = 0
        for _, embeddings, mask in _computed(transformer, ids, members):
            rows = embeddings[mask > 0]
            begin, end = end, end + len(rows)
            with np.errstate(over="ignore"):
                states[begin:end] = rows
            if not np.isfinite(rows).all():
                raise ValueError("the transformer's hidden states are not all finite numbers")
            if not np.isfinite(states[begin:end]).all():
                most = f"hidden states reach {np.abs(rows).max():.3g}, too much for {dtype}"
                raise ValueError(f"{most}; take 'float32', or --cache none")
        with replacing(path / _shard_name(number)) as part:
            np.save(part, states)
        done += len(states)
        rate = done / (time.monotonic() - started)
        report(f"{done / todo:4.0%}  {rate:,.0f} tokens/s, {(todo - done) / rate / 60:.1f} min left")
    with replacing(path / "about.json") as part:
        part.write_text(json.dumps(about, indent=1))
    return CachedStates(path)


def _key(transformer, texts, dtype):
    checkpoint = transformer.checkpoint.fingerprint
    settings = _FORMAT, _SHARD_BYTES, checkpoint, transformer.engine, transformer.max_length, dtype
    digest = hashlib.sha256(repr(settings).encode())
    for text in texts:
        data = text.encode("utf-8")
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:20]


def _plan(lengths, token_bytes):
    """The order of computing, shortest first, and for each text its shard and its first row there."""
    order = np.argsort(lengths, kind="stable")
    shard, start = np.empty_like(lengths), np.empty_like(lengths)
    number, used, limit = 0, 0, _SHARD_BYTES // token_bytes
    for index in order:
        if used and used + lengths[index] > limit:
            number, used = number + 1, 0
        shard[index], start[index] = number, used
        used += lengths[index]
    return order, shard, start


def _computed(transformer, ids, members):
    """Yields (numbers of texts, embeddings, mask) in batches of little padding. `members` are in order of length."""
    lengths, begin = [len(ids[index]) for index in members], 0
    for end in range(1, len(members) + 1):
        longest = lengths[end] if end < len(members) else math.inf  # the last batch ends anyway
        if longest > 1.5 * lengths[begin] or longest * (end + 1 - begin) > _BATCH_TOKENS:
            yield members[begin:end], *transformer.encode([ids[index] for index in members[begin:end]])
            begin = end


def _blank(states, indices, tokens):
    """Embeddings of zeros, and the mask, for the texts with these numbers."""
    lengths = states.lengths[np.asarray(indices, int)]
    mask = (np.arange(lengths.max(initial=tokens)) < lengths[:, None]).astype(np.float32)
    return np.zeros((*mask.shape, states.layers, states.width), np.float32), mask


def _check_room(about, path, limit_gb, missing):
    instead = "compute them on the fly (`LiveStates`; --cache none)"
    if about["dtype"] == "float32":
        instead = f"take float16, or {instead}"
    if about["bytes"] > limit_gb * 1e9:
        allowed = f"{_size(about)}, more than the {limit_gb:g} GB allowed (`limit_gb`; --cache-limit)"
        raise CacheTooLarge(allowed, f"raise the limit, or {instead}")
    parent = next(folder for folder in (path, *path.absolute().parents) if folder.is_dir())
    free = shutil.disk_usage(parent).free
    if missing > free:
        raise CacheTooLarge(f"{_size(about)}, but in {parent} only {free / 1e9:.2f} GB are free", instead)


def _size(about):
    states = f"{about['layers']} x {about['width']} in {about['dtype']}"
    return f"{about['texts']:,} texts, {about['tokens']:,} tokens of {states}: {about['bytes'] / 1e9:.2f} GB"


def _shard_name(number):
    return f"shard-{number:05d}.npy"
