import itertools
import os
import shutil
import types

import numpy as np
import pytest

from tf_capsules import files
from tf_capsules.text import CachedStates, CacheTooLarge, LiveStates, cache, cache_states


def texts(count=23):
    choose = np.random.default_rng(0)
    return [" ".join(choose.choice(list("abcdefgh"), choose.integers(1, 12))) for _ in range(count)]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(cache, "_SHARD_BYTES", 1500)  # 31 tokens of 3 x 4 float32
    monkeypatch.setattr(cache, "_BATCH_TOKENS", 20)


@pytest.mark.parametrize("dtype, error", [("float32", 0), ("float16", 5e-4)])
def test_cached_states_equal_states_computed_anew(toy, tmp_path, dtype, error):
    live = LiveStates(toy(), texts())
    cached = cache_states(toy(), texts(), tmp_path, dtype=dtype, report=lambda line: None)
    assert len(cached) == len(live) == 23 and (cached.layers, cached.width) == (live.layers, live.width) == (3, 4)
    np.testing.assert_array_equal(cached.lengths, live.lengths)
    assert live.lengths.max() == 9 and len(set(live.lengths)) > 4
    for indices in ([4], [0, 5, 2], np.arange(23), [7, 7], [22, 0]):
        (x, mask), (y, other) = cached.batch(indices), live.batch(indices)
        np.testing.assert_array_equal(mask, other)
        assert x.dtype == mask.dtype == np.float32 and x.shape == y.shape == (*mask.shape, 3, 4)
        np.testing.assert_allclose(x[mask > 0], y[mask > 0], rtol=error, atol=error / 1000)
        assert not x[mask == 0].any()
    assert cached.about["dtype"] == dtype and cached.about["shards"] > 2
    assert all(isinstance(shard, np.memmap) and shard.dtype == dtype for shard in cached._shards)


def test_states_computed_on_the_fly_equal_those_of_the_transformer(toy):
    live = LiveStates(toy(), texts())
    for indices in ([4], [0, 5, 2], np.arange(23), [7, 7]):
        ids = [texts()[index] for index in indices]
        expected, mask = toy().hidden_states(ids)
        x, real = live.batch(indices)
        np.testing.assert_array_equal(real, mask)
        np.testing.assert_array_equal(x[mask > 0], expected[mask > 0])
        assert not x[mask == 0].any()


def test_texts_of_unlike_length_are_computed_apart(toy):
    transformer, computed = toy(), []
    encode = transformer.encode
    transformer.encode = lambda ids: computed.append([len(row) for row in ids]) or encode(ids)
    live = LiveStates(transformer, ["a", "a b c d e f g", "b", "a b c d e f g h", "c"])
    live.batch([1, 0, 4, 3, 2])
    assert computed == [[2, 2, 2], [8, 9]]


def test_written_once_then_opened(toy, tmp_path):
    transformer, lines = toy(), []
    first = cache_states(transformer, texts(), tmp_path, report=lines.append)
    tokens = int(first.lengths.sum())
    assert transformer.encoded == 23
    assert lines[0] == f"23 texts, {tokens} tokens of 3 x 4 in float16: 0.00 GB in {first.path}"
    assert lines[-1].startswith("100%") and "tokens/s" in lines[-1] and len(lines) == 1 + first.about["shards"]
    again = cache_states(transformer, np.array(texts(), object), tmp_path, report=lines.append)
    assert transformer.encoded == 23 and again.path == first.path
    np.testing.assert_array_equal(CachedStates(first.path).batch([3])[0], first.batch([3])[0])
    stored = sum(file.stat().st_size for file in first.path.glob("shard-*.npy"))
    assert first.about["bytes"] == tokens * 3 * 4 * 2 == stored - 128 * first.about["shards"]
    assert {file.name for file in first.path.iterdir()} == {
        "about.json", "index.npz", *(f"shard-{i:05d}.npy" for i in range(first.about["shards"]))
    }  # fmt: skip


