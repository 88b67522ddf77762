import types

import keras
import pytest
from small_runs import SHORT, TINY

from tf_capsules.runs import machine, train
from tf_capsules.runs.machine import cpu_hints


@pytest.mark.parametrize(
    ("about", "float32", "onednn"),
    [
        ("flags : fma avx avx2", True, True),
        ("flags : fma avx2 avx512f", True, True),
        ("flags : fma avx2 avx512f avx512_vnni", True, False),
        ("flags : fma avx2 avx512f amx_bf16", False, False),
        ("flags : avx2 avx512_bf16 avx512f", False, False),
        ("Features : fp asimd", False, False),
        (None, False, False),
    ],
    ids=["AVX2", "AVX-512", "VNNI", "AMX", "AVX-512 with bfloat16", "ARM", "unknown"],
)
def test_hints_tell_what_is_faster_on_this_cpu(tmp_path, monkeypatch, about, float32, onednn):
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
    cpu = tmp_path / "cpuinfo"
    if about is not None:
        cpu.write_text(about)
    for dtype, slow in ("mixed_bfloat16", float32), ("float32", False):
        hints = " ".join(cpu_hints(dtype, cpu))
        asks = onednn and keras.backend.backend() == "tensorflow"
        assert ("--dtype float32" in hints, "TF_ENABLE_ONEDNN_OPTS=1" in hints) == (slow, asks)
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")  # on purpose
    assert "ONEDNN" not in " ".join(cpu_hints("mixed_bfloat16", cpu))
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS")
    monkeypatch.setattr(machine, "_devices", lambda: ["cpu:0", "gpu:0"])
    assert cpu_hints("mixed_bfloat16", cpu) == []


def test_a_training_prints_the_hints(eager, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("tf_capsules.runs.training.cpu_hints", lambda dtype: [f"not {dtype}", "faster"])
    train(TINY.replace(epochs=1), tmp_path / "run", SHORT)
    assert "hint: not float32\nhint: faster\n" in capsys.readouterr().out


def test_on_pytorch_devices_are_asked_of_it(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    for count, name in ((0, "CPU core"), (2, "2 x cuda")):
        cuda = types.SimpleNamespace(device_count=lambda count=count: count)
        monkeypatch.setattr(machine, "torch", types.SimpleNamespace(cuda=cuda))
        assert name in machine.device_name()
