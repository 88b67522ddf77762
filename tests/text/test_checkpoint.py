import json
import os
import pathlib

import pytest

from tf_capsules.text.checkpoint import Checkpoint, find


def write(folder, config='{"model_type": "toy"}', **files):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(config)
    header = json.dumps({"a.weight": {"dtype": "F32"}, "__metadata__": {"format": "pt"}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"1234")
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def test_a_checkpoint_reads_config_weight_names_and_length_limit(tmp_path):
    checkpoint = Checkpoint(write(tmp_path))
    assert checkpoint.config == {"model_type": "toy"} and checkpoint.weights == {"a.weight"}
    assert checkpoint.tokenizer_limit is None
    for limit, known in ((512, 512), (1000000000000000019884624838656, None), (None, None)):
        folder = write(tmp_path, tokenizer_config__json=json.dumps({"model_max_length": limit}))
        assert Checkpoint(folder).tokenizer_limit == known


def test_fingerprint_follows_the_content_alone(tmp_path):
    one, same = (Checkpoint(write(tmp_path / name)).fingerprint for name in ("one", "same"))
    assert one == same and len(one) == 64
    os.utime(tmp_path / "same" / "model.safetensors", (0, 0))
    (tmp_path / "same" / "README.md").write_text("not read")
    assert Checkpoint(tmp_path / "same").fingerprint == one
    changed = {one}
    changed.add(Checkpoint(write(tmp_path / "config", '{"model_type": "toy" }')).fingerprint)
    changed.add(Checkpoint(write(tmp_path / "tokenizer", tokenizer__json="{}")).fingerprint)
    changed.add(Checkpoint(write(tmp_path / "named", tokenizer_config__json="{}")).fingerprint)
    weights = write(tmp_path / "weights") / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"5")
    changed.add(Checkpoint(tmp_path / "weights").fingerprint)
    assert len(changed) == 5


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors"])
def test_missing_files_are_named(tmp_path, missing):
    (write(tmp_path) / missing).unlink()
    with pytest.raises(FileNotFoundError, match=f"{tmp_path} has no .*{missing.removeprefix('model')}"):
        find(tmp_path)


@pytest.mark.parametrize("config", ["{", "[]", "{}", '"text"'])
def test_other_configurations_are_refused(tmp_path, config):
    with pytest.raises(ValueError, match="config.json is not a transformer's configuration"):
        find(write(tmp_path, config))


@pytest.mark.parametrize(
    "content", [b"", b"version https://git-lfs.github.com/spec/v1", bytes(8), b"\x02" + bytes(7) + b"{x"]
)
def test_other_weights_are_named(tmp_path, content):
    (write(tmp_path) / "model.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match="model.safetensors is no safetensors file"):
        _ = find(tmp_path).weights


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A Python package with a transformer and an unrelated config.json; importing the package would fail."""
    folder = tmp_path / "site" / "carrier_of_a_transformer"
    write(folder / "model")
    (folder / "__init__.py").write_text("raise RuntimeError('imported')")
    (folder / "model" / "pooling").mkdir()
    (folder / "model" / "pooling" / "config.json").write_text("{}")
    monkeypatch.syspath_prepend(str(folder.parent))
    return folder


def test_a_package_may_carry_a_transformer(package):
    assert find("carrier_of_a_transformer").folder == package / "model"
    write(package / "second")
    with pytest.raises(ValueError, match="carries 2 transformers"):
        find("carrier_of_a_transformer")


def test_a_folder_goes_before_a_package(package, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "carrier_of_a_transformer")
    assert find("carrier_of_a_transformer").folder == pathlib.Path("carrier_of_a_transformer")


def test_real_weights(minilm):
    checkpoint = find(minilm)
    assert checkpoint.config["hidden_size"] == 384 and checkpoint.tokenizer_limit == 512
    assert "pooler.dense.weight" in checkpoint.weights and len(checkpoint.weights) > 100


@pytest.mark.parametrize("name", ["./nowhere", "a/b/c", "what is this", "/nowhere/at/all", "../x"])
def test_an_unknown_name_is_refused(name):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        find(name)


def test_a_name_that_is_not_on_the_hub_is_refused(tmp_path, monkeypatch):
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(
        FileNotFoundError, match="^there is no folder and no installed package 'nobody/nothing', and the"
    ):
        find("nobody/nothing")


def test_a_name_on_the_hub(tmp_path, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    asked = []

    def download(name, *, allow_patterns, ignore_patterns):
        asked.append((name, "*.safetensors" in allow_patterns, "*.bin" in allow_patterns))
        return str(write(tmp_path / "fetched"))

    monkeypatch.setattr(hub, "snapshot_download", download)
    assert find("nobody/nothing-2.0").folder == tmp_path / "fetched"
    assert asked == [("nobody/nothing-2.0", True, False)]