def test_the_key_follows_all_that_matters(toy, tmp_path):
    def path(transformer, texts, dtype="float16"):
        return cache_states(transformer, texts, tmp_path, dtype=dtype, report=lambda line: None).path

    paths = [path(toy(), ["a b", "c"]), path(toy(), ["c", "a b"]), path(toy(), ["a", "bc"]), path(toy(), ["ab", "c"])]
    paths += [path(toy(), ["a b", "c"], "float32"), path(toy(max_length=8), ["a b", "c"])]
    other = toy()
    other.engine = "another"
    paths.append(path(other, ["a b", "c"]))
    weights = toy().checkpoint.folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes() + b"changed")
    paths.append(path(toy(), ["a b", "c"]))
    assert len(set(paths)) == len(paths)


class Killed(BaseException):
    pass


def test_killed_at_any_moment(toy, tmp_path, monkeypatch):
    """Killed at any step that computes or writes, it leaves no finished cache, and the next call resumes."""
    expected, _ = LiveStates(toy(), texts()).batch(range(23))
    finished = False
    for moment in itertools.count():
        folder, steps = tmp_path / str(moment), itertools.count()

        def or_be_killed(function, steps=steps, moment=moment):
            def step(*args):
                if next(steps) == moment:
                    raise Killed
                return function(*args)

            return step

        transformer = toy()
        transformer._encode = or_be_killed(transformer._encode)
        system = {name: or_be_killed(getattr(os, name)) for name in ("replace", "fsync")}
        with monkeypatch.context() as patch:
            patch.setattr(files, "os", types.SimpleNamespace(**{**vars(os), **system}))
            try:
                cache_states(transformer, texts(), folder, dtype="float32", report=lambda line: None)
                finished = True
            except Killed:
                (path,) = folder.iterdir()
                with pytest.raises(FileNotFoundError, match=f"{path} holds no finished cache"):
                    CachedStates(path)
        lines, resumed = [], toy()
        there = len(list(folder.glob("*/shard-*.npy")))
        states = cache_states(resumed, texts(), folder, dtype="float32", report=lines.append)
        x, mask = states.batch(range(23))
        np.testing.assert_array_equal(x[mask > 0], expected[mask > 0])
        assert not list(folder.glob("*/.part.*"))
        assert resumed.encoded == sum(~np.isin(states._shard, range(there)))
        if finished:
            break
        assert (f", {there} of {states.about['shards']} shards are there" in lines[0]) == (there > 0)
        shutil.rmtree(folder)
    assert moment > 25


def test_texts_of_like_length_are_computed_together(toy, tmp_path):
    transformer, computed = toy(), []
    encode = transformer.encode
    transformer.encode = lambda ids: computed.append([len(row) for row in ids]) or encode(ids)
    states = cache_states(transformer, texts(200), tmp_path, report=lambda line: None)
    padded = sum(len(lengths) * max(lengths) for lengths in computed)
    assert padded < 1.1 * states.lengths.sum()
    assert max(len(lengths) * max(lengths) for lengths in computed) <= 20 and len(computed) < 150


def test_a_text_longer_than_a_shard(toy, tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "_SHARD_BYTES", 60)
    states = cache_states(toy(), ["a b c d e f", "a", "b"], tmp_path, report=lambda line: None)
    assert states.about["shards"] == 3
    np.testing.assert_allclose(states.batch([0])[0], toy().hidden_states(["a b c d e f"])[0], rtol=1e-3)


class TestRefused:
    def test_above_the_limit(self, toy, tmp_path):
        transformer = toy()
        found = r"23 texts, \d+ tokens of 3 x 4 in float32: 0.00 GB, more than the 1e-06 GB allowed \(.*--cache-limit\)"
        advice = r": raise the limit, or take float16, or compute them on the fly \(`LiveStates`; --cache none\)"
        with pytest.raises(CacheTooLarge, match=found + advice) as caught:
            cache_states(transformer, texts(), tmp_path / "new", dtype="float32", limit_gb=1e-6)
        assert caught.value.found.endswith("--cache-limit)")
        with pytest.raises(CacheTooLarge, match="raise the limit, or compute them on the fly"):
            cache_states(transformer, texts(), tmp_path / "new", limit_gb=1e-6)
        with pytest.raises(ValueError, match="limit_gb must be a number .* not nan"):
            cache_states(transformer, texts(), tmp_path / "new", limit_gb=float("nan"))
        assert transformer.encoded == 0 and not (tmp_path / "new").exists()

    def test_a_folder_that_cannot_be_written(self, toy, tmp_path):
        (tmp_path / "file").touch()
        transformer, said = toy(), []
        with pytest.raises(ValueError, match="can't be written: .*file is no folder.*Name another .--cache DIR"):
            cache_states(transformer, texts(), tmp_path / "file", report=said.append)
        assert not said and transformer.encoded == 0

    def test_beyond_the_free_room(self, toy, tmp_path, monkeypatch):
        asked = []
        monkeypatch.setattr(
            cache.shutil, "disk_usage", lambda path: asked.append(path) or types.SimpleNamespace(free=1000)
        )
        with pytest.raises(CacheTooLarge, match=f"but in {tmp_path} only 0.00 GB are free"):
            cache_states(toy(), texts(), tmp_path / "new" / "er")
        assert asked == [tmp_path]

    def test_too_much_for_float16(self, toy, tmp_path):
        with pytest.raises(ValueError, match="reach 9.99e.04, too much for float16; take 'float32'"):
            cache_states(toy(scale=1e5), texts(), tmp_path, report=lambda line: None)
        cache_states(toy(scale=1e5), texts(), tmp_path, dtype="float32", report=lambda line: None)

    def test_states_that_are_not_finite(self, toy, tmp_path):
        for dtype in ("float16", "float32"):
            with pytest.raises(ValueError, match="hidden states are not all finite numbers"):
                cache_states(toy(scale=np.nan), texts(), tmp_path, dtype=dtype, report=str)

    def test_bad_arguments(self, toy, tmp_path):
        with pytest.raises(ValueError, match="not 'bfloat16'"):
            cache_states(toy(), texts(), tmp_path, dtype="bfloat16")
        with pytest.raises(ValueError, match="no texts"):
            cache_states(toy(), [], tmp_path)
        with pytest.raises(TypeError, match="put the single text 'abc'"):
            cache_states(toy(), "abc", tmp_path)
        with pytest.raises(FileNotFoundError, match="no finished cache"):
            CachedStates(tmp_path)


def test_a_damaged_cache_is_named(toy, tmp_path):
    made = cache_states(toy(), texts(), tmp_path / "whole", report=lambda line: None).path
    shard = (made / "shard-00001.npy").read_bytes()
    for name, content in (
        ("about.json", b"{"),
        ("about.json", b"[]"),
        ("index.npz", b""),
        ("shard-00001.npy", shard[:200]),
        ("shard-00001.npy", (made / "shard-00000.npy").read_bytes()),
    ):
        copy = shutil.copytree(made, tmp_path / "copy")
        (copy / name).write_bytes(content)
        with pytest.raises(ValueError, match=f"^{copy}"):
            CachedStates(copy)
        shutil.rmtree(copy)
    with pytest.raises(FileNotFoundError, match="shard-00001.npy"):
        (made / "shard-00001.npy").unlink()
        CachedStates(made)


def test_what_the_system_refuses_is_no_damage(toy, tmp_path, monkeypatch):
    path = cache_states(toy(), texts(), tmp_path, report=str).path

    def load(file, mmap_mode=None, load=np.load, **options):
        if mmap_mode:
            raise OSError(24, "Too many open files")
        return load(file, **options)

    monkeypatch.setattr(np, "load", load)
    with pytest.raises(OSError, match="Too many open files"):
        CachedStates(path)
